# SPDX-License-Identifier: Apache-2.0
"""The upper tail of the standard normal distribution, for GELU."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

# erfc(a / sqrt(2)) / 2 * exp(a^2 / 2) * (a + 5) at t = (a - 5) / (a + 5) for 0 <= a <= 40, from the
# highest power down.
SCALED_TAIL = tuple(
    float.fromhex(coefficient)
    for coefficient in (
        "-0x1.8d6f2393e8a27p-33",
        "0x1.d04c406715840p-30",
        "0x1.0771b8d6722dfp-27",
        "-0x1.3a33e415385dap-27",
        "-0x1.1ad198b314e3cp-24",
        "0x1.6990eb9e16b58p-25",
        "0x1.d0e9a77b4fdcep-22",
        "-0x1.6953c53876a56p-22",
        "-0x1.73ab1fe49c4b4p-19",
        "0x1.0b26d911af570p-18",
        "0x1.17dd09c920f56p-16",
        "-0x1.a170d25216a98p-15",
        "-0x1.f2145fdfd5bd4p-15",
        "0x1.1daf1d4fc84f5p-11",
        "-0x1.a25037dc79cd0p-11",
        "-0x1.88590eab49716p-9",
        "0x1.54b4d4f4c511ep-6",
        "-0x1.1b1c254c99e8bp-4",
        "0x1.51f6329f0171ep-3",
        "-0x1.410ed5f875a85p-2",
        "0x1.fb31653876f92p-2",
        "-0x1.54ad03f27ca17p-1",
        "0x1.89d3abe1f95aep-1",
    )
)


def upper_tail(a: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """erfc(a / sqrt(2)) / 2 for a >= 0 to more than float64's precision where ``a`` has it."""
    wide = np.asarray(a, np.longdouble) / np.sqrt(np.longdouble(2))
    near = np.minimum(wide, 30).astype(np.float64)  # math.erfc takes a float64
    erfc = np.asarray(np.vectorize(math.erfc, otypes=[np.float64])(near), np.longdouble)
    slope = -2 / np.sqrt(np.longdouble(np.pi)) * np.exp(-(near.astype(np.longdouble) ** 2))
    # The rest of the argument enters through the derivative.
    moderate = erfc + (np.minimum(wide, 30) - near) * slope
    # Further out erfc is denormal or 0 in float64; the asymptotic series is exact to 1e-20 there.
    far = np.maximum(wide, 21)
    series = np.zeros_like(far)
    for k in reversed(range(12)):
        series = 1 - (2 * k + 1) / (2 * far * far) * series
    tail = np.exp(-far * far) / (far * np.sqrt(np.longdouble(np.pi))) * series
    result: npt.NDArray[np.floating] = np.where(wide > 21, tail, moderate) / 2
    return result
