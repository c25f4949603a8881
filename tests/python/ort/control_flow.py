# SPDX-License-Identifier: Apache-2.0
"""A model with our nodes in the main graph, in an If inside a Loop, and nodes without a name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from myops.onnx import add_functions
from myops.spec import DOMAIN, DOMAIN_VERSION
from onnx import TensorProto, helper

ITERATIONS = 3
ELEMENTS = 65_536


def _info(name: str, element_type: int = TensorProto.FLOAT, shape=("N",)):
    return helper.make_tensor_value_info(name, element_type, shape)


def _ours(source: str, target: str, name: str = "") -> onnx.NodeProto:
    return helper.make_node("Swish", [source], [target], name, domain=DOMAIN, beta=1.5)


def model() -> onnx.ModelProto:
    """``swish`` of x, then three times ``swish`` (if ``c``) or Relu, with an unnamed Loop, If and
    inner nodes."""
    node = helper.make_node
    then = helper.make_graph([_ours("v", "t")], "then", [], [_info("t")])
    other = helper.make_graph([node("Relu", ["v"], ["e"])], "else", [], [_info("e")])
    body = helper.make_graph(
        [
            node("Identity", ["go"], ["go_on"]),
            node("If", ["c"], ["w"], then_branch=then, else_branch=other),
        ],
        "body",
        [_info("i", TensorProto.INT64, []), _info("go", TensorProto.BOOL, []), _info("v")],
        [_info("go_on", TensorProto.BOOL, []), _info("w")],
    )
    graph = helper.make_graph(
        [
            _ours("x", "first", "outer"),
            node("Loop", ["n", "", "first"], ["y"], body=body),
        ],
        "g",
        [_info("x"), _info("c", TensorProto.BOOL, []), _info("n", TensorProto.INT64, [])],
        [_info("y")],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, DOMAIN_VERSION)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    add_functions(proto)
    onnx.checker.check_model(proto, full_check=True)
    return proto


def inputs(condition: bool = True) -> dict[str, np.ndarray]:
    return {
        "x": np.linspace(-4, 4, ELEMENTS, dtype=np.float32),
        "c": np.array(condition),
        "n": np.array(ITERATIONS),
    }


def saved(folder: Path) -> Path:
    path = folder / "flow.onnx"
    onnx.save(model(), str(path))
    return path
