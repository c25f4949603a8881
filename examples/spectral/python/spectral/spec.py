# SPDX-License-Identifier: Apache-2.0
"""What myops needs to know about the operators of this package."""

from __future__ import annotations

from typing import Any

import numpy as np
from myops.opspec import HALF_NOTE, HALVES, Array, Attribute, OpSpec
from numpy.lib.stride_tricks import sliding_window_view


def _dft(size: int, dtype: np.dtype[Any]) -> tuple[Array, Array, Array]:
    """Real and imaginary part of the transform's matrix, and each bin's distance from 0."""
    index = np.arange(size)
    angle = np.outer(index, index) % size * (2 * np.arccos(dtype.type(-1)) / size)
    return np.cos(angle), -np.sin(angle), np.minimum(index, size - index).astype(dtype)


def _frame_spectrum(signal: Array, window: Array, hop: float) -> tuple[Array, Array]:
    size = window.shape[0]
    real, imaginary, distance = _dft(size, signal.dtype)
    frames = sliding_window_view(signal, size, axis=-1)[..., :: int(hop), :] * window
    parts = (frames @ real) ** 2 + (frames @ imaginary) ** 2
    power = parts.sum(axis=-1)
    moment = (parts * distance).sum(axis=-1)
    return power / size, np.divide(moment, power, out=np.zeros_like(power), where=power > 0)


def _frame_spectrum_body(op: Any, signal: Any, window: Any, hop: Any) -> tuple[Any, Any]:
    """The transform as a product with its matrix, made in the model from the window's size."""
    from onnx import TensorProto, helper

    def number(value: int) -> Any:
        return op.Constant(value=helper.make_tensor("value", TensorProto.INT64, [], [value]))

    def axis(value: int) -> Any:
        return op.Constant(value=helper.make_tensor("value", TensorProto.INT64, [1], [value]))

    def real(value: Any) -> Any:
        return op.Cast(value, to=op.compute_type)

    zero, one = number(0), number(1)
    step = op.Cast(hop, to=TensorProto.INT64)
    length = op.Gather(op.Shape(signal), number(-1))
    size = op.Gather(op.Shape(window), zero)
    frames = op.Add(op.Div(op.Sub(length, size), step), one)
    index = op.Range(zero, size, one)
    starts = op.Mul(op.Range(zero, frames, one), step)
    places = op.Add(op.Unsqueeze(starts, axis(1)), index)
    framed = op.Mul(op.Gather(signal, places, axis=-1), window)
    turns = op.Mod(op.Mul(op.Unsqueeze(index, axis(1)), index), size)
    angle = op.Mul(op.Div(real(turns), real(size)), op.constant(2 * np.pi))
    transformed = [op.MatMul(framed, matrix) for matrix in (op.Cos(angle), op.Sin(angle))]
    parts = op.Add(*(op.Mul(each, each) for each in transformed))
    distance = real(op.Min(index, op.Sub(size, index)))
    power = op.ReduceSum(parts, axis(-1), keepdims=0)
    moment = op.ReduceSum(op.Mul(parts, distance), axis(-1), keepdims=0)
    # A frame of zeros: 0 / 1.
    silent = op.Equal(power, op.constant(0.0))
    safe = op.Where(silent, op.constant(1.0), power)
    return op.Div(power, real(size)), op.Div(moment, safe)


def _sample(rng: np.random.Generator) -> list[Array]:
    signal = rng.standard_normal((3, 60))
    signal[1, 20:] = 0  # frames of zeros
    return [signal, np.hanning(14)[1:-1]]


FRAME_SPECTRUM = OpSpec(
    name="FrameSpectrum",
    torch_name="frame_spectrum",
    namespace="spectral",
    kind="custom",
    inputs=("signal", "window"),
    outputs=("energy", "centroid"),
    attributes=(Attribute("hop", 4.0, "Distance of two frames' starts. A whole number from 1."),),
    summary="Energy and spectral centroid of a signal's windowed frames.",
    details=(
        "``signal`` is ``(..., length)``, ``window`` ``(n,)``; both results are\n"
        "``(..., (length - n) // hop + 1)``. The energy is ``sum(|X|**2) / n`` with ``X`` the\n"
        "frame's DFT, the centroid the mean of the bins' distances from 0 weighted by\n"
        "``|X|**2``, in bins, and 0 for a frame of zeros. The transform is KISS FFT's, in\n"
        "``float64``.\n" + HALF_NOTE
    ),
    reference=_frame_spectrum,
    body=_frame_spectrum_body,
    sample=_sample,
    max_ulp={"float32": 1.0, "float64": 16.0, **HALVES},
)

SPECS: tuple[OpSpec, ...] = (FRAME_SPECTRUM,)
