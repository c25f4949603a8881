# SPDX-License-Identifier: Apache-2.0
"""The ``OpSpec`` of every normalization."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from myops import spellings
from myops.opspec import HALF_NOTE, HALVES, Array, Attribute, OpSpec

_EPS = Attribute("eps", 1e-6, "Added to the mean of the squares. Finite, at least 0.", lowest=0.0)

_DETAILS = (
    "The mean is over the last dim. Squares that leave the exponent range are no problem: rows of\n"
    "huge and of tiny values are scaled first. A row with NaN is NaN throughout; one with an\n"
    "infinity is NaN there and 0 elsewhere; one of zeros is 0, or NaN where ``eps`` is 0.\n"
    + HALF_NOTE
    + 'Source: Zhang, Sennrich, "Root Mean Square Layer Normalization", 2019.'
)


def _rms_norm(x: Array, weight: Array, eps: float) -> Array:
    with np.errstate(invalid="ignore", divide="ignore", over="ignore", under="ignore"):
        largest = np.max(np.abs(x), axis=-1, keepdims=True)
        _, exponent = np.frexp(np.where(np.isfinite(largest), largest, 1))
        scaled = np.ldexp(x, -exponent)
        shift = np.ldexp(np.asarray(eps, x.dtype), -2 * exponent)
        mean = np.mean(scaled * scaled, axis=-1, keepdims=True)
        result: Array = scaled / np.sqrt(mean + shift) * weight
        return result


def _normalized(op: Any, x: Any, squares: Any, weight: Any, eps: Any) -> Any:
    return op.Mul(op.Div(x, op.Sqrt(op.Add(op.mean(squares), eps))), weight)


def _rms_norm_body(op: Any, x: Any, weight: Any, eps: Any) -> Any:
    # The spelling ONNX Runtime fuses into its SimplifiedLayerNormalization.
    return _normalized(op, x, op.Pow(x, op.constant(2.0)), weight, eps)


def _rms_norm_body_float64(op: Any, x: Any, weight: Any, eps: Any) -> Any:
    # Not that spelling: what ONNX Runtime 1.16 makes of it in float64 takes 1e-5 for any eps.
    return _normalized(op, x, op.Mul(x, x), weight, eps)


RMS_NORM = OpSpec(
    name="RMSNorm",
    torch_name="rms_norm",
    inputs=("x", "weight"),
    attributes=(_EPS,),
    summary="RMSNorm, ``y = x / sqrt(mean(x**2) + eps) * weight``.",
    details=_DETAILS,
    reference=_rms_norm,
    body=_rms_norm_body,
    spellings=spellings.RMS_NORM,
    body_float64=_rms_norm_body_float64,
    kind="norm",
    denormals=2,
    max_ulp={"float32": 3.0, "float64": 4.0, **HALVES},
)


def _add_rms_norm(x: Array, residual: Array, weight: Array, eps: float) -> tuple[Array, Array]:
    with np.errstate(invalid="ignore", over="ignore"):
        total = x + residual
    return _rms_norm(total, weight, eps), total


def _add_rms_norm_body(op: Any, x: Any, residual: Any, weight: Any, eps: Any) -> Any:
    total = op.Add(x, residual)
    return _rms_norm_body(op, total, weight, eps), total


def _add_rms_norm_body_float64(op: Any, x: Any, residual: Any, weight: Any, eps: Any) -> Any:
    total = op.Add(x, residual)
    return _rms_norm_body_float64(op, total, weight, eps), total


ADD_RMS_NORM = OpSpec(
    name="AddRMSNorm",
    torch_name="add_rms_norm",
    inputs=("x", "residual", "weight"),
    attributes=(_EPS,),
    summary="RMSNorm of a residual sum, ``sum = x + residual``, ``y = rms_norm(sum, weight)``.",
    details="The sum is rounded to the tensors' dtype before it is normalized.\n" + _DETAILS,
    reference=_add_rms_norm,
    body=_add_rms_norm_body,
    body_float64=_add_rms_norm_body_float64,
    kind="norm",
    outputs=("y", "sum"),
    denormals=2,
    max_ulp={"float32": 4.0, "float64": 4.0, **HALVES},
)


def derived(norms: Iterable[OpSpec]) -> tuple[OpSpec, ...]:
    """Those of ``norms`` whose function and module follow from the ``OpSpec``. ``rms_norm`` and
    ``RMSNorm`` are written by hand, with and without a residual."""
    return tuple(norm for norm in norms if norm not in (RMS_NORM, ADD_RMS_NORM))
