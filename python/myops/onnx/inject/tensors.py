# SPDX-License-Identifier: Apache-2.0
"""What the matcher asks of single tensors and nodes: constants, equality, what lies behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from onnx import NodeProto, TensorProto

from myops.onnx.inject.constants import Constant, constant
from myops.onnx.inject.graph import Scope, label
from myops.onnx.inject.match import Match, is_op, plain

# Exporters write constants with six digits or more; what is left out there is far below a rounding
# of the result. float64 results would show it.
CONSTANT_TOLERANCE: dict[int, float] = {
    TensorProto.DOUBLE: 1e-12,
    TensorProto.FLOAT16: 1e-3,
    TensorProto.BFLOAT16: 8e-3,
}
FLOAT_TOLERANCE = 2e-6

_MOST_OBSTACLES = 2


class Tensors:
    """The tensors of one scope, seen strictly or leniently."""

    def __init__(self, scope: Scope, base: str = "", lenient: bool = False) -> None:
        self.scope, self.base, self.lenient = scope, base, lenient
        self._constants: dict[str, Constant | None] = {}
        self.tolerance = FLOAT_TOLERANCE
        self.gates = False

    def constant(self, tensor: str) -> Constant | None:
        """The constant behind a tensor, see ``constants``."""
        if tensor not in self._constants:
            self._constants[tensor] = constant(self.scope, tensor, self.base)
        return self._constants[tensor]

    def scalar(self, tensor: str, match: Match) -> tuple[float, Match] | None:
        found = self.constant(tensor)
        if found is None or found.scalar is None:
            return None
        if found.overridable:
            if not self.lenient:
                return None
            match = match.with_obstacle(
                f"a caller may override the initializer {found.overridable!r}"
            )
        return found.scalar, replace(match, rank=max(match.rank, len(found.dims)))

    def equal(self, found: float, wanted: float) -> bool:
        return abs(found - wanted) <= self.tolerance * max(abs(wanted), abs(found))

    def judge(self, match: Match, found: float, wanted: float, what: str) -> Iterator[Match]:
        if self.equal(found, wanted):
            yield match
        elif self.lenient and len(match.obstacles) < _MOST_OBSTACLES:
            yield match.with_obstacle(
                f"constant out of tolerance: {what} is {found:.7g} and should be {wanted:.7g}"
            )

    def bind(self, match: Match, name: str, value: float) -> Iterator[Match]:
        known = match.parameters.get(name)
        if known is None:
            yield replace(match, parameters={**match.parameters, name: value})
        elif self.equal(value, known):
            yield match

    def same(self, a: str, b: str) -> bool:
        """Whether two tensors are equal because they are made alike."""
        a, b = self.below_identities(a), self.below_identities(b)
        if a == b:
            return True
        left, right = self.scope.producer(a), self.scope.producer(b)
        return (
            left is not None
            and right is not None
            and left.op_type in ("Cast", "DequantizeLinear")
            and left.op_type == right.op_type
            and list(left.input) == list(right.input)
            and list(left.attribute) == list(right.attribute)
        )

    def below_identities(self, tensor: str) -> str:
        node = self.scope.producer(tensor)
        while node is not None and is_op(node, "Identity"):
            tensor = node.input[0]
            node = self.scope.producer(tensor)
        return tensor

    def below_casts(self, tensor: str) -> str:
        node = self.scope.producer(tensor)
        while node is not None and is_op(node, "Identity", "Cast"):
            tensor = node.input[0]
            node = self.scope.producer(tensor)
        return tensor

    def through(self, tensor: str, match: Match) -> Iterator[tuple[str, Match]]:
        """The tensor before an Identity, a Cast or, leniently, a quantization."""
        index = self.scope.producers.get(tensor)
        if index is None:
            return
        node = self.scope.nodes[index]
        if is_op(node, "Identity"):
            yield node.input[0], match.with_node(index)
        elif is_op(node, "Cast"):
            yield node.input[0], match.with_cast(index)
        elif self.lenient and is_op(node, "DequantizeLinear"):
            before = self.scope.producers.get(node.input[0])
            if before is not None and is_op(self.scope.nodes[before], "QuantizeLinear"):
                inside = match.with_node(index).with_node(before)
                name = label(self.scope.nodes[before])
                yield (
                    self.scope.nodes[before].input[0],
                    inside.with_obstacle(f"quantized inside, by node {name!r}"),
                )

    def over_last_dim(self, node: NodeProto) -> bool:
        given = {a.name: plain(a) for a in node.attribute}
        axes = given.get("axes")
        if axes is None and len(node.input) > 1:
            found = self.constant(node.input[1])
            axes = None if found is None or found.value is None else found.value.tolist()
        if axes is None or len(axes) != 1 or given.get("keepdims", 1) != 1:
            return False
        dims = self.scope.dims_of(node.input[0])
        return axes[0] == -1 or (dims is not None and axes[0] == len(dims) - 1)

    def bounds(
        self, node: NodeProto, match: Match
    ) -> tuple[str, dict[str, float | None], Match] | None:
        """What a node bounds, and by which ``min`` and ``max``; one of several nodes goes on to
        the next."""
        given: dict[str, float | None] = {"min": None, "max": None}
        if is_op(node, "Clip"):
            for attribute in node.attribute:
                given[attribute.name] = attribute.f
            for name, tensor in zip(("min", "max"), node.input[1:], strict=False):
                value = self.scalar(tensor, match) if tensor else None
                if value is not None:
                    given[name], match = value
            return node.input[0], given, match
        if is_op(node, "Relu"):
            given["min"] = 0.0
            return node.input[0], given, match
        if not is_op(node, "Min", "Max") or len(node.input) != 2:
            return None
        name = node.op_type.lower()
        bound = "max" if name == "min" else "min"
        for tensor, other in (tuple(node.input), tuple(node.input)[::-1]):
            value = self.scalar(other, match)
            if value is None:
                continue
            given[bound], match = value
            index = self.scope.producers.get(tensor)
            if index is not None and given["min" if bound == "max" else "max"] is None:
                below = self.bounds(self.scope.nodes[index], match.with_node(index))
                if below is not None and below[1][bound] is None:
                    return below[0], {**below[1], bound: given[bound]}, below[2]
            return tensor, given, match
        return None
