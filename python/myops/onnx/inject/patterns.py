# SPDX-License-Identifier: Apache-2.0
"""The bodies and spellings of the operators as expressions in a normal form.

Products and sums are flat: ``x / 2 * y`` is the product of ``x`` and ``y`` with the coefficient
0.5, however it was bracketed. That way one spelling stands for all orders of its operands.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from onnx import NodeProto, TensorProto, helper, numpy_helper

from myops.onnx.functions import BodyBuilder
from myops.spec import DOMAIN, SPECS, OpSpec


@dataclass(frozen=True)
class Leaf:
    """An input of the operator: any tensor, the same one wherever the name stands."""

    name: str


@dataclass(frozen=True)
class Parameter:
    """The value of one of our attributes, as the attribute of a node."""

    name: str


@dataclass(frozen=True)
class Result:
    """A second result of the operator: others may read it, too."""

    name: str
    value: Expression


@dataclass(frozen=True)
class Apply:
    """A node with one result."""

    op_type: str
    domain: str
    arguments: tuple[Expression, ...]
    attributes: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Product:
    """``coefficient * parameter * factor ** exponent * ...``; no factors: a scalar constant."""

    factors: tuple[tuple[Expression, int], ...]
    coefficient: float = 1.0
    parameter: str = ""


@dataclass(frozen=True)
class Sum:
    """``constant + parameter + term + ...``."""

    terms: tuple[Expression, ...]
    constant: float = 0.0
    parameter: str = ""


Expression = Leaf | Result | Apply | Product | Sum


@dataclass(frozen=True)
class Pattern:
    """One spelling of one operator."""

    spec: OpSpec
    root: Expression
    roots: frozenset[str]
    size: int


def _product(value: Expression) -> Product:
    return value if isinstance(value, Product) else Product(((value, 1),))


def _simple(product: Product) -> Expression:
    if product.coefficient == 1.0 and not product.parameter and len(product.factors) == 1:
        factor, exponent = product.factors[0]
        if exponent == 1:
            return factor
    return product


def _times(a: Expression, b: Expression, exponent: int = 1) -> Expression:
    left, right = _product(a), _product(b)
    if exponent < 0 and right.parameter:
        raise ValueError("a spelling should not divide by an attribute")
    factors = left.factors + tuple((factor, e * exponent) for factor, e in right.factors)
    coefficient = left.coefficient * right.coefficient**exponent
    return _simple(Product(factors, coefficient, left.parameter or right.parameter))


def _sum(value: Expression) -> Sum:
    if isinstance(value, Sum):
        return value
    if isinstance(value, Product) and not value.factors:
        if value.parameter:
            return Sum((), 0.0, value.parameter)
        return Sum((), value.coefficient)
    return Sum((value,))


def _plus(a: Expression, b: Expression) -> Expression:
    left, right = _sum(a), _sum(b)
    return Sum(
        left.terms + right.terms,
        left.constant + right.constant,
        left.parameter or right.parameter,
    )


def _number(value: Expression) -> float | None:
    if isinstance(value, Product) and not value.factors and not value.parameter:
        return value.coefficient
    return None


def _clip(value: Expression, low: float, high: float) -> Expression:
    return Apply("Clip", "", (value,), (("max", high), ("min", low)))


def _power(value: Expression, exponent: float) -> Expression:
    result = _product(value)
    for _ in range(round(exponent) - 1):
        result = _product(_times(result, value))
    return _simple(result)


def _bounded(inputs: Sequence[Expression]) -> Expression | None:
    """``Min(Max(x, low), high)`` as Clip."""
    inner, high = inputs
    if isinstance(inner, Apply) and inner.op_type == "Max" and _number(high) is not None:
        low = _number(inner.arguments[1])
        if low is not None:
            return _clip(inner.arguments[0], low, float(_number(high) or 0.0))
    return None


def _expression(node: NodeProto, inputs: list[Expression], attributes: set[str]) -> Expression:
    numbers = [_number(value) for value in inputs]
    minus_one = Product((), -1.0)
    op = node.op_type if not node.domain else ""
    if op == "Constant":
        array = numpy_helper.to_array(node.attribute[0].t)
        return Product((), float(array.reshape(-1)[0]))
    if op == "Mul":
        return _times(inputs[0], inputs[1])
    if op == "Div":
        return _times(inputs[0], inputs[1], exponent=-1)
    if op == "Reciprocal":
        return _times(Product(()), inputs[0], exponent=-1)
    if op == "Neg":
        return _times(minus_one, inputs[0])
    if op == "Add":
        return _plus(inputs[0], inputs[1])
    if op == "Sub":
        return _plus(inputs[0], _times(minus_one, inputs[1]))
    if op == "Pow" and numbers[1] in (2.0, 3.0):
        return _power(inputs[0], numbers[1])
    if op == "Clip":
        return _clip(inputs[0], numbers[1] or 0.0, numbers[2] or 0.0)
    if op == "Min":
        clip = _bounded(inputs)
        if clip is not None:
            return clip
    if op == "ReduceMean":
        return Apply("ReduceMean", "", (inputs[0],))
    given = []
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        text = value.decode() if isinstance(value, bytes) else value
        given.append((attribute.name, Parameter(text) if text in attributes else text))
    return Apply(node.op_type, node.domain, tuple(inputs), tuple(sorted(given)))


def _roots(root: Expression) -> frozenset[str]:
    if isinstance(root, Product):
        return frozenset(("Mul", "Div"))
    if isinstance(root, Sum):
        return frozenset(("Add", "Sub"))
    if isinstance(root, Apply):
        return frozenset((root.op_type,))
    raise ValueError("a spelling should end in a node")


def from_spelling(spec: OpSpec, spelling: Callable[..., Any]) -> Pattern:
    """A body or spelling as a pattern."""
    # The opset only decides where ReduceMean has its axes, and the matcher reads both. The type is
    # that of the constants: rounded ones would not be those of a float64 model.
    builder = BodyBuilder(13, TensorProto.DOUBLE)
    names = [attribute.name for attribute in spec.attributes]
    results = spelling(builder, *spec.inputs, *names)
    results = (results,) if isinstance(results, str) else tuple(results)
    values: dict[str, Expression] = {name: Leaf(name) for name in spec.inputs}
    values |= {name: Product((), 1.0, name) for name in names}
    extra = dict(zip(results[1:], spec.outputs[1:], strict=True))
    for node in builder.nodes:
        value = _expression(node, [values[name] for name in node.input], set(names))
        output = node.output[0]
        values[output] = Result(extra[output], value) if output in extra else value
    root = values[results[0]]
    return Pattern(spec, root, _roots(root), len(builder.nodes))


def _of_operator(spec: OpSpec) -> list[Pattern]:
    bodies = [spec.body, *filter(None, [spec.body_float64]), *spec.spellings]
    try:
        return [from_spelling(spec, body) for body in bodies]
    except (ValueError, IndexError, KeyError) as error:
        if spec.namespace == DOMAIN:
            raise
        # Another package's body may be more than the normal form can say.
        warnings.warn(f"inject does not look for {spec.name}: {error}", stacklevel=2)
        return []


# By identity, which the entry keeps from being given to another one.
_known: dict[int, tuple[OpSpec, list[Pattern]]] = {}


def patterns() -> tuple[Pattern, ...]:
    """All spellings of all operators on elements or rows, the longest first."""
    found: list[Pattern] = []
    for spec in SPECS:
        if spec.kind == "custom":
            continue
        if id(spec) not in _known:
            _known[id(spec)] = (spec, _of_operator(spec))
        found += _known[id(spec)][1]
    return tuple(sorted(found, key=lambda pattern: -pattern.size))  # which keeps equals in order
