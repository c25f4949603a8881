# SPDX-License-Identifier: Apache-2.0
"""Norms that no library has: what follows from an ``OpSpec`` alone has to work for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from myops.opspec import HALF_NOTE, HALVES, Array, Attribute, OpSpec


def _reference(x: Array, weight: Array, gain: float, eps: float) -> Array:
    with np.errstate(all="ignore"):
        mean = np.mean(x * x, axis=-1, keepdims=True)
        result: Array = x * (x.dtype.type(gain) / (np.sqrt(mean) + x.dtype.type(eps))) * weight
        return result


def _body(op: Any, x: Any, weight: Any, gain: Any, eps: Any) -> Any:
    size = op.Add(op.Sqrt(op.mean(op.Mul(x, x))), eps)
    return op.Mul(op.Mul(op.Div(x, size), gain), weight)


GAIN_NORM = OpSpec(
    name="GainNorm",
    torch_name="gain_norm",
    inputs=("x", "weight"),
    attributes=(
        Attribute("gain", 2.0, "Factor of every result. Finite."),
        Attribute("eps", 1e-3, "Added to the root of the mean. Finite, at least 0.", lowest=0.0),
    ),
    summary="GainNorm, ``y = gain * x / (sqrt(mean(x**2)) + eps) * weight``.",
    details="A row of zeros is 0.\n" + HALF_NOTE + "Source: made up.",
    reference=_reference,
    body=_body,
    kind="norm",
    denormals=2,
    max_ulp={"float32": 4.0, "float64": 4.0, **HALVES},
)

PLAIN_NORM = replace(
    GAIN_NORM,
    name="PlainNorm",
    torch_name="plain_norm",
    attributes=(),
    summary="PlainNorm, ``y = x / (sqrt(mean(x**2)) + 1) * weight``.",
    reference=lambda x, weight: _reference(x, weight, 1.0, 1.0),
    body=lambda op, x, weight: op.Mul(
        op.Div(x, op.Add(op.Sqrt(op.mean(op.Mul(x, x))), op.constant(1.0))), weight
    ),
)

MADE_UP = (GAIN_NORM, PLAIN_NORM)
