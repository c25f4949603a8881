# SPDX-License-Identifier: Apache-2.0
"""Calling torch's two exporters."""

from __future__ import annotations

import contextlib
import inspect
import logging
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnx import ModelProto

from myops._errors import ExportError
from myops.onnx import model as onnx_model
from myops.onnx.calls import graph_calls

if TYPE_CHECKING:
    import torch

Dynamic = Mapping[str, Mapping[int, str]]


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


def run_dynamo(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    opset: int,
    dynamic: Dynamic,
    bound: Mapping[str, Any],
) -> tuple[ModelProto, Counter[str]]:
    """Exports with the dynamo exporter. Also returns the calls in the exported program."""
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
    return program.model_proto, graph_calls(program.exported_program)


_PLAIN = (bool, int, float, str, type(None))


def _fixed(model: torch.nn.Module, names: list[str], plain: Mapping[str, Any]) -> torch.nn.Module:
    """``model`` as a module of the arguments ``names``; the others keep the values in ``plain``."""
    import torch

    class Fixed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *values: Any) -> Any:
            return self.model(**dict(zip(names, values, strict=True)), **plain)

    return Fixed()


def run_torchscript(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    opset: int,
    dynamic: Dynamic,
    bound: Mapping[str, Any],
    folder: Path,
) -> ModelProto:
    """Exports with the TorchScript exporter. ``folder`` is scratch space and empty afterwards."""
    import torch

    parameters = inspect.signature(model.forward).parameters
    values = {name: p.default for name, p in parameters.items() if p.default is not p.empty}
    plain = {name: v for name, v in (values | dict(bound)).items() if isinstance(v, _PLAIN)}
    if plain:
        # The exporter would make an input of every number.
        names = [name for name in bound if name not in plain]
        model, args, kwargs = _fixed(model, names, plain), tuple(bound[n] for n in names), {}
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


def our_error(error: BaseException | None) -> ExportError | None:
    """The error one of our translations raised, below what the exporter wrapped around it."""
    while error is not None:
        if isinstance(error, ExportError):
            return error
        error = error.__cause__ or error.__context__
    return None
