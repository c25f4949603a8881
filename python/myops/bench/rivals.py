# SPDX-License-Identifier: Apache-2.0
"""Whom the operators are measured against in PyTorch, and on what data.

``TORCH_RIVALS`` holds torch's own forms where it has any. Rivals in ONNX Runtime follow from the
``OpSpec`` (``ort_rows``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from myops.spec import OpSpec

if TYPE_CHECKING:
    import torch

OURS = "myops"
"""Name of our row in each framework; the others are its rivals."""

CHECKED = 4096
"""Elements of a result that are compared with the reference before anything is timed."""


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
        inputs stay within 1, so that a chain of products stays finite."""
        generator = np.random.default_rng(seed)
        numpy_type = numpy_dtype(dtype)
        inputs = []
        for _ in spec.inputs:
            inputs.append(aligned(elements, numpy_type))
            values = generator.standard_normal(elements, np.float32)
            limits = spec.domain if len(inputs) == 1 else (-1.0, 1.0)
            inputs[-1][:] = values.clip(*limits).astype(numpy_type)
        return cls(tuple(inputs), aligned(elements, numpy_type), aligned(elements, numpy_type))


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


@dataclass(frozen=True)
class TorchRival:
    """A rival in PyTorch.

    Attributes:
        name: of its row.
        compute: ``compute(out, scratch, *inputs)`` writes the operator at its default attributes.
    """

    name: str
    compute: Callable[..., object]


def _composed_swish(out: torch.Tensor, scratch: torch.Tensor, x: torch.Tensor) -> object:
    import torch

    return torch.mul(x, torch.sigmoid(x, out=scratch), out=out)


def _silu(out: torch.Tensor, scratch: torch.Tensor, x: torch.Tensor) -> object:
    import torch

    # What F.silu calls. F.silu itself has no out= and would be charged for its allocation.
    silu: Any = torch._C._nn.silu
    return silu(x, out=out)


def _composed_tensor(out: torch.Tensor, scratch: torch.Tensor, x: Any, beta: Any) -> object:
    import torch

    torch.mul(x, beta, out=scratch)
    return torch.mul(x, torch.sigmoid(scratch, out=scratch), out=out)


def _gated(activation: Callable[..., object]) -> Callable[..., object]:
    """``activation(gate)`` into scratch, then the product."""

    def compute(out: torch.Tensor, scratch: torch.Tensor, gate: Any, x: Any) -> object:
        import torch

        activation(scratch, out, gate)
        return torch.mul(scratch, x, out=out)

    return compute


def _native(name: str, **options: Any) -> Callable[..., object]:
    """One of torch's fused activations, into ``out``."""

    def compute(out: torch.Tensor, scratch: torch.Tensor, x: torch.Tensor) -> object:
        import torch

        function: Any = getattr(torch.ops.aten, name).out
        return function(x, out=out, **options)

    return compute


TORCH_RIVALS: dict[str, tuple[TorchRival, ...]] = {
    "Swish": (TorchRival("x*sigmoid(x)", _composed_swish), TorchRival("F.silu", _silu)),
    "HardSwish": (TorchRival("F.hardswish", _native("hardswish")),),
    "Mish": (TorchRival("F.mish", _native("mish")),),
    "Gelu": (TorchRival("F.gelu", _native("gelu")),),
    "GeluTanh": (TorchRival("F.gelu tanh", _native("gelu", approximate="tanh")),),
    "SwiGLU": (TorchRival("F.silu, mul", _gated(_silu)),),
    "SwishTensor": (TorchRival("x*sigmoid(b*x)", _composed_tensor),),
    "GeGLU": (TorchRival("F.gelu, mul", _gated(_native("gelu"))),),
}
"""Operators that are not here have their rows in ONNX Runtime only."""


def tensor_on(array: npt.NDArray[Any]) -> torch.Tensor:
    """A tensor on the array's memory."""
    import torch

    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def torch_cases(spec: OpSpec, data: Data) -> list[Case]:
    """The rows of PyTorch: one call of the forward operator each, eager, without autograd, into
    the shared output (``out=``), so that arithmetic and memory are measured, not the allocator.
    """
    from myops import functional

    function = getattr(functional, spec.torch_name)
    out, scratch = tensor_on(data.output), tensor_on(data.scratch)
    inputs = [tensor_on(array) for array in data.inputs]

    def make(compute: Callable[..., object]) -> Callable[[], object]:
        return lambda: compute(out, scratch, *inputs)

    def result() -> npt.NDArray[np.float64]:
        return data.output[:CHECKED].astype(np.float64)

    rows = [(rival.name, make(rival.compute)) for rival in TORCH_RIVALS.get(spec.name, ())]
    rows.append((OURS, lambda: function(*inputs, out=out)))
    return [Case("torch", name, "", call, 1, result) for name, call in rows]


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """PyTorch on so many threads for the block; the number it had comes back after it."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
