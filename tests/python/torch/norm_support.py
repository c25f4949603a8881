# SPDX-License-Identifier: Apache-2.0
"""Inputs of the norms, and one way to call them all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import myops.functional as F
import numpy as np
import pytest
import torch
from myops.norm_spec import ADD_RMS_NORM, RMS_NORM
from myops.spec import NORMS, OpSpec

from ..support import norm_values
from .support import LAYOUTS, reference, results
from .support import composed as composed_body

EPS = 1e-3

# A norm needs a last dim.
ROW_LAYOUTS = {
    **{name: make for name, make in LAYOUTS.items() if name != "scalar"},
    "row_sliced": lambda s, d: LAYOUTS["contiguous"](s, d)[1::2],
    "no_rows": lambda s, d: LAYOUTS["contiguous"](s, d)[:0],
}


def attributes(spec: OpSpec) -> dict[str, float]:
    """What the norm is called with where the values do not matter."""
    return norm_values(spec, EPS)


def attribute_sets(spec: OpSpec) -> list[dict[str, float]]:
    """The defaults; others; an ``eps`` that is missing, and one that is large."""
    sets = [spec.defaults(), {a.name: a.default * 1.75 for a in spec.attributes}]
    sets += [spec.defaults() | {"eps": eps} for eps in (0.0, 0.25) if "eps" in spec.defaults()]
    return sets if spec.attributes else sets[:1]


each_norm_with_attributes = pytest.mark.parametrize(
    ("spec", "values"),
    [
        pytest.param(spec, values, id=f"{spec.torch_name}-{list(values.values())}")
        for spec in NORMS
        for values in attribute_sets(spec)
    ],
)


def public(spec: OpSpec) -> Callable[..., Any]:
    """The public function with its arguments in the operator's order."""
    if spec not in (RMS_NORM, ADD_RMS_NORM):
        return getattr(F, spec.torch_name)

    def call(*inputs: torch.Tensor, **more: Any) -> Any:
        x, *residual, weight = inputs
        return F.rms_norm(x, weight, residual=residual[0] if residual else None, **more)

    return call


def function(spec: OpSpec) -> Callable[..., Any]:
    """``public`` with the values of ``attributes``, unless others are given."""
    call, values = public(spec), attributes(spec)

    def with_values(*inputs: torch.Tensor, **more: Any) -> Any:
        return call(*inputs, **{**values, **more})

    return with_values


def composed(spec: OpSpec) -> Callable[..., Any]:
    """The formula in torch's operators: the ``OpSpec``'s body, which the tests of ONNX hold against
    its reference."""
    call, values = composed_body(spec), attributes(spec)

    def with_values(*inputs: torch.Tensor, **more: float) -> Any:
        return call(*inputs, **{**values, **more})

    return with_values


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


def exact(
    spec: OpSpec, dtype: str, values: dict[str, float], *inputs: torch.Tensor
) -> tuple[np.ndarray, ...]:
    """The reference at the stored sum: what rounding that costs is no error of the norm."""
    *rows, weight = inputs
    total = sum(rows[1:], rows[0])
    zeros = [torch.zeros_like(total) for _ in rows[1:]]
    return results(reference(spec, dtype, values, total, *zeros, weight))


def out_names(spec: OpSpec) -> list[str]:
    """The keyword arguments of the operator's ``out=`` form."""
    return ["out"] if len(spec.outputs) == 1 else [f"out_{name}" for name in spec.outputs]
