# SPDX-License-Identifier: Apache-2.0
"""What is measured, and on what data: the cases that take turns, and their buffers. The cases
themselves are made in ``torch_rows``, ``compiled`` and ``ort_rows``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from myops.spec import OpSpec

OURS = "myops"
"""Name of our row in each framework; the others are its rivals."""

CHECKED = 4096
"""Elements of a result that are compared with the reference before anything is timed."""

ROW = 1024
"""Longest row of a norm here."""

MOST_SETS = 64
"""Sets of buffers that calls take turns on, at most."""


@dataclass(frozen=True)
class Case:
    """One row to measure.

    Attributes:
        framework: "torch" or "onnxruntime".
        name: of the row.
        kernels: what ran, where the framework tells.
        call: applies the operator ``repeats`` times.
        repeats: applications per call.
        result: the first ``CHECKED`` elements that the last call wrote, as float64.
    """

    framework: str
    name: str
    kernels: str
    call: Callable[[], object]
    repeats: int
    result: Callable[[], npt.NDArray[np.float64]]


@dataclass(frozen=True)
class Data:
    """The buffers all rivals share: written before the first call, so that nobody pays for page
    faults, and never reallocated.

    Attributes:
        inputs: one array per operator input.
        output: what every rival writes.
        scratch: for rivals in several passes.
    """

    inputs: tuple[npt.NDArray[Any], ...]
    output: npt.NDArray[Any]
    scratch: npt.NDArray[Any]

    @classmethod
    def make(cls, spec: OpSpec, elements: int, dtype: str, seed: int = 0) -> Data:
        """Normally distributed inputs, as activations are, inside the operator's domain. Further
        inputs stay within 1, so that a chain of products stays finite. Those of norms are
        ``(rows, row_width(elements))``."""
        generator = np.random.default_rng(seed)
        numpy_type = numpy_dtype(dtype)
        width = row_width(elements)
        shape = (elements // width, width) if spec.kind == "norm" else (elements,)
        inputs = []
        for name in spec.inputs:
            own = (width,) if spec.kind == "norm" and name == spec.inputs[-1] else shape
            inputs.append(aligned(prod(own), numpy_type).reshape(own))
            values = generator.standard_normal(own, np.float32)
            limits = spec.domain if len(inputs) == 1 else (-1.0, 1.0)
            inputs[-1][:] = values.clip(*limits).astype(numpy_type)
        output, scratch = (aligned(elements, numpy_type).reshape(shape) for _ in range(2))
        return cls(tuple(inputs), output, scratch)

    def copy(self) -> Data:
        """The same values in other buffers."""

        def other(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
            result = aligned(array.size, array.dtype).reshape(array.shape)
            result[...] = array
            return result

        inputs = tuple(other(array) for array in self.inputs)
        return Data(inputs, other(self.output), other(self.scratch))

    @property
    def nbytes(self) -> int:
        """Of all buffers."""
        return sum(a.nbytes for a in (*self.inputs, self.output, self.scratch))

    def moved(self, spec: OpSpec) -> int:
        """Bytes that the operator has to read and to write."""
        return sum(a.nbytes for a in self.inputs) + len(spec.outputs) * self.output.nbytes


def row_width(elements: int) -> int:
    """Length of a norm's rows: the largest divisor of ``elements`` up to ``ROW``."""
    return max(width for width in range(1, min(ROW, elements) + 1) if elements % width == 0)


def last_level_cache() -> int:
    """Bytes of this machine's largest cache; 32 MiB where the system does not tell."""
    sizes = [0]
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = file.read_text().strip()
        unit = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1:], 1)
        sizes.append(int(text.rstrip("KMG") or 0) * unit)
    return max(sizes) or 32 * 2**20


def rotation(data: Data, limit: int = MOST_SETS) -> list[Data]:
    """``data`` and copies of it, together twice as large as the last-level cache, but ``limit`` at
    most: calls that take turns on them find little of their buffers in a cache."""
    wanted = -(-2 * last_level_cache() // max(1, data.nbytes))
    return [data, *(data.copy() for _ in range(min(limit, wanted) - 1))]


def aligned(elements: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Zeros at the start of a cache line, where the frameworks' own allocators put tensors; numpy
    does not, and vector loads across lines would be charged to whoever uses its memory."""
    line = 64
    size = elements * dtype.itemsize
    raw = np.zeros(size + line, np.uint8)
    start = -raw.ctypes.data % line
    return raw[start : start + size].view(dtype)


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of this name; bfloat16 comes from ml_dtypes, which onnx depends on."""
    if name == "bfloat16":
        import ml_dtypes

        name = ml_dtypes.bfloat16
    dtype: np.dtype[Any] = np.dtype(name)
    return dtype
