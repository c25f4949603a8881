# SPDX-License-Identifier: Apache-2.0
"""Batching and sharding rules of the normalizations."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from myops._after_import import call_after_import
from myops.spec import DOMAIN


def _front(tensor: torch.Tensor, dim: int | None, size: int) -> torch.Tensor:
    """``tensor`` with the batch in front."""
    if dim is None:
        return tensor.unsqueeze(0).expand(size, *tensor.shape)
    return tensor.movedim(dim, 0)


def _per_example(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """A batch of weights, shaped to multiply the rows of a batch of ``x``."""
    return weight.reshape(weight.shape[0], *[1] * (x.dim() - 2), weight.shape[1])


def _rms_norm(info: Any, in_dims: Any, x: Any, weight: Any, eps: float) -> tuple[Any, int]:
    op = getattr(torch.ops, DOMAIN).rms_norm.default
    batch = _front(x, in_dims[0], info.batch_size)
    if in_dims[1] is None:
        return op(batch, weight, eps), 0
    weights = _per_example(weight.movedim(in_dims[1], 0), batch)
    return op(batch, batch.new_ones(batch.shape[-1]), eps) * weights, 0


def _add_rms_norm(
    info: Any, in_dims: Any, x: Any, residual: Any, weight: Any, eps: float
) -> tuple[Any, Any]:
    op = getattr(torch.ops, DOMAIN).add_rms_norm.default
    batch = _front(x, in_dims[0], info.batch_size)
    other = _front(residual, in_dims[1], info.batch_size)
    if in_dims[2] is None:
        return op(batch, other, weight, eps), (0, 0)
    y, total = op(batch, other, batch.new_ones(batch.shape[-1]), eps)
    return (y * _per_example(weight.movedim(in_dims[2], 0), batch), total), (0, 0)


def _rms_norm_backward(
    info: Any, in_dims: Any, grad: Any, x: Any, weight: Any, eps: float
) -> tuple[Any, Any]:
    """The weight's gradient is summed over the rows of each example only."""
    ops = getattr(torch.ops, DOMAIN)
    size = info.batch_size
    grads, batch = _front(grad, in_dims[0], size), _front(x, in_dims[1], size)
    ones = batch.new_ones(batch.shape[-1])
    weights = _per_example(_front(weight, in_dims[2], size), batch)
    x_grad, _ = ops.rms_norm_backward.default(grads * weights, batch, ones, eps)
    shares = grads * ops.rms_norm.default(batch, ones, eps)
    rows = shares.flatten(1, -2).sum(1) if shares.dim() > 2 else shares
    return (x_grad, rows), (0, 0)


def _register_sharding(tensor_module: ModuleType) -> None:
    from torch.distributed.tensor.experimental import register_sharding

    shard, replicate = tensor_module.Shard, tensor_module.Replicate
    ops = getattr(torch.ops, DOMAIN)

    def rows_of(x: Any) -> list[Any]:
        """Where ``x`` may lie: whole rows stay together."""
        return [replicate(), *(shard(dim) for dim in range(x.ndim - 1))]

    def forward(x: Any, weight: Any, *eps: Any) -> list[Any]:
        return [([p], [p, replicate(), *[None] * len(eps)]) for p in rows_of(x)]

    def add_forward(x: Any, residual: Any, weight: Any, *eps: Any) -> list[Any]:
        return [([p, p], [p, p, replicate(), *[None] * len(eps)]) for p in rows_of(x)]

    def backward(grad: Any, x: Any, weight: Any, *eps: Any) -> list[Any]:
        """Each part of the rows has its share of the weight's gradient."""
        partial = tensor_module.Partial("sum")
        return [
            (
                [p, replicate() if p == replicate() else partial],
                [p, p, replicate(), *[None] * len(eps)],
            )
            for p in rows_of(x)
        ]

    register_sharding(ops.rms_norm.default)(forward)
    register_sharding(ops.add_rms_norm.default)(add_forward)
    register_sharding(ops.rms_norm_backward.default)(backward)


def register() -> None:
    """Registers the rules. Those for DTensor wait for its import."""
    ops = getattr(torch.ops, DOMAIN)
    torch.library.register_vmap(ops.rms_norm.default, _rms_norm)
    torch.library.register_vmap(ops.add_rms_norm.default, _add_rms_norm)
    torch.library.register_vmap(ops.rms_norm_backward.default, _rms_norm_backward)
    call_after_import("torch.distributed.tensor", _register_sharding)
