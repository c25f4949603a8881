# SPDX-License-Identifier: Apache-2.0
"""Rules that torch lets libraries state in Python only: batching for ``torch.vmap``, sharding for
``DTensor``."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import torch

from myops import _norm_rules
from myops._after_import import call_after_import
from myops.spec import ELEMENTWISE, OpSpec

_PASSES = ("", "_backward", "_double_backward")


def _operators(spec: OpSpec) -> Iterator[tuple[Any, bool]]:
    """The operator of each pass, and whether its inputs after the first may be broadcast."""
    for suffix in _PASSES:
        op = getattr(getattr(torch.ops, spec.namespace), spec.torch_name + suffix).default
        yield op, spec.broadcasts and not suffix


def _with_rank(name: str, tensor: torch.Tensor, batched: bool, x: torch.Tensor) -> torch.Tensor:
    """``tensor``, batched or not, with dims of size 1 where its example has fewer than that of
    ``x``: aligned at the last dim, they would otherwise meet the batch."""
    shape = tensor.shape[1:] if batched else tensor.shape
    missing = x.dim() - 1 - len(shape)
    if missing < 0:
        raise ValueError(
            f"[{name}] an input should have no more dims than the first one, {x.dim() - 1} per "
            f"example. Received shape {list(shape)}. Reshape it first."
        )
    return tensor.reshape(*tensor.shape[:1], *[1] * missing, *shape) if batched else tensor


def _batched(
    op: Any, broadcasts: bool, info: Any, in_dims: tuple[int | None, ...], *args: Any
) -> tuple[Any, Any]:
    """Elementwise operators run once over the whole batch, with it in front."""
    moved: list[Any] = []
    for argument, dim in zip(args, in_dims, strict=True):
        if not isinstance(argument, torch.Tensor):
            moved.append(argument)
        elif broadcasts and moved:
            front = argument if dim is None else argument.movedim(dim, 0)
            moved.append(_with_rank(op.name().partition("::")[2], front, dim is not None, moved[0]))
        elif dim is None:
            moved.append(argument.unsqueeze(0).expand(info.batch_size, *argument.shape))
        else:
            moved.append(argument.movedim(dim, 0))
    result = op(*moved)
    return (result, 0) if isinstance(result, torch.Tensor) else (result, (0,) * len(result))


def _register_sharding(specs: Sequence[OpSpec], tensor_module: ModuleType) -> None:
    from torch.distributed.tensor.experimental import register_sharding

    def laid(placement: Any, own: Any, first: Any) -> Any:
        """Where an input goes that is broadcast to the first: not sharded where it is repeated."""
        if not isinstance(placement, tensor_module.Shard):
            return placement
        dim = placement.dim - (first.ndim - own.ndim)
        repeated = dim < 0 or own.shape[dim] != first.shape[placement.dim]
        return tensor_module.Replicate() if repeated else tensor_module.Shard(dim)

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
                (
                    [p] * results,
                    [
                        laid(p, argument, args[0]) if is_tensor else None
                        for argument, is_tensor in zip(args, given, strict=True)
                    ],
                )
                for p in placements
            ]

        return strategies

    for op, _ in itertools.chain.from_iterable(map(_operators, specs)):
        register_sharding(op)(rule(op))


def register_operators(specs: Sequence[OpSpec]) -> None:
    """Registers operators' rules. Those for DTensor wait for its import."""
    specs = [spec for spec in specs if spec.kind == "elementwise"]
    for spec in specs:
        for op, broadcasts in _operators(spec):
            torch.library.register_vmap(op, functools.partial(_batched, op, broadcasts))
    if specs:
        call_after_import("torch.distributed.tensor", functools.partial(_register_sharding, specs))


@functools.cache
def register() -> None:
    """Registers the rules of our operators, once per process."""
    register_operators(ELEMENTWISE)
    _norm_rules.register()
