# SPDX-License-Identifier: Apache-2.0
"""The standard nodes that ONNX Runtime runs fastest, as far as its own kernels go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from onnx import NodeProto, TensorProto, helper, numpy_helper

from myops.onnx.functions import BodyBuilder
from myops.onnx.inject.graph import Scope
from myops.spec import OpSpec
from myops.spellings import HAVE_KERNELS

if TYPE_CHECKING:
    from myops.onnx.inject.match import Match
    from myops.onnx.inject.matcher import Matcher
    from myops.onnx.inject.safety import Site

_COMMUTATIVE = ("Add", "Mul", "Max", "Min")


class _Builder(BodyBuilder):
    """Leaves out what multiplies by 1: a coefficient that is not there."""

    def __init__(self, opset: int, compute_type: int, prefix: str) -> None:
        super().__init__(opset, compute_type, prefix)
        self._ones: set[str] = set()

    def constant(self, value: float, element_type: int | None = None) -> str:
        name = super().constant(value, element_type)
        if value == 1.0:
            self._ones.add(name)
        return name

    def node(self, op_type: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        if op_type == "Mul" and output is None and inputs[1] in self._ones:
            return inputs[0]
        return super().node(op_type, *inputs, output=output, **attributes)

    def used(self, results: tuple[str, ...]) -> list[NodeProto]:
        """The nodes that the results need."""
        needed = set(results)
        kept = []
        for node in reversed(self.nodes):
            if needed & set(node.output):
                kept.append(node)
                needed |= set(node.input)
        return kept[::-1]


def nodes(
    spec: OpSpec,
    opset: int,
    element_type: int,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    parameters: Mapping[str, float],
    prefix: str,
) -> list[NodeProto]:
    """The operator in standard nodes.

    Args:
        spec: the operator.
        opset: what they may use.
        element_type: of all tensors.
        inputs, outputs: names of the tensors.
        parameters: our attributes.
        prefix: of the names of inner tensors and nodes.
    """
    builder = _Builder(opset, element_type, prefix)
    attributes = [
        builder.constant(parameters.get(attribute.name, attribute.default))
        for attribute in spec.attributes
    ]
    body = spec.native or spec.body
    if element_type == TensorProto.DOUBLE and spec.body_float64:
        body = spec.body_float64
    results = body(builder, *inputs, *attributes)
    results = (results,) if isinstance(results, str) else tuple(results)
    made = builder.used(results)
    renamed = dict(zip(results, outputs, strict=True))
    for node in made:
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                names[i] = renamed.get(name, name)
    return made


def _structure(
    tensor: str,
    ends: Mapping[str, str],
    producer: Callable[[str], NodeProto | None],
    scalar: Callable[[str], float | None],
) -> str:
    """Equal for computations that differ in names and in the order of operands only."""
    if tensor in ends:
        return ends[tensor]
    value = scalar(tensor)
    if value is not None:
        return f"{value:.6g}"
    node = producer(tensor)
    if node is None:
        return "?"
    below = [_structure(name, ends, producer, scalar) for name in node.input if name]
    if node.op_type in _COMMUTATIVE:
        below.sort()
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type == "HardSigmoid":
        given = {"alpha": 0.2, "beta": 0.5} | given
    plain = (
        f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in sorted(given.items())
    )
    return f"{node.op_type}({','.join(plain)};{','.join(below)})"


def _scalar_of(node: NodeProto | None) -> float | None:
    if node is None or node.op_type != "Constant":
        return None
    array = numpy_helper.to_array(node.attribute[0].t)
    return float(array.reshape(-1)[0]) if array.size == 1 else None


def obstacle(scope: Scope, matcher: Matcher, spec: OpSpec, match: Match, site: Site) -> str:
    """Why standard nodes would not do better than what is there; empty if they may."""
    if site.element_type not in (TensorProto.FLOAT, TensorProto.DOUBLE):
        return "ONNX Runtime has no better spelling in a half type"
    for index in sorted(site.nodes):
        if scope.nodes[index].op_type in HAVE_KERNELS:
            return f"ONNX Runtime has a kernel for {scope.nodes[index].op_type}"
    made = nodes(
        spec,
        scope.opset,
        site.element_type,
        spec.inputs,
        spec.outputs,
        match.parameters,
        "inner/",
    )
    producers = {name: node for node in made for name in node.output}
    # One tensor may stand for several inputs.
    first = [f"input {site.inputs.index(tensor)}" for tensor in site.inputs]
    ends = dict(zip(spec.inputs, first, strict=True))

    def made_scalar(tensor: str) -> float | None:
        return _scalar_of(producers.get(tensor))

    wanted = _structure(spec.outputs[0], ends, producers.get, made_scalar)

    def scalar(tensor: str) -> float | None:
        found = matcher.constant(tensor)
        return None if found is None or found.overridable else found.scalar

    ends = dict(zip(site.inputs, first, strict=True))
    present = _structure(site.outputs[0], ends, scope.producer, scalar)
    if wanted == present:
        return "it is spelled in the fastest standard nodes already"
    return ""
