# SPDX-License-Identifier: Apache-2.0
"""A whole model in everybody's hands, against float64."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, TensorProto

from myops._errors import ModelError
from myops.onnx import model as onnx_model
from myops.onnx.inputs import load_inputs
from myops.spec import SPECS
from myops.verify import hints
from myops.verify.bisect import Bisection, bisect
from myops.verify.bisect_file import PARTY as FILE
from myops.verify.bisect_file import bisect_file
from myops.verify.compare import Comparison, Tolerance, compare
from myops.verify.float64 import evaluate_model, prepared
from myops.verify.operators import operator_rows, operators_in, torch_has
from myops.verify.parties import ALONE, PLUGIN, REFERENCE, Party, one_line, onnx_parties
from myops.verify.report import Report, Row
from myops.verify.scales import result_scales
from myops.verify.tolerances import (
    MODEL_TOLERANCE,
    Overrides,
    largest_size,
    model_tolerance,
    precision,
)
from myops.verify.torch_model import run_torch
from myops.verify.trace import node_name

if TYPE_CHECKING:
    import torch

WHERE = "myops.verify"
TORCH = "torch model"

OnStep = Callable[[str], object]


@dataclass(frozen=True)
class _Result:
    """What one party gave, None where it did not run, and what it is held against."""

    party: str
    ours: bool
    outputs: Sequence[npt.NDArray[Any]] | None
    truth: Sequence[npt.NDArray[Any]]
    note: str = ""


def _output_dtype(model: ModelProto, output: str) -> str:
    types = onnx_model.element_types(model)
    element_type = types.get(output, 0)
    name = TensorProto.DataType.Name(element_type).lower()
    return onnx_model.DTYPES.get(element_type) or name


class Verification:
    """One model on one set of inputs.

    ``run`` fills ``results``; ``operators``, ``compare``, ``hints`` and ``bisect`` fill ``report``.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        torch_model: torch.nn.Module | None,
        inputs: Mapping[str, npt.NDArray[Any]] | str | os.PathLike[str] | None,
        dims: Mapping[str, int] | None,
        plugin: str | os.PathLike[str] | None,
        tolerance: float | Overrides | None,
        on_step: OnStep = lambda text: None,
    ) -> None:
        self.path, self.torch_model, self.plugin = str(path), torch_model, plugin
        self.tolerance, self.on_step = tolerance, on_step
        self.proto = onnx_model.load(path)
        self.inputs = load_inputs(inputs, self.proto, dims)
        self.names = [value.name for value in self.proto.graph.output]
        self.precision = precision(self.proto)
        self.relative = model_tolerance(self.proto, tolerance)
        self.scales = result_scales(prepared(self.proto).graph)
        self.parties = onnx_parties(plugin)
        self.report = Report()
        self.results: list[_Result] = []
        self.failure = ""  # why the file has no float64 results

    def operators(self) -> None:
        """Layer 1: the operators the model uses, with its attribute values."""
        for spec, dtype, attributes in operators_in(self.proto):
            self.on_step(f"{spec.name}, {dtype}")
            rows = operator_rows(spec, dtype, attributes, self.parties[:1], torch_has(spec))
            self.report.rows.extend(rows)

    def _file_in_float64(self) -> list[npt.NDArray[Any]] | None:
        try:
            values = evaluate_model(
                self.proto,
                self.inputs,
                on_node=lambda node: self.on_step(f"float64: {node_name(node)}"),
            )
        except Exception as error:  # onnx raises whatever its evaluator ran into
            self.failure = one_line(error)
            return None
        return [np.asarray(values[name]) for name in self.names]

    def _torch(self, double: bool) -> tuple[list[npt.NDArray[Any]] | None, str]:
        assert self.torch_model is not None
        try:
            outputs = run_torch(self.torch_model, self.inputs, double)
        except Exception as error:
            how = "the torch model should run on the inputs, by the names of forward's arguments"
            if double:  # a model that converts to float32 inside, for instance
                return None, one_line(error)
            raise ModelError(WHERE, how, one_line(error), "Correct the inputs' names") from error
        if len(outputs) != len(self.names) or any(
            a.ndim != len(onnx_model.dims(v) or a.shape)
            for a, v in zip(outputs, self.proto.graph.output, strict=True)
        ):
            raise ModelError(
                WHERE,
                f"the torch model should give the file's {len(self.names)} outputs",
                ", ".join(str(list(a.shape)) for a in outputs),
                "Name the model the file was exported from",
            )
        return outputs, ""

    def run(self) -> None:
        """Runs every party and settles what it is held against."""
        precise = self._file_in_float64()
        if self.torch_model is not None:
            self.on_step(TORCH)
            torch_64, reason = self._torch(double=True)
            torch_own, _ = self._torch(double=False)
            truth = torch_64 or precise
            if truth is not None:
                self.results.append(_Result(TORCH, True, torch_own, truth, reason))
            if torch_64 is not None and precise is not None:
                self.results.append(_Result(FILE, True, precise, torch_64))
            precise = precise or torch_64
        self.report.truth = "the file in float64"
        if self.failure and precise is not None:
            self.report.truth = "the torch model in float64"
        domains = SPECS.namespaces()
        portable = {f.name for f in self.proto.functions if f.domain in domains}
        missing = {node.op_type for node in onnx_model.our_nodes(self.proto)} - portable
        ran: list[tuple[Party, list[npt.NDArray[Any]] | None, str]] = []
        for party in self.parties:
            self.on_step(party.name)
            if missing and not party.ours:
                note = f"needs the plugin for {', '.join(sorted(missing))}"
                ran.append((party, None, note))
                continue
            try:
                ran.append((party, party.run(self.path, self.inputs), ""))
            except Exception as error:  # a party that cannot run is a row, not the end
                ran.append((party, None, one_line(error)))
        if precise is None:
            precise = self._own_precision(ran)
        for party, outputs, note in ran:
            self.results.append(_Result(party.name, party.ours, outputs, precise, note))

    def _own_precision(
        self, ran: list[tuple[Party, list[npt.NDArray[Any]] | None, str]]
    ) -> list[npt.NDArray[Any]]:
        """The reference evaluator's results, where float64 is not to be had."""
        note = self.failure
        for party, outputs, why in ran:
            if party.name == REFERENCE and outputs is not None:
                self.report.truth = "onnx's evaluator in the model's own precision"
                return outputs
            note = why or note
        if all(outputs is None for _, outputs, _ in ran):
            raise ModelError(
                WHERE,
                "the model should run on its inputs",
                f"{', '.join(f'{n} {list(a.shape)}' for n, a in self.inputs.items())}: {ran[0][2]}",
                "Give inputs that it takes (--inputs x.npz), or the sizes of its dims (--dim)",
            )
        raise ModelError(
            WHERE,
            "without a torch model, onnx's reference evaluator should run the model",
            note,
            "Pass the torch model (--torch module:factory)",
        )

    def compare(self) -> None:
        """Layer 2: a row per output and party."""
        for index, name in enumerate(self.names):
            dtype = _output_dtype(self.proto, name)
            for result in self.results:
                expected = np.asarray(result.truth[index], np.float64)
                floating = dtype in MODEL_TOLERANCE
                # Every difference of an integer or boolean counts.
                exact = not floating and self.precision != "quantized"
                size = max(largest_size(expected), self.scales.get(name, 0.0))
                limit = Tolerance(absolute=0 if exact else self.relative * size)
                comparison: Comparison | None = None
                note = result.note
                if result.outputs is not None:
                    received = np.asarray(result.outputs[index])
                    if received.shape == expected.shape:
                        kind = dtype if floating else "float64"
                        comparison = compare(received, expected, kind, limit)
                    else:
                        note = f"shape {list(received.shape)}, not {list(expected.shape)}"
                self.report.rows.append(
                    Row(
                        2, name, "", result.party, dtype, comparison, limit, result.ours, None, note
                    )
                )

    def _off(self) -> list[str]:
        """Parties of layer 2 that are off."""
        rows = Report([row for row in self.report.rows if row.layer > 1])
        return rows.off()

    def hints(self) -> None:
        """Experiments on the parties that are off."""
        off = self._off()
        if not off:
            return
        experiments: list[tuple[Any, ...]] = []
        if self.torch_model is not None:
            experiments.append((hints.non_contiguous, self.torch_model, self.inputs, self.relative))
        by_name = {party.name: party for party in self.parties}
        for result in self.results:
            party = by_name.get(result.party)
            if result.party not in off or party is None or result.outputs is None:
                continue
            known = (self.path, self.inputs)
            experiments += [
                (hints.layout, party, *known, result.outputs, result.truth, self.relative),
                (hints.optimization, party, self.plugin, *known, result.truth, self.relative),
            ]
        special = any(r.comparison is not None and r.comparison.special for r in self.report.rows)
        experiments += [
            (hints.implicit_float64, self.proto),
            (hints.decomposition, off, self.proto, special),
        ]
        if FILE in off:
            experiments.append((hints.layout_of_file, *self._file_results(), self.relative))
        self.report.hints = list(dict.fromkeys(hints.safely(*experiments)))

    def _file_results(self) -> tuple[Sequence[npt.NDArray[Any]], Sequence[npt.NDArray[Any]]]:
        found = next(result for result in self.results if result.party == FILE)
        return found.outputs or [], found.truth

    def bisect(self, save_to: Path | None) -> None:
        """Finds the node: of the file, where there is a torch model to hold it against, and of the
        first runtime that is off, or of the plugin's where none is."""
        off = self._off()
        if any(result.party == FILE for result in self.results):
            assert self.torch_model is not None
            self.report.bisections.append(
                bisect_file(self.proto, self.inputs, self.torch_model, save_to, self.tolerance)
            )
        ran = [r.party for r in self.results if r.outputs is not None]
        parties = [party for party in self.parties if party.name in ran]
        chosen = next((p for p in parties if p.name in off), None)
        if chosen is None:
            chosen = next(iter(parties), None)
        if chosen is not None:
            found: Bisection = bisect(
                self.proto, self.inputs, chosen, save_to, self.tolerance, self.on_step
            )
            self.report.bisections.append(found)
            runtimes = [
                result.outputs
                for result in self.results
                if result.party in (PLUGIN, ALONE) and result.outputs is not None
            ]
            self.report.hints += hints.safely(
                (hints.tf32, found), (hints.reference_in_doubt, found, runtimes)
            )


def verify_model(
    path: str | os.PathLike[str],
    torch_model: torch.nn.Module | None = None,
    inputs: Mapping[str, npt.NDArray[Any]] | str | os.PathLike[str] | None = None,
    dims: Mapping[str, int] | None = None,
    plugin: str | os.PathLike[str] | None = None,
    tolerance: float | Overrides | None = None,
    find_node: bool = False,
    save_to: str | os.PathLike[str] | None = None,
    on_step: OnStep = lambda text: None,
) -> Report:
    """Verifies an exported model.

    Whoever runs the file is held against the file in float64; the file in float64 and the torch
    model are held against the torch model in float64. So a party that is off is off by itself.

    Args:
        path: the .onnx file.
        torch_model: the module it was exported from.
        inputs: arrays by input name, or an .npz file; made up from the model's signature if None.
        dims: sizes of symbolic dims for made-up inputs; 2 if not named.
        plugin: another plugin file than the installed one.
        tolerance: largest error relative to the largest value of an output, for all or by dtype,
            in place of ``MODEL_TOLERANCE``.
        find_node: whether to look for the node that is to blame (``Report.bisections``).
        save_to: the .npz file for that node's inputs and results.
        on_step: called with what is done next.

    Returns:
        Rows of layer 1 for the operators the model uses, and of layer 2 per output and party, with
        hints where something is off.

    Raises:
        ModelError: the file is not a usable model, the torch model does not fit it, or no truth
            could be computed.
        UsageError: the inputs do not fit.
    """
    run = Verification(path, torch_model, inputs, dims, plugin, tolerance, on_step)
    run.operators()
    run.run()
    run.compare()
    run.hints()
    if find_node:
        run.bisect(Path(save_to) if save_to is not None else None)
    return run.report
