# SPDX-License-Identifier: Apache-2.0
"""Small models with our nodes, built without an exporter."""

from __future__ import annotations

import onnx
from myops.spec import DOMAIN, DOMAIN_VERSION
from onnx import helper

from .support import ONNX_TYPES, attributes


def info(name: str, dtype: str, shape: tuple = ("N",)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, ONNX_TYPES[dtype], shape)


def our_node(spec, source: str, target: str, **values: float) -> onnx.NodeProto:
    return helper.make_node(
        spec.name, [source] * len(spec.inputs), [target], f"{target}_node", domain=DOMAIN, **values
    )


def model_of(nodes, inputs, outputs, opset: int = 18, initializers=()) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers))
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, DOMAIN_VERSION)]
    model = helper.make_model(graph, opset_imports=imports)
    model.ir_version = helper.find_min_ir_version_for([imports[0]])
    return model


def typed_model(spec, dtypes: tuple[str, ...], opset: int) -> onnx.ModelProto:
    return model_of(
        [our_node(spec, f"x_{d}", f"y_{d}", **attributes(spec)) for d in dtypes],
        [info(f"x_{d}", d) for d in dtypes],
        [info(f"y_{d}", d) for d in dtypes],
        opset,
    )
