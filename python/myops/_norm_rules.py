# SPDX-License-Identifier: Apache-2.0
"""Batching and sharding rules of the normalizations."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import torch

from myops._after_import import call_after_import
from myops.spec import DOMAIN, NORMS, OpSpec


def _operator(spec: OpSpec, suffix: str = "") -> Any:
    return getattr(getattr(torch.ops, DOMAIN), spec.torch_name + suffix).default


def _has_backward(spec: OpSpec) -> bool:
    """That of a norm with a residual is the derivative of the norm without."""
    return len(spec.outputs) == 1


def _front(tensor: torch.Tensor, dim: int | None, size: int) -> torch.Tensor:
    """``tensor`` with the batch in front."""
    if dim is None:
        return tensor.unsqueeze(0).expand(size, *tensor.shape)
    return tensor.movedim(dim, 0)


def _per_example(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """A batch of weights, shaped to multiply the rows of a batch of ``x``."""
    return weight.reshape(weight.shape[0], *[1] * (x.dim() - 2), weight.shape[1])


def _batched(spec: OpSpec, info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
    """Linear in the weight: a batch of weights multiplies the results with a weight of ones."""
    count = len(spec.inputs)
    *rows, weight = args[:count]
    *places, weight_place = in_dims[:count]
    fronts = [_front(x, dim, info.batch_size) for x, dim in zip(rows, places, strict=True)]
    shared = weight if weight_place is None else fronts[0].new_ones(fronts[0].shape[-1])
    outcome = _operator(spec)(*fronts, shared, *args[count:])
    y, *others = outcome if isinstance(outcome, tuple) else (outcome,)
    if weight_place is not None:
        y = y * _per_example(weight.movedim(weight_place, 0), fronts[0])
    return ((y, *others), (0,) * (1 + len(others))) if others else (y, 0)


def _batched_backward(
    spec: OpSpec, info: Any, in_dims: Any, grad: Any, x: Any, weight: Any, *attributes: float
) -> tuple[Any, Any]:
    """The weight's gradient is summed over the rows of each example only."""
    size = info.batch_size
    grads, batch = _front(grad, in_dims[0], size), _front(x, in_dims[1], size)
    ones = batch.new_ones(batch.shape[-1])
    weights = _per_example(_front(weight, in_dims[2], size), batch)
    x_grad, _ = _operator(spec, "_backward")(grads * weights, batch, ones, *attributes)
    shares = grads * _operator(spec)(batch, ones, *attributes)
    rows = shares.flatten(1, -2).sum(1) if shares.dim() > 2 else shares
    return (x_grad, rows), (0, 0)


def _register_sharding(tensor_module: ModuleType) -> None:
    from torch.distributed.tensor.experimental import register_sharding

    shard, replicate = tensor_module.Shard, tensor_module.Replicate

    def rows_of(x: Any) -> list[Any]:
        """Where ``x`` may lie: whole rows stay together."""
        return [replicate(), *(shard(dim) for dim in range(x.ndim - 1))]

    def forward(spec: OpSpec) -> Any:
        rows, results = len(spec.inputs) - 1, len(spec.outputs)

        def strategies(x: Any, *others: Any) -> list[Any]:
            attributes = [None] * (len(others) - rows)
            return [([p] * results, [*[p] * rows, replicate(), *attributes]) for p in rows_of(x)]

        return strategies

    def backward(grad: Any, x: Any, weight: Any, *attributes: Any) -> list[Any]:
        """Each part of the rows has its share of the weight's gradient."""
        partial = tensor_module.Partial("sum")
        return [
            (
                [p, replicate() if p == replicate() else partial],
                [p, p, replicate(), *[None] * len(attributes)],
            )
            for p in rows_of(x)
        ]

    for spec in NORMS:
        register_sharding(_operator(spec))(forward(spec))
        if _has_backward(spec):
            register_sharding(_operator(spec, "_backward"))(backward)


def register() -> None:
    """Registers the rules. Those for DTensor wait for its import."""
    for spec in NORMS:
        torch.library.register_vmap(_operator(spec), functools.partial(_batched, spec))
        if _has_backward(spec):
            torch.library.register_vmap(
                _operator(spec, "_backward"), functools.partial(_batched_backward, spec)
            )
    call_after_import("torch.distributed.tensor", _register_sharding)
