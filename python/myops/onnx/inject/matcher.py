# SPDX-License-Identifier: Apache-2.0
"""Finds the patterns in a scope, by edges alone.

A match may go through Identity, and through Cast, which it records: the caller decides what that
means for the values. A *lenient* match also goes where a replacement would be wrong, and names the
obstacle; it is for the report only.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from onnx import NodeProto

from myops.onnx.inject.graph import label
from myops.onnx.inject.match import DEFAULT_DOMAINS, Match, defaults, is_op, plain
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
from myops.onnx.inject.tensors import CONSTANT_TOLERANCE, FLOAT_TOLERANCE, Tensors

_COMMUTATIVE = ("Max", "Min")

Factors = tuple[tuple[Expression, int], ...]


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


class Matcher(Tensors):
    """Matches patterns in one scope."""

    def matches(self, pattern: Pattern, index: int) -> Iterator[Match]:
        """All matches whose last node is the one at ``index``."""
        node = self.scope.nodes[index]
        output = node.output[0]
        kind = self.scope.type_of(output)
        self.tolerance = CONSTANT_TOLERANCE.get(kind, FLOAT_TOLERANCE)
        self.gates = self.lenient and len(pattern.spec.inputs) == 1
        for match in self._match(pattern.root, output, Match()):
            if set(pattern.spec.inputs) <= set(match.leaves):
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
                    yield from self.bind(found, wanted.parameter, total - wanted.constant)
                else:
                    yield from self.judge(found, total, wanted.constant, "a summand")
        else:
            yield from self._apply(wanted, tensor, match)

    def _leaf(self, wanted: Leaf, tensor: str, match: Match) -> Iterator[Match]:
        known = match.leaves.get(wanted.name)
        tensor = self.below_identities(tensor)
        if known is None:
            found = self.constant(tensor)
            if found is None or found.scalar is None or found.overridable:
                yield replace(match, leaves={**match.leaves, wanted.name: tensor})
            return
        if self.same(known, tensor):
            yield match
            return
        bottom = self.below_casts(known)
        if bottom == self.below_casts(tensor):
            casts = match.casts | {-1}
            yield replace(match, leaves={**match.leaves, wanted.name: bottom}, casts=casts)
        elif self.gates and not match.obstacles:
            yield match.with_obstacle(f"a gate: {known!r} and {tensor!r} are different tensors")

    # Nodes

    def _apply(self, wanted: Apply, tensor: str, match: Match) -> Iterator[Match]:
        for below, passed in self.through(tensor, match):
            yield from self._apply(wanted, below, passed)
        index = self.scope.producers.get(tensor)
        if index is None:
            return
        node = self.scope.nodes[index]
        inside = match.with_node(index)
        if wanted.op_type == "Clip" and not wanted.domain:
            yield from self._clip(wanted, node, inside)
            return
        if wanted.op_type == "Sqrt" and is_op(node, "Pow"):
            power = self.scalar(node.input[1], inside)
            if power is not None and self.equal(power[0], 0.5):
                yield from self._match(wanted.arguments[0], node.input[0], power[1])
            return
        domains = DEFAULT_DOMAINS if not wanted.domain else (wanted.domain,)
        if node.op_type != wanted.op_type or node.domain not in domains:
            return
        inputs = list(node.input)
        while inputs and not inputs[-1]:
            inputs.pop()
        if wanted.op_type == "ReduceMean":
            if self.over_last_dim(node):
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
        absent = defaults(wanted.op_type, wanted.domain, self.scope.opset)
        given = absent | {a.name: plain(a) for a in node.attribute}
        expected = dict(wanted.attributes)
        for name, value in given.items():
            if name not in expected and value != absent.get(name):
                return
        found = [match]
        for name, value in expected.items():
            actual = given.get(name)
            if isinstance(value, Parameter):
                if actual is None:
                    return
                found = [m for f in found for m in self.bind(f, value.name, float(actual))]
            elif isinstance(value, float):
                if actual is None:
                    return
                what = f"{name} of {label(node)!r}"
                found = [m for f in found for m in self.judge(f, float(actual), value, what)]
            elif actual != value:
                return
        yield from found

    def _clip(self, wanted: Apply, node: NodeProto, match: Match) -> Iterator[Match]:
        bounds = self.bounds(node, match)
        if bounds is None:
            return
        inner, given, found = bounds
        expected = dict(wanted.attributes)
        if None in given.values():
            return
        states = [found]
        for name, value in expected.items():
            what = f"{name} of {label(node)!r}"
            states = [m for s in states for m in self.judge(s, given[name] or 0.0, value, what)]
        for state in states:
            yield from self._match(wanted.arguments[0], inner, state)

    # Products and sums

    def _whole_product(self, wanted: Product, tensor: str, match: Match) -> Iterator[Match]:
        if not wanted.factors:
            value = self.scalar(tensor, match)
            found = [] if value is None else [(value[1], value[0])]
        else:
            found = list(self._factors(wanted.factors, tensor, match))
        for state, coefficient in found:
            if wanted.parameter:
                yield from self.bind(state, wanted.parameter, coefficient / wanted.coefficient)
            else:
                yield from self.judge(state, coefficient, wanted.coefficient, "a factor")

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
            for below, passed in self.through(tensor, match):
                yield from self._factors(factors, below, passed)
        inside = match.with_node(index)
        if is_op(node, "Mul"):
            a, b = node.input
            for operand, other in ((a, b), (b, a)):
                value = self.scalar(other, inside)
                if value is not None:
                    for found, rest in self._factors(factors, operand, value[1]):
                        yield found, rest * value[0]
            yield from self._two_products(factors, a, b, 1, inside)
        elif is_op(node, "Div"):
            a, b = node.input
            value = self.scalar(b, inside)
            if value is not None and value[0]:
                for found, rest in self._factors(factors, a, value[1]):
                    yield found, rest / value[0]
            value = self.scalar(a, inside)
            if value is not None:
                for found, rest in self._factors(_inverse(factors), b, value[1]):
                    if rest:
                        yield found, value[0] / rest
            yield from self._two_products(factors, a, b, -1, inside)
        elif is_op(node, "Neg"):
            for found, rest in self._factors(factors, node.input[0], inside):
                yield found, -rest
        elif is_op(node, "Reciprocal"):
            for found, rest in self._factors(_inverse(factors), node.input[0], inside):
                if rest:
                    yield found, 1.0 / rest
        elif is_op(node, "Pow"):
            yield from self._power(factors, node, inside)

    def _power(
        self, factors: Factors, node: NodeProto, inside: Match
    ) -> Iterator[tuple[Match, float]]:
        value = self.scalar(node.input[1], inside)
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
            for below, passed in self.through(tensor, match):
                yield from self._terms(terms, sign, below, passed)
        inside = match.with_node(index)
        if is_op(node, "Neg"):
            for found, rest in self._terms(terms, -sign, node.input[0], inside):
                yield found, -rest
        if not is_op(node, "Add", "Sub"):
            return
        a, b = node.input
        second = 1.0 if node.op_type == "Add" else -1.0
        value = self.scalar(b, inside)
        if value is not None:
            for found, rest in self._terms(terms, sign, a, value[1]):
                yield found, rest + second * value[0]
        value = self.scalar(a, inside)
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
