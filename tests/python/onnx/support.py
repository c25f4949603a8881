# SPDX-License-Identifier: Apache-2.0
"""Models to export, sessions with and without the plugin, and what a session really ran."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import myops.functional
import myops.nn
import myops.ort
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from myops.onnx import model as onnx_model
from myops.spec import DOMAIN, OpSpec

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
ONNX_TYPES = {name: element_type for element_type, name in onnx_model.DTYPES.items()}

EXPORTERS = ("dynamo", "torchscript")
MODES = ("native", "custom", "portable")

each_exporter = pytest.mark.parametrize("exporter", EXPORTERS)
each_mode = pytest.mark.parametrize("mode", MODES)
# Modes differ behind the exporter only, and an export by dynamo takes most of a second.
each_way = pytest.mark.parametrize(
    ("exporter", "mode"), [("dynamo", "portable"), *(("torchscript", mode) for mode in MODES)]
)
each_dtype = pytest.mark.parametrize("dtype", DTYPES)


def function(spec: OpSpec) -> Callable[..., torch.Tensor]:
    return getattr(myops.functional, spec.torch_name)


def attributes(spec: OpSpec) -> dict[str, float]:
    """Values that float32 holds, other than the defaults."""
    return {a.name: a.default * 1.75 + 0.125 for a in spec.attributes}


def inputs(spec: OpSpec, x: torch.Tensor) -> list[torch.Tensor]:
    """``x``, and for further inputs other values: their order shows in the result."""
    # ONNX Runtime has no subtraction in bfloat16.
    wide = x.float() if x.dtype == torch.bfloat16 else x
    return [x, *((i / 2 - wide).to(x.dtype) for i in range(1, len(spec.inputs)))]


def call(spec: OpSpec, x: torch.Tensor, **values: float) -> torch.Tensor:
    """The operator at ``inputs(spec, x)``."""
    return function(spec)(*inputs(spec, x), **values)


class Net(torch.nn.Module):
    """The operator and a reshape to ``(N, -1)``, which needs to know the dims behind it. ONNX
    Runtime's Python API has no bfloat16 arrays: that one is cast in the graph."""

    def __init__(self, spec: OpSpec, dtype: torch.dtype, **values: float) -> None:
        super().__init__()
        self.spec, self.dtype = spec, dtype
        self.act = getattr(myops.nn, spec.name)(**(values or attributes(spec)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.act(*(value.to(self.dtype) for value in inputs(self.spec, x)))
        return y.reshape(x.shape[0], -1).to(x.dtype)

    def example(self, rows: int = 2) -> torch.Tensor:
        dtype = torch.float32 if self.dtype == torch.bfloat16 else self.dtype
        low, high = self.spec.domain
        generator = torch.Generator().manual_seed(rows)
        x = torch.rand(rows, 3, 4, generator=generator, dtype=torch.float64) * (high - low) + low
        return x.to(self.dtype).to(dtype)


class Call(torch.nn.Module):
    """A module out of a function of ``x``."""

    def __init__(self, body: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


def plain_session(path: Path, **options: object) -> onnxruntime.InferenceSession:
    """Without the plugin, and without any of our code."""
    settings = onnxruntime.SessionOptions()
    for name, value in options.items():
        setattr(settings, name, value)
    return onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])


def run(session: onnxruntime.InferenceSession, x: torch.Tensor) -> np.ndarray:
    return session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]


def profiled(session: onnxruntime.InferenceSession, x: torch.Tensor) -> list[str]:
    """Operator types the session ran, which must have been made with profiling on."""
    run(session, x)
    file = Path(session.end_profiling())
    events = json.loads(file.read_text())
    file.unlink()
    return [
        event["args"]["op_name"]
        for event in events
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")
    ]


def ran_without_plugin(path: Path, x: torch.Tensor, folder: Path) -> list[str]:
    session = plain_session(
        path, enable_profiling=True, profile_file_prefix=str(folder / "without")
    )
    return profiled(session, x)


def ran_with_plugin(path: Path, x: torch.Tensor, folder: Path) -> list[str]:
    return profiled(myops.ort.session(path, profile=folder / "with"), x)


def our_nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in onnx_model.nodes(model.graph) if node.domain == DOMAIN]


def close(actual: np.ndarray, expected: torch.Tensor, dtype: str) -> None:
    """Within a few rounding errors of the body, which is composed of several operators: relative
    to what it adds up, which is as large as its largest result."""
    # ONNX Runtime's float32 sigmoid is good to some 1e-6.
    tolerance = {"float32": 1e-5, "float64": 1e-13, "float16": 2e-3, "bfloat16": 1.6e-2}[dtype]
    wide = expected.detach().double().numpy()
    size = max(1.0, np.abs(wide).max(initial=0.0))
    np.testing.assert_allclose(
        actual.astype(np.float64), wide, rtol=tolerance, atol=tolerance / 8 * size
    )
