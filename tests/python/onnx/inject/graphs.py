# SPDX-License-Identifier: Apache-2.0
"""Small models as text, and what an injection makes of them."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import myops.ort
import numpy as np
import onnx
from myops.onnx import inject
from myops.onnx import model as onnx_model
from myops.onnx.inject import Report
from myops.spec import DOMAIN

SHAPE = "float[2,3]"


SCALARS = {
    "zero": 0.0,
    "one": 1.0,
    "half": 0.5,
    "two": 2.0,
    "three": 3.0,
    "minus3": -3.0,
    "six": 6.0,
    "sixth": 0.16666667,
    "twenty": 20.0,
    "b": 1.702,
    "root": 1.4142135,
    "cube": 0.044715,
    "scale": 0.7978846,
}


def scalars(body: str, kind: str = "float") -> str:
    """Initializers for those names of ``SCALARS`` that nodes read."""
    read = set(re.findall(r"\w+", body))
    return ", ".join(f"{kind} {n} = {{{v}}}" for n, v in SCALARS.items() if n in read)


def parse(
    body: str,
    inputs: str = f"{SHAPE} x",
    outputs: str = f"{SHAPE} y",
    opset: int = 17,
    ir_version: int = 8,
    initializers: str = "",
    imports: str = "",
    functions: str = "",
) -> onnx.ModelProto:
    """A model around nodes in ONNX's text form."""
    held = f" <{initializers}>" if initializers else ""
    text = (
        f'<ir_version: {ir_version}, opset_import: ["" : {opset}{imports}]>\n'
        f"g ({inputs}) => ({outputs}){held}\n{{\n{body}\n}}\n{functions}"
    )
    return onnx.parser.parse_model(text)


def ours(model: onnx.ModelProto) -> Counter[str]:
    """The myops nodes by operator."""
    return Counter(node.op_type for node in onnx_model.our_nodes(model))


def ops(model: onnx.ModelProto) -> list[str]:
    """The types of the nodes of the main graph, in order."""
    return [
        f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        for node in model.graph.node
    ]


def run(
    model: onnx.ModelProto,
    feeds: dict[str, Any],
    plugin: bool | None = None,
    level: str | None = None,
) -> list[Any]:
    session = myops.ort.session(
        model.SerializeToString(), plugin=plugin, graph_optimization_level=level
    )
    return session.run(None, feeds)


def custom(model: onnx.ModelProto, **options: Any) -> tuple[onnx.ModelProto, Report]:
    """``inject`` with target "custom", which compares the outputs itself; checks on top that the
    model given did not change and that the result holds a function for each of our nodes."""
    before = model.SerializeToString()
    result, report = inject(model, target="custom", **options)
    assert model.SerializeToString() == before
    functions = {f.name for f in result.functions if f.domain == DOMAIN}
    assert set(ours(result)) <= functions
    return result, report


def skipped(report: Report, operator: str) -> list[str]:
    """The reasons why places of an operator were left alone."""
    return [r.reason for r in report.rows if r.operator == operator and r.decision == "skipped"]


def beta(model: onnx.ModelProto) -> float:
    """The attribute of the one myops node."""
    (node,) = onnx_model.our_nodes(model)
    (attribute,) = node.attribute
    return float(np.float32(attribute.f))
