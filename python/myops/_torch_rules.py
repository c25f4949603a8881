# SPDX-License-Identifier: Apache-2.0
"""Transform rules that torch lets libraries state in Python only: batching for ``torch.vmap``."""

from __future__ import annotations

import functools
from typing import Any

import torch

from myops.spec import DOMAIN, SPECS

_PASSES = ("", "_backward", "_double_backward")


def _batched(
    op: Any, info: Any, in_dims: tuple[int | None, ...], *args: Any
) -> tuple[torch.Tensor, int]:
    """Elementwise operators run once over the whole batch, with it in front."""
    moved = []
    for argument, dim in zip(args, in_dims, strict=True):
        if not isinstance(argument, torch.Tensor):
            moved.append(argument)
        elif dim is None:
            moved.append(argument.unsqueeze(0).expand(info.batch_size, *argument.shape))
        else:
            moved.append(argument.movedim(dim, 0))
    return op(*moved), 0


@functools.cache
def register() -> None:
    """Registers the rules, once per process."""
    for spec in SPECS:
        for suffix in _PASSES:
            op = getattr(getattr(torch.ops, DOMAIN), spec.torch_name + suffix).default
            torch.library.register_vmap(op, functools.partial(_batched, op))
