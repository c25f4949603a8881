# SPDX-License-Identifier: Apache-2.0
"""How exporters and people spell the operators in ONNX, besides the ``body`` of the ``OpSpec``.

Each spelling is written like a body: ``spelling(op, *inputs, *attributes)`` where ``op.Name(...)``
adds a node. An attribute of a node that is given as one of our attributes stands for its value in
the model: ``op.Swish(x, alpha=beta)``.

One spelling stands for all that follow from it by rules of arithmetic the matcher knows: the order
of operands, of factors and of terms; division and multiplication by a constant; ``Neg``,
``Reciprocal``, ``Sub`` and small powers; Clip with attributes, with inputs or as Min and Max.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

MICROSOFT = "com.microsoft"

ABSENT_ATTRIBUTES: Mapping[tuple[str, str], Mapping[str, Any]] = {
    (MICROSOFT, "QuickGelu"): {"alpha": 1.702},
    ("", "Swish"): {"alpha": 1.0},
}
"""What absent attributes are, for operators that an installed ``onnx`` may not know."""

HAVE_KERNELS = ("Gelu", "FastGelu", "QuickGelu", "RMSNormalization")
"""Nodes that ONNX Runtime computes in one pass: no other standard spelling is faster."""

SWISH = (
    # opset 24
    lambda op, x, beta: op.Swish(x, alpha=beta),
    lambda op, x, beta: op.QuickGelu(x, alpha=beta, domain=MICROSOFT),
)


def _relu6_of_shifted(op: Any, x: Any) -> Any:
    return op.Clip(op.Add(x, op.constant(3.0)), op.constant(0.0), op.constant(6.0))


def _clipped_line(op: Any, x: Any) -> Any:
    line = op.Add(op.Mul(x, op.constant(1.0 / 6.0)), op.constant(0.5))
    return op.Clip(line, op.constant(0.0), op.constant(1.0))


HARDSWISH = (
    lambda op, x: op.Div(op.Mul(x, _relu6_of_shifted(op, x)), op.constant(6.0)),
    lambda op, x: op.Mul(x, _clipped_line(op, x)),
    # opset 14
    lambda op, x: op.HardSwish(x),
)


def _softplus(op: Any, x: Any) -> Any:
    return op.Log(op.Add(op.Exp(x), op.constant(1.0)))


def _thresholded(op: Any, x: Any, softplus: Any) -> Any:
    return op.Where(op.Greater(x, op.constant(20.0)), x, softplus)


MISH = (
    lambda op, x: op.Mul(x, op.Tanh(_softplus(op, x))),
    # torch's softplus is the identity above its threshold.
    lambda op, x: op.Mul(x, op.Tanh(_thresholded(op, x, op.Softplus(x)))),
    lambda op, x: op.Mul(x, op.Tanh(_thresholded(op, x, _softplus(op, x)))),
    # opset 18
    lambda op, x: op.Mish(x),
)


def _half_plus_half(op: Any, x: Any, odd: Any) -> Any:
    half = op.constant(0.5)
    return op.Mul(x, op.Add(op.Mul(odd, half), half))


GELU = (
    lambda op, x: _half_plus_half(op, x, op.Erf(op.Div(x, op.constant(math.sqrt(2.0))))),
    # opset 20
    lambda op, x: op.Gelu(x),
    lambda op, x: op.Gelu(x, domain=MICROSOFT),
)

_GELU_SCALE = math.sqrt(2.0 / math.pi)
_GELU_CUBE = 0.044715


def _inner(op: Any, x: Any, scale: float) -> Any:
    cube = op.Mul(op.Pow(x, op.constant(3.0)), op.constant(_GELU_CUBE))
    return op.Mul(op.Add(x, cube), op.constant(scale))


def _inner_factored(op: Any, x: Any, scale: float) -> Any:
    square = op.Mul(op.Mul(x, x), op.constant(_GELU_CUBE))
    return op.Mul(op.Mul(x, op.Add(square, op.constant(1.0))), op.constant(scale))


def _inner_expanded(op: Any, x: Any, scale: float) -> Any:
    square = op.Mul(op.Mul(x, x), op.constant(_GELU_CUBE * scale))
    return op.Mul(x, op.Add(square, op.constant(scale)))


def _gelu_of_tanh(op: Any, x: Any, inner: Any) -> Any:
    factors = op.Mul(x, op.Add(op.Tanh(inner(op, x, _GELU_SCALE)), op.constant(1.0)))
    return op.Mul(factors, op.constant(0.5))


GELU_TANH = (
    lambda op, x: _gelu_of_tanh(op, x, _inner_factored),
    lambda op, x: _gelu_of_tanh(op, x, _inner_expanded),
    lambda op, x: _half_plus_half(op, x, op.Tanh(_inner(op, x, _GELU_SCALE))),
    lambda op, x: op.Mul(x, op.Sigmoid(_inner(op, x, 2.0 * _GELU_SCALE))),
    # opset 20
    lambda op, x: op.Gelu(x, approximate="tanh"),
    lambda op, x: op.FastGelu(x, domain=MICROSOFT),
)

RMS_NORM = (
    # opset 23
    lambda op, x, weight, eps: op.RMSNormalization(x, weight, epsilon=eps),
)


def fastest_gelu_tanh(op: Any, x: Any, body: Any) -> Any:
    """The standard node where the opset has it: ONNX Runtime has a kernel for that one alone."""
    return op.Gelu(x, approximate="tanh") if op.opset >= 20 else body(op, x)
