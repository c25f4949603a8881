# SPDX-License-Identifier: Apache-2.0
"""Exports the network in every mode through both exporters and runs each file in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from myops._errors import ModelError
from myops.demo.train import Digits, accuracy, predict
from myops.spec import DOMAIN, SPECS

if TYPE_CHECKING:
    import torch

    from myops.onnx import ExportReport

TOLERANCE = 1e-4
"""Largest difference of a score from torch's. The scores are around 10; the convolutions of the two
frameworks add up in different orders."""

EXPORTERS = ("dynamo", "torchscript")

_OURS = {spec.name for spec in SPECS}


@dataclass(frozen=True)
class Run:
    """One file in one session, on all held-out digits and on a batch of one.

    Attributes:
        plugin: whether the plugin was registered.
        kernels: what ran, by ONNX Runtime's profile, with counts; empty where the session was
            refused.
        max_difference: largest difference of a score from torch's.
        equal_bits: share of the scores that equal torch's bit for bit.
        same_predictions: whether every digit was read like in torch.
        accuracy: on the held-out digits.
        ok: whether all of this is as it should be.
        note: what is worth knowing.
    """

    plugin: bool
    kernels: dict[str, int]
    max_difference: float | None
    equal_bits: float | None
    same_predictions: bool | None
    accuracy: float | None
    ok: bool
    note: str


@dataclass(frozen=True)
class Exported:
    """One file and its runs.

    Attributes:
        report: of the export.
        functions: model-local functions in the file: name -> the standard ops inside.
        runs: with the plugin, then without.
    """

    report: ExportReport
    functions: dict[str, list[str]]
    runs: list[Run]

    @property
    def label(self) -> str:
        return f"{self.report.mode}, {self.report.exporter}"

    def to_dict(self) -> dict[str, Any]:
        return self.report.to_dict() | {
            "functions": self.functions,
            "runs": [asdict(run) for run in self.runs],
        }


def _refused(path: Path) -> Run:
    """A custom file without the plugin should be refused, with words that help."""
    from myops import ort

    try:
        ort.session(path, plugin=False)
    except ModelError as error:
        return Run(False, {}, None, None, None, None, True, f"refused: {error}")
    note = "loaded, though nothing implements its operators"
    return Run(False, {}, None, None, None, None, False, note)


def _run(report: ExportReport, plugin: bool, digits: Digits, truth: npt.NDArray[Any]) -> Run:
    from myops import ort
    from myops.bench import kernels

    session = ort.session(report.path, intra_op_num_threads=1, plugin=plugin)
    scores = np.asarray(session.run(None, {"x": digits.test_x})[0])
    single = np.asarray(session.run(None, {"x": digits.test_x[:1]})[0])
    ran = kernels(report.path, {"x": digits.test_x}, plugin)
    ours = {name: count for name, count in ran.items() if name in _OURS}
    expected = report.operators if plugin else {}
    difference = float(np.abs(scores - truth).max())
    same = bool((scores.argmax(axis=1) == truth.argmax(axis=1)).all())
    problems = []
    if ours != expected:
        problems.append(f"ran {ours or 'none'} of our kernels instead of {expected or 'none'}")
    if difference > TOLERANCE:
        problems.append(f"scores differ from torch's by more than {TOLERANCE:g}")
    if not same:
        problems.append("predictions differ from torch's")
    if np.abs(single - scores[:1]).max() > TOLERANCE:
        problems.append("a batch of one gives other scores")
    return Run(
        plugin=plugin,
        kernels=dict(ran),
        max_difference=difference,
        equal_bits=float((scores == truth).mean()),
        same_predictions=same,
        accuracy=accuracy(scores, digits.test_y),
        ok=not problems,
        note="; ".join(problems),
    )


def _functions(path: Path) -> dict[str, list[str]]:
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    return {
        f"{function.domain}::{function.name}": [node.op_type for node in function.node]
        for function in model.functions
        if function.domain == DOMAIN
    }


def export_and_run(
    model: torch.nn.Module,
    digits: Digits,
    folder: Path,
    on_file: Callable[[], object],
) -> list[Exported]:
    """All modes through all exporters with a dynamic batch, each run with and without the plugin.

    Args:
        model: the trained network.
        digits: whose held-out part is run.
        folder: for the files ``<mode>-<exporter>.onnx``.
        on_file: called after each file.

    Raises:
        ExportError: an export did not deliver what was asked for.
        ModelError: ONNX Runtime does not load a file it should load.
    """
    import torch

    from myops.onnx import MODES, export

    truth = predict(model, digits.test_x)
    example = torch.from_numpy(digits.test_x[:2])
    exported = []
    for mode in MODES:
        for exporter in EXPORTERS:
            path = folder / f"{mode}-{exporter}.onnx"
            report = export(
                model,
                (example,),
                path,
                mode=mode,
                exporter=exporter,
                dynamic={"x": {0: "batch"}},
            )
            without = _refused(path) if mode == "custom" else _run(report, False, digits, truth)
            runs = [_run(report, True, digits, truth), without]
            exported.append(Exported(report, _functions(path), runs))
            on_file()
    return exported
