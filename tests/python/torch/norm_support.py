# SPDX-License-Identifier: Apache-2.0
"""Inputs of the norms, and one way to call them all."""

from __future__ import annotations

from collections.abc import Callable

import myops.functional as F
import numpy as np
import torch
from myops.spec import OpSpec

from .support import LAYOUTS, reference, results

EPS = 1e-3

# A norm needs a last dim.
ROW_LAYOUTS = {
    **{name: make for name, make in LAYOUTS.items() if name != "scalar"},
    "row_sliced": lambda s, d: LAYOUTS["contiguous"](s, d)[1::2],
    "no_rows": lambda s, d: LAYOUTS["contiguous"](s, d)[:0],
}


def function(spec: OpSpec) -> Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]:
    """The public function with its arguments in the operator's order."""

    def call(*inputs: torch.Tensor, eps: float = EPS, **more: object):
        x, *residual, weight = inputs
        return F.rms_norm(x, weight, eps, residual=residual[0] if residual else None, **more)

    return call


def composed(spec: OpSpec) -> Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]:
    """The formula in torch's operators."""

    def call(*inputs: torch.Tensor, eps: float = EPS):
        *rows, weight = inputs
        total = sum(rows[1:], rows[0])
        mean = total.square().mean(-1, keepdim=True)
        y = total * torch.rsqrt(mean + eps) * weight
        return y if len(spec.outputs) == 1 else (y, total)

    return call


def loss(call: Callable, *inputs: torch.Tensor, **more: object) -> torch.Tensor:
    """A scalar to which each result contributes in its own way."""
    return sum(
        (result.sin() * (i + 1)).sum() for i, result in enumerate(results(call(*inputs, **more)))
    )


def norm_inputs(
    spec: OpSpec,
    shape: tuple[int, ...] = (4, 6),
    dtype: torch.dtype = torch.float64,
    make: Callable[[int], torch.Tensor] | None = None,
) -> list[torch.Tensor]:
    """Rows for every input but the last, which is a weight for them. ``make`` gets a seed."""

    def random(seed: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        return (torch.randn(shape, generator=generator, dtype=torch.float64) * 3).to(dtype)

    rows = [(make or random)(seed) for seed in range(len(spec.inputs) - 1)]
    generator = torch.Generator().manual_seed(99)
    weight = torch.randn(rows[0].shape[-1], generator=generator, dtype=torch.float64)
    return [*rows, weight.to(rows[0].dtype)]


def exact(spec: OpSpec, dtype: str, eps: float, *inputs: torch.Tensor) -> tuple[np.ndarray, ...]:
    """The reference at the stored sum: what rounding that costs is no error of the norm."""
    *rows, weight = inputs
    total = sum(rows[1:], rows[0])
    zeros = [torch.zeros_like(total) for _ in rows[1:]]
    return results(reference(spec, dtype, {"eps": eps}, total, *zeros, weight))


def out_names(spec: OpSpec) -> list[str]:
    """The keyword arguments of the operator's ``out=`` form."""
    return ["out"] if len(spec.outputs) == 1 else [f"out_{name}" for name in spec.outputs]
