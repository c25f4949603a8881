# SPDX-License-Identifier: Apache-2.0
"""The distance between a result and its truth, which is of higher precision.

Rules for special values: NaN must meet NaN; an infinity must meet the same infinity; a finite
truth beyond the dtype's largest value may become infinite; zeros are equal whatever their sign (the
signed zeros of the operators have tests of their own).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class _Format:
    mantissa_bits: int  # stored
    smallest_exponent: int  # of the smallest normal number
    largest: float


_FORMATS: Mapping[str, _Format] = {
    "float64": _Format(52, -1022, float(np.finfo(np.float64).max)),
    "float32": _Format(23, -126, float(np.finfo(np.float32).max)),
    "float16": _Format(10, -14, 65504.0),
    "bfloat16": _Format(7, -126, 3.3895313892515355e38),
}


# Errors of a whole network, relative to the largest value of the output: rounding at every step.
MODEL_TOLERANCE = {"float32": 1e-5, "float64": 1e-7, "float16": 5e-3, "bfloat16": 4e-2}
"""Per dtype. float64 allows for attributes, which ONNX stores as float32."""


@dataclass(frozen=True)
class Tolerance:
    """An element is right within ``ulp`` units in the last place, or within
    ``absolute + relative * |truth|``."""

    ulp: float = 0.0
    absolute: float = 0.0
    relative: float = 0.0

    def __str__(self) -> str:
        if self.ulp:
            extra = f" or {self.absolute:.0e}" if self.absolute else ""
            return f"{self.ulp:g} ulp{extra}"
        if not self.relative:
            return f"{self.absolute:.1e}"
        return f"{self.absolute:.0e} + {self.relative:.0e} |y|"


@dataclass(frozen=True)
class Comparison:
    """Distances of one result from its truth.

    Attributes:
        count: elements compared.
        max_abs, max_rel: largest absolute and relative error of the finite elements.
        max_ulp, p99_ulp: largest and 99th percentile error in units in the last place of the
            result's dtype.
        wrong: elements outside the tolerance.
        first_wrong: index of the first of them, or None.
    """

    count: int
    max_abs: float
    max_rel: float
    max_ulp: float
    p99_ulp: float
    wrong: int
    first_wrong: tuple[int, ...] | None

    @property
    def ok(self) -> bool:
        return self.wrong == 0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def truth_type(dtype: str) -> type[np.floating]:
    """The precision to compute the truth for ``dtype`` in: float64, and for float64 longdouble
    (rounding ``beta * x`` alone costs float64 a hundred units in the last place of a tail)."""
    return np.longdouble if dtype == "float64" else np.float64


def ulp_size(values: npt.NDArray[np.floating], dtype: str) -> npt.NDArray[np.floating]:
    """The spacing of ``dtype`` at each value, that of the smallest normal number below it."""
    form = _FORMATS[dtype]
    _, exponent = np.frexp(np.minimum(np.abs(values), form.largest))
    exponent = np.maximum(exponent - 1, form.smallest_exponent)
    return np.asarray(np.ldexp(values.dtype.type(1.0), exponent - form.mantissa_bits))


def compare(
    result: npt.NDArray[Any],
    truth: npt.NDArray[Any],
    dtype: str,
    tolerance: Tolerance,
) -> Comparison:
    """Judges ``result`` against ``truth``.

    Args:
        result: any floating-point array.
        truth: array of the same shape, float64 or longdouble.
        dtype: the dtype the result was computed in: float32, float64, float16 or bfloat16.
        tolerance: what counts as right.

    Raises:
        ValueError: the shapes differ.
    """
    truth = np.asarray(truth, dtype=np.result_type(truth, np.float64))
    values = np.asarray(result, dtype=truth.dtype)
    if values.shape != truth.shape:
        raise ValueError(
            f"[myops.verify] a result should have the shape of its truth, {truth.shape}. "
            f"Received {values.shape}. Compare outputs of one model."
        )
    form = _FORMATS[dtype]
    overflow = (
        np.isinf(values) & (np.abs(truth) > form.largest) & (np.sign(values) == np.sign(truth))
    )
    same_special = (np.isnan(values) & np.isnan(truth)) | (np.isinf(truth) & (values == truth))
    special = ~np.isfinite(values) | ~np.isfinite(truth)
    with np.errstate(invalid="ignore"):
        absolute = np.where(special, 0.0, np.abs(values - truth))
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where((truth != 0) & ~special, absolute / np.abs(truth), 0.0)
    finite_truth = np.where(np.isfinite(truth), truth, 0.0)
    ulp = absolute / ulp_size(finite_truth, dtype)
    right = (ulp <= tolerance.ulp) | (
        absolute <= tolerance.absolute + tolerance.relative * np.abs(finite_truth)
    )
    right = np.where(special, same_special | overflow, right)
    wrong = np.argwhere(~right)
    return Comparison(
        count=values.size,
        max_abs=float(absolute.max(initial=0.0)),
        max_rel=float(relative.max(initial=0.0)),
        max_ulp=float(ulp.max(initial=0.0)),
        p99_ulp=float(np.percentile(ulp, 99)) if ulp.size else 0.0,
        wrong=len(wrong),
        first_wrong=tuple(int(i) for i in wrong[0]) if len(wrong) else None,
    )
