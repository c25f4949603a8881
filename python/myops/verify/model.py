# SPDX-License-Identifier: Apache-2.0
"""A whole model through every layer, against itself in float64."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, helper

from myops._errors import ModelError, UsageError
from myops.onnx import model as onnx_model
from myops.spec import SPECS
from myops.verify.compare import Tolerance, compare
from myops.verify.parties import one_line, onnx_parties
from myops.verify.report import Report, Row

if TYPE_CHECKING:
    import torch

WHERE = "myops.verify"

# Errors of a whole network, relative to the largest value of the output: rounding at every step.
MODEL_TOLERANCE = {"float32": 1e-5, "float64": 1e-7, "float16": 5e-3, "bfloat16": 4e-2}
"""Per dtype. float64 allows for attributes, which ONNX stores as float32."""


def synthesize(
    model: ModelProto, dims: Mapping[str, int] | None = None, seed: int = 0
) -> dict[str, npt.NDArray[Any]]:
    """Inputs that fit a model's signature: standard normal floats, zeros for the rest.

    Args:
        model: the model.
        dims: sizes of symbolic dims by name; 2 for those not named.
        seed: of the random generator.

    Raises:
        UsageError: ``dims`` names a symbol that the model does not have.
    """
    rng = np.random.default_rng(seed)
    given = dict(dims or {})
    initializers = {tensor.name for tensor in model.graph.initializer}
    symbols: set[str] = set()
    inputs: dict[str, npt.NDArray[Any]] = {}
    for value in model.graph.input:
        if value.name in initializers:
            continue
        shape = []
        for dim in onnx_model.dims(value) or []:
            if isinstance(dim, str):
                symbols.add(dim)
            shape.append(dim if isinstance(dim, int) else given.get(dim or "", 2))
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if np.issubdtype(dtype, np.floating):
            inputs[value.name] = np.asarray(rng.standard_normal(shape), dtype=dtype)
        else:
            inputs[value.name] = np.zeros(shape, dtype=dtype)
    unknown = set(given) - symbols
    if unknown:
        raise UsageError(
            WHERE,
            f"dims should name symbolic dims of the model ({', '.join(sorted(symbols)) or 'none'})",
            ", ".join(sorted(unknown)),
            "Correct the names",
        )
    return inputs


def _as_float64(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    return value


def _run_torch(
    model: torch.nn.Module, inputs: Mapping[str, npt.NDArray[Any]], double: bool
) -> list[npt.NDArray[Any]]:
    import torch

    runner = copy.deepcopy(model).eval()
    tensors: dict[str, Any] = {k: torch.from_numpy(np.array(v)) for k, v in inputs.items()}
    if double:
        runner = runner.double()
        tensors = {name: _as_float64(tensor) for name, tensor in tensors.items()}
    with torch.no_grad():
        outputs = runner(**tensors)
    if isinstance(outputs, Mapping):
        outputs = list(outputs.values())
    elif isinstance(outputs, torch.Tensor):
        outputs = [outputs]
    return [np.asarray(o.float() if o.dtype == torch.bfloat16 else o) for o in outputs]


def _load_inputs(
    inputs: Mapping[str, npt.NDArray[Any]] | str | os.PathLike[str] | None,
    model: ModelProto,
    dims: Mapping[str, int] | None,
) -> dict[str, npt.NDArray[Any]]:
    if inputs is None:
        return synthesize(model, dims)
    if not isinstance(inputs, Mapping):
        try:
            with np.load(Path(inputs)) as archive:
                inputs = dict(archive.items())
        except Exception as error:
            raise UsageError(
                WHERE,
                "inputs should be an .npz file of arrays named like the model's inputs",
                f"{inputs}: {one_line(error)}",
                "Write one with numpy.savez",
            ) from error
    required = {v.name for v in model.graph.input} - {t.name for t in model.graph.initializer}
    if set(inputs) != required:
        raise UsageError(
            WHERE,
            f"inputs should be named {', '.join(sorted(required))}",
            ", ".join(sorted(inputs)) or "none",
            "Rename the arrays",
        )
    return {name: np.asarray(array) for name, array in inputs.items()}


def verify_model(
    path: str | os.PathLike[str],
    torch_model: torch.nn.Module | None = None,
    inputs: Mapping[str, npt.NDArray[Any]] | str | os.PathLike[str] | None = None,
    dims: Mapping[str, int] | None = None,
    plugin: str | os.PathLike[str] | None = None,
    tolerance: float | None = None,
) -> Report:
    """Verifies an exported model.

    Args:
        path: the .onnx file.
        torch_model: the module it was exported from. Its copy in float64 is the truth. Without it
            ONNX's reference evaluator is, in the model's own precision.
        inputs: arrays by input name, or an .npz file; made up from the model's signature if None.
        dims: sizes of symbolic dims for made-up inputs; 2 if not named.
        plugin: another plugin file than the installed one.
        tolerance: largest error relative to the largest value of the output, in place of
            ``MODEL_TOLERANCE`` for its dtype.

    Returns:
        A row per output and party.

    Raises:
        ModelError: the file is not a usable model, or no truth could be computed.
        UsageError: the inputs do not fit.
    """
    proto = onnx_model.load(path)
    arrays = _load_inputs(inputs, proto, dims)
    names = [value.name for value in proto.graph.output]
    truth: list[npt.NDArray[Any]]
    parties = onnx_parties(plugin)
    portable = {f.name for f in proto.functions if f.domain in SPECS.namespaces()}
    needs_plugin = {node.op_type for node in onnx_model.our_nodes(proto)} - portable

    results: list[tuple[int, str, bool, list[npt.NDArray[Any]] | None, str]] = []
    if torch_model is not None:
        truth = _run_torch(torch_model, arrays, double=True)
        results.append((1, "torch model", True, _run_torch(torch_model, arrays, False), ""))
    for party in parties:
        if needs_plugin and not party.ours:
            note = f"needs the plugin for {', '.join(sorted(needs_plugin))}"
            results.append((party.layer, party.name, False, None, note))
            continue
        try:
            computed = party.run(str(path), arrays)
        except Exception as error:  # a party that cannot run is a row, not the end
            results.append((party.layer, party.name, party.ours, None, one_line(error)))
        else:
            results.append((party.layer, party.name, party.ours, computed, ""))
    if torch_model is None:
        truth = _reference_truth(results)

    report = Report()
    for index, name in enumerate(names):
        dtype = _dtype_name(proto, name)
        expected = np.asarray(truth[index], np.float64)  # the torch model in float64
        finite = np.abs(expected[np.isfinite(expected)])
        scale = float(finite.max(initial=0.0))
        relative = MODEL_TOLERANCE[dtype] if tolerance is None else tolerance
        limit = Tolerance(absolute=relative * scale)
        for layer, party_name, ours, outputs, note in results:
            comparison = None
            if outputs is not None:
                comparison = compare(outputs[index], expected, dtype, limit)
            report.rows.append(
                Row(layer, name, "", party_name, dtype, comparison, limit, ours, None, note)
            )
    return report


def _reference_truth(
    results: list[tuple[int, str, bool, list[npt.NDArray[Any]] | None, str]],
) -> list[npt.NDArray[Any]]:
    for _, name, _, outputs, note in results:
        if name == "onnx reference":
            if outputs is not None:
                return outputs
            raise ModelError(
                WHERE,
                "without a torch model, onnx's reference evaluator should run the model",
                note,
                "Pass the torch model (--torch module:factory)",
            )
    raise AssertionError("onnx_parties() has a reference party")


def _dtype_name(model: ModelProto, output: str) -> str:
    types = {v.name: v.type.tensor_type.elem_type for v in model.graph.output}
    name = onnx_model.DTYPES.get(types[output])
    # Integer and boolean outputs are compared like float64: every difference counts.
    return name or "float64"
