# SPDX-License-Identifier: Apache-2.0
"""Finds the patterns in a scope, by edges alone.

A match may go through Identity, and through Cast, which it records: the caller decides what that
means for the values. A *lenient* match also goes where a replacement would be wrong, and names the
obstacle; it is for the report only.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import onnx
from onnx import NodeProto, TensorProto, helper

from myops.onnx.inject.constants import Constant, constant
from myops.onnx.inject.graph import Scope, label
from myops.onnx.inject.patterns import (
    Apply,
    Expression,
    Leaf,
    Parameter,
    Pattern,
    Product,
    Result,
    Sum,
)
from myops.spellings import ABSENT_ATTRIBUTES

# Exporters write constants with six digits or more; what is left out there is far below a rounding
# of the result. float64 results would show it.
CONSTANT_TOLERANCE = {
    TensorProto.DOUBLE: 1e-12,
    TensorProto.FLOAT16: 1e-3,
    TensorProto.BFLOAT16: 8e-3,
}
_FLOAT_TOLERANCE = 2e-6

_COMMUTATIVE = ("Max", "Min")
_DEFAULT_DOMAINS = ("", "ai.onnx")
_MOST_OBSTACLES = 2

Factors = tuple[tuple[Expression, int], ...]


@dataclass(frozen=True)
class Match:
    """What a pattern stands for in a scope.

    Attributes:
        leaves: input of the operator -> tensor.
        parameters: attribute -> value.
        results: second result of the operator -> tensor.
        nodes: indices of the nodes it covers.
        casts: those of them that cast between its nodes.
        rank: the highest rank of its constants.
        obstacles: why it must not be replaced; empty unless lenient.
    """

    leaves: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, float] = field(default_factory=dict)
    results: Mapping[str, str] = field(default_factory=dict)
    nodes: frozenset[int] = frozenset()
    casts: frozenset[int] = frozenset()
    rank: int = 0
    obstacles: tuple[str, ...] = ()

    def with_node(self, index: int) -> Match:
        return replace(self, nodes=self.nodes | {index})

    def with_cast(self, index: int) -> Match:
        return replace(self, nodes=self.nodes | {index}, casts=self.casts | {index})

    def with_obstacle(self, text: str) -> Match:
        return replace(self, obstacles=tuple(dict.fromkeys((*self.obstacles, text))))


@functools.lru_cache(maxsize=4096)
def _defaults(op_type: str, domain: str, opset: int) -> dict[str, Any]:
    found: dict[str, Any] = dict(ABSENT_ATTRIBUTES.get((domain, op_type), {}))
    try:
        schema = onnx.defs.get_schema(op_type, opset, domain)
    except Exception:  # onnx has an exception of its own that older versions do not export
        return found
    for name, attribute in schema.attributes.items():
        if attribute.default_value.type:
            found[name] = _plain(attribute.default_value)
    return found


def _plain(attribute: onnx.AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    return value.decode() if isinstance(value, bytes) else value


def _splits(factors: Sequence[Any]) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """All ways to deal the factors out to two operands, each of which gets one."""
    indices = range(len(factors))
    for count in range(1, len(factors)):
        for chosen in itertools.combinations(indices, count):
            rest = tuple(factors[i] for i in indices if i not in chosen)
            yield tuple(factors[i] for i in chosen), rest


def _inverse(factors: Factors) -> Factors:
    return tuple((factor, -exponent) for factor, exponent in factors)


def _vague(parts: Sequence[Any]) -> bool:
    """Whether every part is an input, which any tensor can be."""
    return all(isinstance(p[0] if isinstance(p, tuple) else p, Leaf) for p in parts)


class Matcher:
    """Matches patterns in one scope."""

    def __init__(self, scope: Scope, base: str = "", lenient: bool = False) -> None:
        self.scope, self.base, self.lenient = scope, base, lenient
        self._constants: dict[str, Constant | None] = {}
        self._tolerance = _FLOAT_TOLERANCE
        self._gates = False

    def matches(self, pattern: Pattern, index: int) -> Iterator[Match]:
        """All matches whose last node is the one at ``index``."""
        node = self.scope.nodes[index]
        output = node.output[0]
        kind = self.scope.type_of(output)
        self._tolerance = CONSTANT_TOLERANCE.get(kind, _FLOAT_TOLERANCE)
        self._gates = self.lenient and len(pattern.spec.inputs) == 1
        for match in self._match(pattern.root, output, Match()):
            if set(pattern.spec.inputs) <= set(match.leaves):
                yield match

    # Constants

    def constant(self, tensor: str) -> Constant | None:
        """The constant behind a tensor, see ``constants``."""
        if tensor not in self._constants:
            self._constants[tensor] = constant(self.scope, tensor, self.base)
        return self._constants[tensor]

    def _scalar(self, tensor: str, match: Match) -> tuple[float, Match] | None:
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

    def _equal(self, found: float, wanted: float) -> bool:
        return abs(found - wanted) <= self._tolerance * max(abs(wanted), abs(found))

    def _judge(self, match: Match, found: float, wanted: float, what: str) -> Iterator[Match]:
        if self._equal(found, wanted):
            yield match
        elif self.lenient and len(match.obstacles) < _MOST_OBSTACLES:
            yield match.with_obstacle(
                f"constant out of tolerance: {what} is {found:.7g} and should be {wanted:.7g}"
            )

    def _bind(self, match: Match, name: str, value: float) -> Iterator[Match]:
        known = match.parameters.get(name)
        if known is None:
            yield replace(match, parameters={**match.parameters, name: value})
        elif self._equal(value, known):
            yield match

    # Expressions

    def _match(self, wanted: Expression, tensor: str, match: Match) -> Iterator[Match]:
        if isinstance(wanted, Leaf):
            yield from self._leaf(wanted, tensor, match)
        elif isinstance(wanted, Result):
            known = match.results.get(wanted.name)
            if known == tensor:
                yield match
            elif known is None:
                named = replace(match, results={**match.results, wanted.name: tensor})
                yield from self._match(wanted.value, tensor, named)
        elif isinstance(wanted, Product):
            yield from self._whole_product(wanted, tensor, match)
        elif isinstance(wanted, Sum):
            for found, total in self._terms(wanted.terms, 1.0, tensor, match):
                if wanted.parameter:
                    yield from self._bind(found, wanted.parameter, total - wanted.constant)
                else:
                    yield from self._judge(found, total, wanted.constant, "a summand")
        else:
            yield from self._apply(wanted, tensor, match)

    def _leaf(self, wanted: Leaf, tensor: str, match: Match) -> Iterator[Match]:
        known = match.leaves.get(wanted.name)
        if known is None:
            found = self.constant(tensor)
            if found is None or found.scalar is None or found.overridable:
                yield replace(match, leaves={**match.leaves, wanted.name: tensor})
            return
        if self._same(known, tensor):
            yield match
            return
        bottom = self._below_casts(known)
        if bottom == self._below_casts(tensor):
            casts = match.casts | {-1}
            yield replace(match, leaves={**match.leaves, wanted.name: bottom}, casts=casts)
        elif self._gates and not match.obstacles:
            yield match.with_obstacle(
                f"a gate: {known!r} and {tensor!r} are different tensors"
            )

    def _same(self, a: str, b: str) -> bool:
        """Whether two tensors are equal because they are made alike."""
        a, b = self._below_identities(a), self._below_identities(b)
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

    def _below_identities(self, tensor: str) -> str:
        node = self.scope.producer(tensor)
        while node is not None and self._is(node, "Identity"):
            tensor = node.input[0]
            node = self.scope.producer(tensor)
        return tensor

    def _below_casts(self, tensor: str) -> str:
        node = self.scope.producer(tensor)
        while node is not None and self._is(node, "Identity", "Cast"):
            tensor = node.input[0]
            node = self.scope.producer(tensor)
        return tensor

    @staticmethod
    def _is(node: NodeProto, *op_types: str) -> bool:
        return node.domain in _DEFAULT_DOMAINS and node.op_type in op_types

    def _through(self, tensor: str, match: Match) -> Iterator[tuple[str, Match]]:
        """The tensor before an Identity, a Cast or, leniently, a quantization."""
        index = self.scope.producers.get(tensor)
        if index is None:
            return
        node = self.scope.nodes[index]
        if self._is(node, "Identity"):
            yield node.input[0], match.with_node(index)
        elif self._is(node, "Cast"):
            yield node.input[0], match.with_cast(index)
        elif self.lenient and self._is(node, "DequantizeLinear"):
            before = self.scope.producers.get(node.input[0])
            if before is not None and self._is(self.scope.nodes[before], "QuantizeLinear"):
                inside = match.with_node(index).with_node(before)
                name = label(self.scope.nodes[before])
                yield (
                    self.scope.nodes[before].input[0],
                    inside.with_obstacle(f"quantized inside, by node {name!r}"),
                )

    # Nodes

    def _apply(self, wanted: Apply, tensor: str, match: Match) -> Iterator[Match]:
        for below, passed in self._through(tensor, match):
            yield from self._apply(wanted, below, passed)
        index = self.scope.producers.get(tensor)
        if index is None:
            return
        node = self.scope.nodes[index]
        inside = match.with_node(index)
        if wanted.op_type == "Clip" and not wanted.domain:
            yield from self._clip(wanted, node, inside)
            return
        if wanted.op_type == "Sqrt" and self._is(node, "Pow"):
            power = self._scalar(node.input[1], inside)
            if power is not None and self._equal(power[0], 0.5):
                yield from self._match(wanted.arguments[0], node.input[0], power[1])
            return
        domains = _DEFAULT_DOMAINS if not wanted.domain else (wanted.domain,)
        if node.op_type != wanted.op_type or node.domain not in domains:
            return
        inputs = list(node.input)
        while inputs and not inputs[-1]:
            inputs.pop()
        if wanted.op_type == "ReduceMean":
            if self._over_last_dim(node):
                yield from self._match(wanted.arguments[0], inputs[0], inside)
            return
        if len(inputs) != len(wanted.arguments) or not all(inputs):
            return
        orders = (
            itertools.permutations(inputs) if wanted.op_type in _COMMUTATIVE else iter([inputs])
        )
        for order in orders:
            for found in self._attributes(wanted, node, inside):
                yield from self._arguments(wanted.arguments, tuple(order), found)

    def _arguments(
        self, wanted: tuple[Expression, ...], tensors: tuple[str, ...], match: Match
    ) -> Iterator[Match]:
        if not wanted:
            yield match
            return
        for found in self._match(wanted[0], tensors[0], match):
            yield from self._arguments(wanted[1:], tensors[1:], found)

    def _attributes(self, wanted: Apply, node: NodeProto, match: Match) -> Iterator[Match]:
        if any(attribute.ref_attr_name for attribute in node.attribute):
            return
        defaults = _defaults(wanted.op_type, wanted.domain, self.scope.opset)
        given = defaults | {a.name: _plain(a) for a in node.attribute}
        expected = dict(wanted.attributes)
        for name, value in given.items():
            if name not in expected and value != defaults.get(name):
                return
        found = [match]
        for name, value in expected.items():
            actual = given.get(name)
            if isinstance(value, Parameter):
                if actual is None:
                    return
                found = [m for f in found for m in self._bind(f, value.name, float(actual))]
            elif isinstance(value, float):
                if actual is None:
                    return
                what = f"{name} of {label(node)!r}"
                found = [m for f in found for m in self._judge(f, float(actual), value, what)]
            elif actual != value:
                return
        yield from found

    def _over_last_dim(self, node: NodeProto) -> bool:
        given = {a.name: _plain(a) for a in node.attribute}
        axes = given.get("axes")
        if axes is None and len(node.input) > 1:
            found = self.constant(node.input[1])
            axes = None if found is None or found.value is None else found.value.tolist()
        if axes is None or len(axes) != 1 or given.get("keepdims", 1) != 1:
            return False
        dims = self.scope.dims_of(node.input[0])
        return axes[0] == -1 or (dims is not None and axes[0] == len(dims) - 1)

    def _clip(self, wanted: Apply, node: NodeProto, match: Match) -> Iterator[Match]:
        bounds = self._bounds(node, match)
        if bounds is None:
            return
        inner, given, found = bounds
        expected = dict(wanted.attributes)
        if None in given.values():
            return
        states = [found]
        for name, value in expected.items():
            what = f"{name} of {label(node)!r}"
            states = [m for s in states for m in self._judge(s, given[name] or 0.0, value, what)]
        for state in states:
            yield from self._match(wanted.arguments[0], inner, state)

    def _bounds(
        self, node: NodeProto, match: Match
    ) -> tuple[str, dict[str, float | None], Match] | None:
        """What a node bounds, and by which ``min`` and ``max``; one of several nodes goes on to
        the next."""
        given: dict[str, float | None] = {"min": None, "max": None}
        if self._is(node, "Clip"):
            for attribute in node.attribute:
                given[attribute.name] = attribute.f
            for name, tensor in zip(("min", "max"), node.input[1:], strict=False):
                value = self._scalar(tensor, match) if tensor else None
                if value is not None:
                    given[name], match = value
            return node.input[0], given, match
        if self._is(node, "Relu"):
            given["min"] = 0.0
            return node.input[0], given, match
        if not self._is(node, "Min", "Max") or len(node.input) != 2:
            return None
        name = node.op_type.lower()
        bound = "max" if name == "min" else "min"
        for tensor, other in (tuple(node.input), tuple(node.input)[::-1]):
            value = self._scalar(other, match)
            if value is None:
                continue
            given[bound], match = value
            index = self.scope.producers.get(tensor)
            if index is not None and given["min" if bound == "max" else "max"] is None:
                below = self._bounds(self.scope.nodes[index], match.with_node(index))
                if below is not None and below[1][bound] is None:
                    return below[0], {**below[1], bound: given[bound]}, below[2]
            return tensor, given, match
        return None

    # Products and sums

    def _whole_product(self, wanted: Product, tensor: str, match: Match) -> Iterator[Match]:
        if not wanted.factors:
            value = self._scalar(tensor, match)
            found = [] if value is None else [(value[1], value[0])]
        else:
            found = list(self._factors(wanted.factors, tensor, match))
        for state, coefficient in found:
            if wanted.parameter:
                yield from self._bind(state, wanted.parameter, coefficient / wanted.coefficient)
            else:
                yield from self._judge(state, coefficient, wanted.coefficient, "a factor")

    def _factors(
        self, factors: Factors, tensor: str, match: Match
    ) -> Iterator[tuple[Match, float]]:
        """Matches a product; yields the constant factor that is left over."""
        alone = len(factors) == 1 and factors[0][1] == 1
        if alone:
            for found in self._match(factors[0][0], tensor, match):
                yield found, 1.0
        index = self.scope.producers.get(tensor)
        if index is None:
            return
        node = self.scope.nodes[index]
        if not alone:
            for below, passed in self._through(tensor, match):
                yield from self._factors(factors, below, passed)
        inside = match.with_node(index)
        if self._is(node, "Mul"):
            a, b = node.input
            for operand, other in ((a, b), (b, a)):
                value = self._scalar(other, inside)
                if value is not None:
                    for found, rest in self._factors(factors, operand, value[1]):
                        yield found, rest * value[0]
            yield from self._two_products(factors, a, b, 1, inside)
        elif self._is(node, "Div"):
            a, b = node.input
            value = self._scalar(b, inside)
            if value is not None and value[0]:
                for found, rest in self._factors(factors, a, value[1]):
                    yield found, rest / value[0]
            value = self._scalar(a, inside)
            if value is not None:
                for found, rest in self._factors(_inverse(factors), b, value[1]):
                    if rest:
                        yield found, value[0] / rest
            yield from self._two_products(factors, a, b, -1, inside)
        elif self._is(node, "Neg"):
            for found, rest in self._factors(factors, node.input[0], inside):
                yield found, -rest
        elif self._is(node, "Reciprocal"):
            for found, rest in self._factors(_inverse(factors), node.input[0], inside):
                if rest:
                    yield found, 1.0 / rest
        elif self._is(node, "Pow"):
            yield from self._power(factors, node, inside)

    def _power(
        self, factors: Factors, node: NodeProto, inside: Match
    ) -> Iterator[tuple[Match, float]]:
        value = self._scalar(node.input[1], inside)
        if value is None:
            return
        exponent, state = value
        if exponent in (2.0, 3.0) and len(factors) == exponent and len(set(factors)) == 1:
            for found, rest in self._factors(factors[:1], node.input[0], state):
                yield found, rest**exponent
        elif exponent == -1.0:
            for found, rest in self._factors(_inverse(factors), node.input[0], state):
                if rest:
                    yield found, 1.0 / rest
        elif exponent == -0.5 and len(factors) == 1 and factors[0][1] == -1:
            factor = factors[0][0]
            if isinstance(factor, Apply) and factor.op_type == "Sqrt":
                for found in self._match(factor.arguments[0], node.input[0], state):
                    yield found, 1.0

    def _two_products(
        self, factors: Factors, a: str, b: str, exponent: int, match: Match
    ) -> Iterator[tuple[Match, float]]:
        for left, right in _splits(factors):
            second = right if exponent == 1 else _inverse(right)
            # What is told apart by its nodes goes first: an input would match anything.
            first, then = ((left, a, 1), (second, b, exponent))
            if _vague(left):
                first, then = then, first
            for found, one in self._factors(first[0], first[1], match):
                for both, two in self._factors(then[0], then[1], found):
                    if one and two:
                        yield both, one ** first[2] * two ** then[2]

    def _terms(
        self, terms: tuple[Expression, ...], sign: float, tensor: str, match: Match
    ) -> Iterator[tuple[Match, float]]:
        """Matches a sum of terms times ``sign``; yields the constant that is left over."""
        if len(terms) == 1:
            product = terms[0] if isinstance(terms[0], Product) else Product(((terms[0], 1),))
            signed = replace(product, coefficient=sign * product.coefficient)
            for found in self._whole_product(signed, tensor, match):
                yield found, 0.0
        index = self.scope.producers.get(tensor)
        if index is None:
            return
        node = self.scope.nodes[index]
        if len(terms) > 1:
            for below, passed in self._through(tensor, match):
                yield from self._terms(terms, sign, below, passed)
        inside = match.with_node(index)
        if self._is(node, "Neg"):
            for found, rest in self._terms(terms, -sign, node.input[0], inside):
                yield found, -rest
        if not self._is(node, "Add", "Sub"):
            return
        a, b = node.input
        second = 1.0 if node.op_type == "Add" else -1.0
        value = self._scalar(b, inside)
        if value is not None:
            for found, rest in self._terms(terms, sign, a, value[1]):
                yield found, rest + second * value[0]
        value = self._scalar(a, inside)
        if value is not None:
            for found, rest in self._terms(terms, sign * second, b, value[1]):
                yield found, value[0] + second * rest
        for left, right in _splits(terms):
            first, then = ((left, a, 1.0), (right, b, second))
            if _vague(left):
                first, then = then, first
            for found, one in self._terms(first[0], sign * first[2], first[1], match):
                for both, two in self._terms(then[0], sign * then[2], then[1], found):
                    with_root = both.with_node(index)
                    yield with_root, first[2] * one + then[2] * two
