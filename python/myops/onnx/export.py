# SPDX-License-Identifier: Apache-2.0
"""From a torch model to a checked ONNX file."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import ModelProto, helper

from myops._errors import ExportError, UsageError
from myops.onnx import check, functions
from myops.onnx import model as onnx_model
from myops.onnx.calls import Calls, attribute_from_data, record_calls
from myops.onnx.exporters import Dynamic, our_error, run_dynamo, run_torchscript

if TYPE_CHECKING:
    import torch

MODES = ("native", "custom", "portable")
EXPORTERS = ("auto", "dynamo", "torchscript")

DEFAULT_OPSET = 18
DYNAMO_OPSETS = range(18, 26)
TORCHSCRIPT_OPSETS = range(9, 24)


@dataclass(frozen=True)
class ExportReport:
    """What ``export`` wrote.

    Attributes:
        path: the model file.
        mode: "native", "custom" or "portable".
        exporter: "dynamo" or "torchscript".
        opset: default opset of the file.
        nodes: operator types of the main graph in order, ours with their domain.
        operators: number of nodes per ``myops`` operator (0 of them left in mode "native").
        calls: number of calls per operator in the traced model.
        size: bytes of the model file.
    """

    path: Path
    mode: str
    exporter: str
    opset: int
    nodes: list[str]
    operators: dict[str, int]
    calls: dict[str, int]
    size: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"path": str(self.path)}


def _choose_exporter(exporter: str, opset: int) -> str:
    ranges = {"dynamo": DYNAMO_OPSETS, "torchscript": TORCHSCRIPT_OPSETS}
    able = [name for name, opsets in ranges.items() if opset in opsets]
    if exporter == "auto" and able:
        return able[0]
    if exporter in able:
        return exporter
    delivered = "; ".join(
        f"{name} delivers opsets {opsets[0]} to {opsets[-1]}" for name, opsets in ranges.items()
    )
    raise ExportError(
        check.WHERE,
        f"the opset should be one the exporter delivers: {delivered}",
        f"opset {opset} for exporter={exporter!r}",
        "Use exporter='auto'" if able else "Ask for another opset",
    )


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UsageError(
            check.WHERE, f"{name} should be one of {', '.join(choices)}", repr(value), "Choose one"
        )


def _bind(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments of forward by name."""
    signature = inspect.signature(model.forward)
    try:
        return dict(signature.bind(*args, **kwargs).arguments)
    except TypeError as error:
        raise UsageError(
            check.WHERE,
            f"args should fit forward{signature}",
            str(error),
            "Pass args as a tuple in the order of forward's arguments",
        ) from error


def _check_dynamic_names(dynamic: Dynamic, bound: Mapping[str, Any]) -> None:
    for name, axes in dynamic.items():
        shape = getattr(bound.get(name), "shape", None)
        if shape is None:
            raise UsageError(
                check.WHERE,
                f"dynamic should name tensor arguments of forward ({', '.join(bound)})",
                repr(name),
                "Correct the name",
            )
        for axis, dim in axes.items():
            if not 0 <= axis < len(shape) or not isinstance(dim, str) or not dim.isidentifier():
                raise UsageError(
                    check.WHERE,
                    f"dynamic[{name!r}] should map dims 0 to {len(shape) - 1} to names",
                    f"{axis!r}: {dim!r}",
                    "For instance {0: 'batch'}",
                )


@contextlib.contextmanager
def _evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode for the block; each module's own mode comes back after it."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def _check_attributes(
    calls: Calls,
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    dynamic: Dynamic,
    bound: Mapping[str, Any],
) -> None:
    if not any(values for _, values in calls.attributes):
        return
    found = attribute_from_data(model, args, kwargs, dynamic, list(bound), calls)
    if found is not None:
        operator, name, value, other = found
        raise ExportError(
            check.WHERE,
            f"{name} of {operator} should be the same number for all inputs",
            f"{value:g} for the example and {other:g} for another input",
            f"Compute {name} before the export, or compose the function from torch operators",
        )


def _warn_about_rounding(calls: Calls) -> None:
    for operator, name, value in sorted(calls.rounded):
        warnings.warn(
            f"[{check.WHERE}] ONNX attributes are float32. {operator}'s {name} = {value!r} is "
            f"stored as {float(np.float32(value))!r}, and float64 results move by about "
            f"{abs(float(np.float32(value)) - value):.1g}. Use a value float32 can hold.",
            stacklevel=3,
        )


def _finish(model: ModelProto, mode: str) -> None:
    # Exporters write the newest IR they know. The oldest that allows the opset loads in more
    # runtimes; what newer ones add to these files is metadata.
    model.ir_version = min(
        model.ir_version, helper.find_min_ir_version_for(list(model.opset_import), True)
    )
    if mode == "native":
        functions.expand(model)
        return
    if onnx_model.our_nodes(model):
        functions.import_domain(model)
    if mode == "portable":
        functions.add_functions(model)


def export(
    model: torch.nn.Module,
    args: tuple[Any, ...] | torch.Tensor,
    path: str | os.PathLike[str],
    mode: str = "portable",
    opset: int | None = None,
    dynamic: Dynamic | None = None,
    exporter: str = "auto",
    kwargs: Mapping[str, Any] | None = None,
) -> ExportReport:
    """Exports ``model`` to a checked ONNX file.

    Args:
        model: the module. It is exported in evaluation mode; its own modes are restored.
        args: example inputs, a tuple in the order of forward's arguments (or one tensor).
        path: the file to write. It is replaced only after the new file has passed all checks.
            Models above 1.5 GB keep their weights in ``<path>.data``.
        mode: "native" (standard ONNX operators only), "custom" (one ``myops`` node per call, needs
            the plugin) or "portable" (the node and a model-local function: runs anywhere, fused
            where the plugin is registered).
        opset: default opset of the file; 18 if None.
        dynamic: forward-argument name -> dim -> symbol, such as ``{"x": {0: "batch"}}``. All other
            dims are fixed to the example's.
        exporter: "dynamo" (opsets 18 to 25), "torchscript" (9 to 23) or "auto": dynamo where it can
            deliver the opset.
        kwargs: example keyword arguments of forward.

    Returns:
        What was written.

    Raises:
        UsageError: an argument is not usable.
        ExportError: the exporter failed, or the file is not what was asked for: an operator lost, a
            wrong opset, a dim without its name. Nothing is written then.

    ONNX attributes are float32. Where a float64 model uses a coefficient that float32 cannot hold,
    a warning says by how much it moved.
    """
    import torch

    import myops.functional  # noqa: F401  (registers the operators with both exporters)

    _check_choice("mode", mode, MODES)
    _check_choice("exporter", exporter, EXPORTERS)
    arguments = (args,) if isinstance(args, torch.Tensor) else tuple(args)
    keywords = dict(kwargs or {})
    axes = {name: dict(dims) for name, dims in (dynamic or {}).items() if dims}
    opset = DEFAULT_OPSET if opset is None else opset
    chosen = _choose_exporter(exporter, opset)
    bound = _bind(model, arguments, keywords)
    _check_dynamic_names(axes, bound)
    path = Path(path)

    with _evaluating(model), onnx_model.staged(path) as folder:
        calls = record_calls(model, arguments, keywords)
        _check_attributes(calls, model, arguments, keywords, axes, bound)
        most = calls.total
        try:
            if chosen == "dynamo":
                proto, in_graph = run_dynamo(model, arguments, keywords, opset, axes, bound)
                most = calls.total | in_graph
            else:
                proto = run_torchscript(model, arguments, keywords, opset, axes, bound, folder)
        except ExportError:
            raise
        except Exception as error:  # the exporters raise anything
            if (cause := our_error(error)) is not None:
                raise cause from error
            message = " ".join(re.sub(r"\x1b\[\d*m", "", str(error)).split())  # no colours
            raise ExportError(
                check.WHERE,
                f"torch's {chosen} exporter should be able to export the model",
                f"{type(error).__name__}: {message[:600]}",
                "Correct the model, or try the other exporter",
            ) from error
        _finish(proto, mode)
        _warn_about_rounding(calls)
        written = onnx_model.write(proto, folder, path.name)
        checked = check.check_file(written, mode, opset, (calls.distinct, most), axes)
        size = written.stat().st_size
    return ExportReport(
        path=path,
        mode=mode,
        exporter=chosen,
        opset=opset,
        nodes=[
            f"{node.domain}::{node.op_type}" if node.domain else node.op_type
            for node in checked.graph.node
        ],
        operators=dict(check.node_counts(checked)),
        calls=dict(calls.total),
        size=size,
    )
