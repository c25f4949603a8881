# SPDX-License-Identifier: Apache-2.0
"""Small models around our nodes, made without any exporter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import myops.ort
import numpy as np
import onnx
import onnxruntime
import pytest
from myops.onnx import model as onnx_model
from myops.spec import DOMAIN, DOMAIN_VERSION, OpSpec
from onnx import TensorProto, helper

ONNX_TYPES = {name: element_type for element_type, name in onnx_model.DTYPES.items()}

each_dtype = pytest.mark.parametrize("dtype", ONNX_TYPES)

OURS = ((DOMAIN, DOMAIN_VERSION),)


def attributes(spec: OpSpec) -> dict[str, float]:
    """Values that float32 holds, other than the defaults."""
    return {a.name: a.default * 1.75 + 0.125 for a in spec.attributes}


def node(spec: OpSpec, source: str = "x", target: str = "y", **values: object) -> onnx.NodeProto:
    inputs = [source] * len(spec.inputs)
    return helper.make_node(spec.name, inputs, [target], f"{target}_node", domain=DOMAIN, **values)


def info(name: str, element_type: int = TensorProto.FLOAT, shape: Sequence | None = ("N", 4)):
    return helper.make_tensor_value_info(name, element_type, shape)


def untyped(name: str) -> onnx.ValueInfoProto:
    return onnx.ValueInfoProto(name=name)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto] | None = None,
    outputs: Sequence[onnx.ValueInfoProto] | None = None,
    imports: Sequence[tuple[str, int]] = OURS,
    initializers: Sequence[onnx.TensorProto] = (),
) -> bytes:
    graph = helper.make_graph(
        list(nodes),
        "g",
        list(inputs or [info("x")]),
        list(outputs or [info("y")]),
        list(initializers),
    )
    opsets = [helper.make_opsetid("", 18), *(helper.make_opsetid(*entry) for entry in imports)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def by_hand(file: bytes | Path, **options: object) -> onnxruntime.InferenceSession:
    """As a user without our Python package registers the plugin."""
    settings = onnxruntime.SessionOptions()
    settings.register_custom_ops_library(myops.ort.library_path())
    for name, value in options.items():
        setattr(settings, name, value)
    file = file if isinstance(file, bytes) else str(file)
    return onnxruntime.InferenceSession(file, settings, providers=["CPUExecutionProvider"])


def exact(spec: OpSpec, x: np.ndarray, **values: float) -> np.ndarray:
    return spec.reference(
        *[x.astype(np.float64)] * len(spec.inputs), **{**spec.defaults(), **values}
    )
