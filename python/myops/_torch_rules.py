# SPDX-License-Identifier: Apache-2.0
"""Rules that torch lets libraries state in Python only: batching for ``torch.vmap``, sharding for
``DTensor``."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch

from myops._after_import import call_after_import
from myops.spec import DOMAIN, SPECS

_PASSES = ("", "_backward", "_double_backward")


def _operators() -> Iterator[Any]:
    for spec in SPECS:
        for suffix in _PASSES:
            yield getattr(getattr(torch.ops, DOMAIN), spec.torch_name + suffix).default


def _batched(op: Any, info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Any, Any]:
    """Elementwise operators run once over the whole batch, with it in front."""
    moved = []
    for argument, dim in zip(args, in_dims, strict=True):
        if not isinstance(argument, torch.Tensor):
            moved.append(argument)
        elif dim is None:
            moved.append(argument.unsqueeze(0).expand(info.batch_size, *argument.shape))
        else:
            moved.append(argument.movedim(dim, 0))
    result = op(*moved)
    return (result, 0) if isinstance(result, torch.Tensor) else (result, (0,) * len(result))


def _register_sharding(tensor_module: ModuleType) -> None:
    from torch.distributed.tensor.experimental import register_sharding

    def rule(op: Any) -> Any:
        schema = op._schema
        tensors = [isinstance(a.type, torch.TensorType) for a in schema.arguments]
        results = len(schema.returns)

        def strategies(*args: Any, **kwargs: Any) -> list[tuple[list[Any], list[Any]]]:
            """Elementwise: sharded alike in any dim, or replicated. Never partial: the operators
            are not linear."""
            shard, replicate = tensor_module.Shard, tensor_module.Replicate
            given = tensors[: len(args)]
            placements = [replicate(), *(shard(dim) for dim in range(args[0].ndim))]
            return [
                ([p] * results, [p if is_tensor else None for is_tensor in given])
                for p in placements
            ]

        return strategies

    for op in _operators():
        register_sharding(op)(rule(op))


@functools.cache
def register() -> None:
    """Registers the rules, once per process. Those for DTensor wait for its import."""
    for op in _operators():
        torch.library.register_vmap(op, functools.partial(_batched, op))
    call_after_import("torch.distributed.tensor", _register_sharding)
