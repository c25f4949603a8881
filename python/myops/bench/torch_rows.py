# SPDX-License-Identifier: Apache-2.0
"""The rows of PyTorch. ``TORCH_RIVALS`` holds torch's own forms of the operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from myops.bench.measure import rotated
from myops.bench.rivals import CHECKED, OURS, Case, Data
from myops.norm_spec import RMS_NORM
from myops.spec import OpSpec

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class TorchRival:
    """A rival in PyTorch.

    Attributes:
        name: of its row.
        compute: ``compute(out, scratch, *inputs)`` writes the operator at its default attributes;
            a second result into ``scratch``.
        allocates: it has no form that writes into ``out``, and returns its result instead.
    """

    name: str
    compute: Callable[..., object]
    allocates: bool = False


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


_EPS = RMS_NORM.defaults()["eps"]


def _composed_rms_norm(out: torch.Tensor, scratch: torch.Tensor, x: Any, weight: Any) -> object:
    import torch

    mean = torch.mul(x, x, out=scratch).mean(-1, keepdim=True)
    torch.mul(x, torch.rsqrt(mean.add_(_EPS)), out=out)
    return torch.mul(out, weight, out=out)


def _rms_norm(out: torch.Tensor, scratch: torch.Tensor, x: Any, weight: Any) -> object:
    import torch

    return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, _EPS)


def _add_rms_norm(out: torch.Tensor, scratch: torch.Tensor, *inputs: Any) -> object:
    import torch

    x, residual, weight = inputs
    return _rms_norm(out, scratch, torch.add(x, residual, out=scratch), weight)


TORCH_RIVALS: dict[str, tuple[TorchRival, ...]] = {
    "Swish": (TorchRival("x*sigmoid(x)", _composed_swish), TorchRival("F.silu", _silu)),
    "HardSwish": (TorchRival("F.hardswish", _native("hardswish")),),
    "Mish": (TorchRival("F.mish", _native("mish")),),
    "Gelu": (TorchRival("F.gelu", _native("gelu")),),
    "GeluTanh": (TorchRival("F.gelu tanh", _native("gelu", approximate="tanh")),),
    "SwiGLU": (TorchRival("F.silu, mul", _gated(_silu)),),
    "SwishTensor": (TorchRival("x*sigmoid(b*x)", _composed_tensor),),
    "GeGLU": (TorchRival("F.gelu, mul", _gated(_native("gelu"))),),
    "RMSNorm": (
        TorchRival("composed", _composed_rms_norm),
        TorchRival("F.rms_norm", _rms_norm, allocates=True),
    ),
    "AddRMSNorm": (TorchRival("add, F.rms_norm", _add_rms_norm, allocates=True),),
}
"""Operators that are not here have their rows in ONNX Runtime only."""


def tensor_on(array: npt.NDArray[Any]) -> torch.Tensor:
    """A tensor on the array's memory."""
    import torch

    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _ours(spec: OpSpec, out: torch.Tensor, scratch: torch.Tensor, inputs: Sequence[Any]) -> Any:
    from myops import functional

    if spec.kind == "elementwise":
        function = getattr(functional, spec.torch_name)
        return lambda: function(*inputs, out=out)
    import torch

    operator = getattr(getattr(torch.ops, spec.namespace), spec.torch_name).out
    names = ["out"] if len(spec.outputs) == 1 else [f"out_{name}" for name in spec.outputs]
    targets = dict(zip(names, (out, scratch), strict=False))
    return lambda: operator(*inputs, **targets)


def torch_cases(spec: OpSpec, data: Data, copies: Sequence[Data] = ()) -> list[Case]:
    """The rows of PyTorch: one call of the forward operator each, eager, without autograd, into
    the shared output (``out=``), so that arithmetic and memory are measured, not the allocator.

    Args:
        spec: the operator.
        data: the buffers whose result is checked.
        copies: further buffers; calls take turns on ``data`` and them.
    """
    sets = [
        (tensor_on(d.output), tensor_on(d.scratch), [tensor_on(array) for array in d.inputs])
        for d in (data, *copies)
    ]

    def result() -> npt.NDArray[np.float64]:
        return data.output.reshape(-1)[:CHECKED].astype(np.float64)

    cases = []
    for rival in TORCH_RIVALS.get(spec.name, ()):
        calls = [_bound(rival.compute, *tensors) for tensors in sets]
        # What allocates its result does not write it into the shared output.
        found = _returned(calls[0]) if rival.allocates else result
        cases.append(Case("torch", rival.name, "", rotated(calls), 1, found))
    ours = rotated([_ours(spec, *tensors) for tensors in sets])
    return [*cases, Case("torch", OURS, "", ours, 1, result)]


def _bound(
    compute: Callable[..., object], out: Any, scratch: Any, inputs: Sequence[Any]
) -> Callable[[], object]:
    return lambda: compute(out, scratch, *inputs)


def _returned(call: Callable[[], Any]) -> Callable[[], npt.NDArray[np.float64]]:
    def result() -> npt.NDArray[np.float64]:
        values: npt.NDArray[np.float64] = call().double().numpy().reshape(-1)[:CHECKED]
        return values

    return result


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
