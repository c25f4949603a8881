# SPDX-License-Identifier: Apache-2.0
"""One ``OpSpec`` per operator: everything Python needs to know about it.

To add an operator, write its functor in ``native/kernels/ops`` and its ``OpSpec`` here: ``myops
new`` adds both but for the formulas. The torch functions and modules, both exporters, the plugin,
verification and the tests follow from the two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from myops import spellings
from myops._errors import UsageError
from myops._normal import SCALED_TAIL, upper_tail
from myops.norm_spec import ADD_RMS_NORM, RMS_NORM
from myops.opspec import (
    DOMAIN,
    DOMAIN_VERSION,
    HALF_NOTE,
    HALVES,
    Array,
    Attribute,
    OpSpec,
    Registry,
    missing_formula,
)


def _swish(x: Array, beta: float | Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        z = np.asarray(beta, x.dtype) * x
        tail = np.exp(-np.abs(z))  # never overflows
        sigmoid = np.where(z >= 0, 1.0, tail) / (1.0 + tail)
        y = x * sigmoid
    y = np.where(np.isneginf(z), np.copysign(0.0, x), y)
    return np.where(np.isinf(x) & (beta == 0), x, y)


def _swish_body(op: Any, x: Any, beta: Any) -> Any:
    return op.Mul(x, op.Sigmoid(op.Mul(x, beta)))


def _swish_body_float64(op: Any, x: Any, beta: Any) -> Any:
    # ONNX Runtime fuses the other spelling into a QuickGelu for which it has no float64 kernel.
    return op.Div(x, op.Add(op.Exp(op.Neg(op.Mul(x, beta))), op.constant(1.0)))


_BETA = Attribute("beta", 1.0, "Coefficient inside the sigmoid. Finite.")

SWISH = OpSpec(
    name="Swish",
    torch_name="swish",
    inputs=("x",),
    attributes=(_BETA,),
    summary="Swish with a coefficient, ``y = x * sigmoid(beta * x)``.",
    details=(
        "``beta = 1`` is SiLU, ``beta = 1.702`` the quick form of GELU. Limits: ``+inf`` gives\n"
        "``+inf``, ``-inf`` gives ``-0.0`` for positive ``beta``, the mirror image for negative\n"
        "``beta``; ``beta = 0`` is ``x / 2``; NaN stays NaN; signed zero keeps its sign. The\n"
        "gradient at ``+inf`` and ``-inf`` is its limit, 1 and 0. ``float16`` and ``bfloat16``\n"
        "compute in ``float32`` and round once, and use ``beta`` rounded to ``float32``, like\n"
        "``float32`` does.\n\n"
        'Source: Ramachandran, Zoph, Le, "Searching for Activation Functions", 2017.'
    ),
    reference=_swish,
    body=_swish_body,
    body_float64=_swish_body_float64,
    spellings=spellings.SWISH,
    max_ulp={"float32": 2.5, "float64": 4.0, **HALVES},
)


SWISH_TENSOR = OpSpec(
    name="SwishTensor",
    torch_name="swish_tensor",
    inputs=("x", "beta"),
    attributes=(),
    summary="Swish whose coefficient is a tensor, ``y = x * sigmoid(beta * x)``.",
    details=(
        "For a coefficient that is trained: ``beta`` has a gradient, too. Limits are those of\n"
        "``swish`` at each ``beta``; an infinite ``beta`` gives ``max(x, 0)`` or ``min(x, 0)``,\n"
        "and NaN at ``x = 0``; NaN in ``x`` or ``beta`` gives NaN.\n"
        + HALF_NOTE
        + 'Source: Ramachandran, Zoph, Le, "Searching for Activation Functions", 2017.'
    ),
    reference=_swish,
    body=_swish_body,
    body_float64=_swish_body_float64,
    broadcasts=True,
    denormals=2,
    max_ulp={"float32": 4.0, "float64": 4.0, **HALVES},
)


def _hardswish(x: Array) -> Array:
    clamped = np.maximum(x, -3.0)
    return clamped * (np.minimum(clamped + 3.0, 6.0) / 6.0)


HARDSWISH = OpSpec(
    name="HardSwish",
    torch_name="hardswish",
    inputs=("x",),
    attributes=(),
    summary="HardSwish, ``y = x * min(max(x + 3, 0), 6) / 6``.",
    details=(
        "Finite for all finite ``x`` (``x * clip / 6`` overflows in half precision). ``-inf``\n"
        "gives ``-0.0``, ``+inf`` gives ``+inf``; NaN stays NaN. The derivative at the corners -3\n"
        "and 3 is torch's: 0 and 1.\n" + HALF_NOTE + "Source: Howard et al., "
        '"Searching for MobileNetV3", 2019.'
    ),
    reference=_hardswish,
    # The fastest spelling in ONNX Runtime: it stays inside the blocked layout of convolutions.
    body=lambda op, x: op.Mul(x, op.HardSigmoid(x, alpha=1.0 / 6.0, beta=0.5)),
    # There is no float64 HardSigmoid.
    body_float64=lambda op, x: op.Mul(
        x,
        op.Div(
            op.Min(op.Max(op.Add(x, op.constant(3.0)), op.constant(0.0)), op.constant(6.0)),
            op.constant(6.0),
        ),
    ),
    spellings=spellings.HARDSWISH,
    max_ulp={"float32": 2.5, "float64": 2.5, **HALVES},
)


def _mish(x: Array) -> Array:
    with np.errstate(under="ignore", invalid="ignore"):
        tail = np.exp(-np.abs(x))
        above = (1 + 2 * tail) / (1 + 2 * tail + 2 * tail * tail)
        below = tail * (tail + 2) / (tail * (tail + 2) + 2)
        y = x * np.where(x >= 0, above, below)
    return np.where(np.isneginf(x), -0.0, y)


MISH = OpSpec(
    name="Mish",
    torch_name="mish",
    inputs=("x",),
    attributes=(),
    summary="Mish, ``y = x * tanh(log(1 + exp(x)))``.",
    details=(
        "``-inf`` gives ``-0.0``, ``+inf`` gives ``+inf``; NaN stays NaN.\n"
        + HALF_NOTE
        + 'Source: Misra, "Mish: A Self Regularized Non-Monotonic Activation Function", 2019.'
    ),
    reference=_mish,
    body=lambda op, x: op.Mul(x, op.Tanh(op.Softplus(x))),
    # There is no float64 Softplus.
    body_float64=lambda op, x: op.Mul(
        x,
        op.Tanh(
            op.Add(
                op.Max(x, op.constant(0.0)),
                op.Log(op.Add(op.Exp(op.Neg(op.Abs(x))), op.constant(1.0))),
            )
        ),
    ),
    spellings=spellings.MISH,
    max_ulp={"float32": 4.5, "float64": 4.5, **HALVES},
)


def _gelu(x: Array) -> Array:
    with np.errstate(invalid="ignore", under="ignore"):
        below = np.where(np.isinf(x), 0.0, np.abs(x) * upper_tail(np.abs(x)))
    result: Array = (np.where(x < 0, -0.0, x) - below).astype(x.dtype)
    return result


def _gelu_body(op: Any, x: Any) -> Any:
    erf = op.Erf(op.Div(x, op.constant(math.sqrt(2.0))))
    return op.Mul(op.Mul(x, op.Add(erf, op.constant(1.0))), op.constant(0.5))


def _gelu_body_float64(op: Any, x: Any) -> Any:
    # ONNX Runtime has no float64 Erf.
    a = op.Min(op.Abs(x), op.constant(40.0))
    below = op.Add(a, op.constant(5.0))
    t = op.Div(op.Sub(a, op.constant(5.0)), below)
    p = op.constant(SCALED_TAIL[0])
    for coefficient in SCALED_TAIL[1:]:
        p = op.Add(op.Mul(p, t), op.constant(coefficient))
    density = op.Exp(op.Mul(op.Mul(a, a), op.constant(-0.5)))
    tail = op.Mul(op.Mul(a, op.Div(p, below)), density)
    return op.Sub(op.Max(x, op.constant(0.0)), tail)


GELU = OpSpec(
    name="Gelu",
    torch_name="gelu",
    inputs=("x",),
    attributes=(),
    summary="GELU, ``y = x * Phi(x)`` with ``Phi`` the standard normal distribution function.",
    details=(
        "``-inf`` gives ``-0.0``, ``+inf`` gives ``+inf``; NaN stays NaN. Accurate in relative\n"
        "terms in the negative tail, too.\n"
        + HALF_NOTE
        + 'Source: Hendrycks, Gimpel, "Gaussian Error Linear Units (GELUs)", 2016.'
    ),
    reference=_gelu,
    body=_gelu_body,
    body_float64=_gelu_body_float64,
    spellings=spellings.GELU,
    max_ulp={"float32": 6.0, "float64": 7.0, **HALVES},
)


def _gelu_tanh(x: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        scale = np.sqrt(2 / np.asarray(np.arccos(x.dtype.type(-1)), x.dtype))
        return _swish_of(x, 2 * scale * x * (1 + x.dtype.type(0.044715) * x * x))


def _swish_of(x: Array, z: Array) -> Array:
    """x * sigmoid(z)."""
    tail = np.exp(-np.abs(z))
    y = x * (np.where(z >= 0, 1.0, tail) / (1.0 + tail))
    return np.where(np.isneginf(z), np.copysign(0.0, x), y)


def _gelu_tanh_body(op: Any, x: Any) -> Any:
    cube = op.Mul(op.Mul(x, op.Mul(x, x)), op.constant(0.044715))
    inner = op.Mul(op.Add(x, cube), op.constant(math.sqrt(2.0 / math.pi)))
    return op.Mul(op.Mul(x, op.Add(op.Tanh(inner), op.constant(1.0))), op.constant(0.5))


GELU_TANH = OpSpec(
    name="GeluTanh",
    torch_name="gelu_tanh",
    inputs=("x",),
    attributes=(),
    summary=("GELU's tanh form, ``y = x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2``."),
    details=(
        "torch's ``gelu(x, approximate='tanh')``. ``-inf`` gives ``-0.0``, ``+inf`` gives\n"
        "``+inf``; NaN stays NaN.\n"
        + HALF_NOTE
        + 'Source: Hendrycks, Gimpel, "Gaussian Error Linear Units (GELUs)", 2016.'
    ),
    reference=_gelu_tanh,
    body=_gelu_tanh_body,
    spellings=spellings.GELU_TANH,
    native=lambda op, x: spellings.fastest_gelu_tanh(op, x, _gelu_tanh_body),
    max_ulp={"float32": 4.0, "float64": 4.0, **HALVES},
)


def _gated(activation: OpSpec, name: str, summary: str, max_ulp: Mapping[str, float]) -> OpSpec:
    """``activation(gate) * x``."""
    double = activation.body_float64

    def gated(spelling: Any) -> Any:
        return lambda op, gate, x, *rest: op.Mul(spelling(op, gate, *rest), x)

    def reference(gate: Array, x: Array, **attributes: float) -> Array:
        with np.errstate(invalid="ignore", over="ignore"):
            y: Array = activation.reference(gate, **attributes) * x
            return y

    return OpSpec(
        name=name,
        torch_name=name.lower(),
        inputs=("gate", "x"),
        attributes=activation.attributes,
        summary=summary,
        details=(
            "Special values follow from the activation's and the product: 0 times infinity is\n"
            "NaN.\n" + HALF_NOTE + 'Source: Shazeer, "GLU Variants Improve Transformer", 2020.'
        ),
        reference=reference,
        body=gated(activation.body),
        body_float64=gated(double) if double else None,
        spellings=tuple(gated(spelling) for spelling in activation.spellings),
        max_ulp=max_ulp,
        denormals=64,
    )


SWIGLU = _gated(
    SWISH,
    "SwiGLU",
    "SwiGLU, ``y = gate * sigmoid(beta * gate) * x``.",
    {"float32": 3.0, "float64": 4.5, **HALVES},
)
GEGLU = _gated(
    GELU,
    "GeGLU",
    "GeGLU, ``y = gate * Phi(gate) * x`` with ``Phi`` the standard normal distribution function.",
    {"float32": 6.5, "float64": 7.5, **HALVES},
)

ELEMENTWISE: tuple[OpSpec, ...] = (
    *(SWISH, HARDSWISH, MISH, GELU, GELU_TANH, SWIGLU, GEGLU, SWISH_TENSOR),
)
NORMS: tuple[OpSpec, ...] = (RMS_NORM, ADD_RMS_NORM)
SPECS = Registry((*ELEMENTWISE, *NORMS))
"""Grows with ``myops.register``: loop over it when it is needed, do not copy it at import."""


def find(name: str) -> OpSpec:
    """The operator with this ONNX or torch name.

    Raises:
        UsageError: there is none.
    """
    for spec in SPECS:
        if name in (spec.name, spec.torch_name):
            return spec
    known = ", ".join(spec.name for spec in SPECS)
    raise UsageError("myops.spec", f"an operator should be one of {known}", repr(name), "Name one")


__all__ = [
    "DOMAIN",
    "DOMAIN_VERSION",
    "ELEMENTWISE",
    "NORMS",
    "SPECS",
    "Array",
    "Attribute",
    "OpSpec",
    "find",
    "missing_formula",
]
