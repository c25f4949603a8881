# SPDX-License-Identifier: Apache-2.0
"""From a torch model to a checked ONNX file."""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import ModelProto, helper

from myops._errors import ExportError, UsageError
from myops.onnx import check, functions
from myops.onnx import model as onnx_model
from myops.spec import DOMAIN, SPECS

if TYPE_CHECKING:
    import torch

MODES = ("native", "custom", "portable")
EXPORTERS = ("auto", "dynamo", "torchscript")

DEFAULT_OPSET = 18
DYNAMO_OPSETS = range(18, 26)
TORCHSCRIPT_OPSETS = range(9, 24)

Dynamic = Mapping[str, Mapping[int, str]]


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


@dataclass
class Calls:
    """The calls of our operators in one run of a model.

    Attributes:
        counts: calls by ONNX name.
        rounded: attribute values of float64 calls that float32, ONNX's type, cannot hold.
    """

    counts: Counter[str]
    rounded: set[tuple[str, str, float]]


def record_calls(model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Calls:
    """Runs the model once, without gradients, and records the calls of our operators."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    specs = {f"{DOMAIN}::{spec.torch_name}": spec for spec in SPECS}
    calls = Calls(Counter(), set())

    class Recording(TorchDispatchMode):
        supports_higher_order_operators = True  # else torch.cond and its kin raise

        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            spec = specs.get(function.name())
            if spec is not None:
                calls.counts[spec.name] += 1
                names = [a.name for a in spec.attributes]
                given = dict(zip(names, args[len(spec.inputs) :], strict=False))
                if args[0].dtype == torch.float64:
                    calls.rounded.update(
                        (spec.name, name, float(value))
                        for name, value in (given | (kwargs or {})).items()
                        if float(np.float32(value)) != value
                    )
            return function(*args, **(kwargs or {}))

    with torch.no_grad(), Recording():
        model(*args, **kwargs)
    return calls


def _graph_calls(program: Any) -> Counter[str]:
    """Distinct live calls in an exported program. The exporter merges equal calls and drops dead
    ones, and both branches of a condition are in the graph though one runs."""
    names = {f"{DOMAIN}::{spec.torch_name}": spec.name for spec in SPECS}
    counts: Counter[str] = Counter()
    for module in program.graph_module.modules():
        seen = set()
        for node in getattr(module, "graph", program.graph_module.graph).nodes:
            target = node.target
            name = names.get(target.name()) if hasattr(target, "name") else None
            key = (target, str(node.args), str(node.kwargs))
            if name is not None and node.users and key not in seen:
                seen.add(key)
                counts[name] += 1
    return counts


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's notes on packages that are not installed and on its own internals."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=DeprecationWarning)
            warnings.filterwarnings("ignore", category=FutureWarning)
            yield
    finally:
        logger.setLevel(level)


def _run_dynamo(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    opset: int,
    dynamic: Dynamic,
    bound: Mapping[str, Any],
) -> tuple[ModelProto, Counter[str]]:
    import torch

    from myops.onnx.translate import translation_table

    shapes = {name: dict(dynamic[name]) if name in dynamic else None for name in bound}
    with _quiet():
        program = torch.onnx.export(
            model,
            args,
            kwargs=dict(kwargs),
            dynamo=True,
            opset_version=opset,
            dynamic_shapes=shapes if dynamic else None,
            custom_translation_table=translation_table(),
            verbose=False,
        )
    assert program is not None
    proto: ModelProto = program.model_proto
    return proto, _graph_calls(program.exported_program)


def _run_torchscript(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    opset: int,
    dynamic: Dynamic,
    bound: Mapping[str, Any],
    folder: Path,
) -> ModelProto:
    import torch

    target = folder / "torchscript.onnx"
    with _quiet():
        torch.onnx.export(
            model,
            args,
            str(target),
            kwargs=dict(kwargs),
            dynamo=False,
            opset_version=opset,
            input_names=[name for name, value in bound.items() if hasattr(value, "shape")],
            dynamic_axes={name: dict(axes) for name, axes in dynamic.items()} or None,
        )
    proto = onnx_model.load(target)
    for file in folder.iterdir():
        file.unlink()
    return proto


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
        try:
            if chosen == "dynamo":
                proto, expected = _run_dynamo(model, arguments, keywords, opset, axes, bound)
            else:
                proto = _run_torchscript(model, arguments, keywords, opset, axes, bound, folder)
                expected = calls.counts
        except ExportError:
            raise
        except Exception as error:  # the exporters raise anything
            cause = _our_error(error)
            if cause is not None:
                raise cause from error
            message = " ".join(str(error).split())
            raise ExportError(
                check.WHERE,
                f"torch's {chosen} exporter should be able to export the model",
                f"{type(error).__name__}: {message[:600]}",
                "Correct the model, or try the other exporter",
            ) from error
        _finish(proto, mode)
        _warn_about_rounding(calls)
        written = onnx_model.write(proto, folder, path.name)
        checked = check.check_file(written, mode, opset, expected, axes)
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
        calls=dict(calls.counts),
        size=size,
    )


def _our_error(error: BaseException | None) -> ExportError | None:
    """The error one of our translations raised, below what the exporter wrapped around it."""
    while error is not None:
        if isinstance(error, ExportError):
            return error
        error = error.__cause__ or error.__context__
    return None
