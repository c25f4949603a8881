# SPDX-License-Identifier: Apache-2.0
"""Putting our modules in the place of torch's in an existing model, and back."""

from __future__ import annotations

from collections.abc import Callable

import torch

from myops import nn

_TO_OURS: dict[type[torch.nn.Module], Callable[[torch.nn.Module], torch.nn.Module | None]] = {
    torch.nn.SiLU: lambda module: nn.Swish(),
    torch.nn.Hardswish: lambda module: nn.HardSwish(),
    torch.nn.Mish: lambda module: nn.Mish(),
    torch.nn.GELU: lambda module: nn.GeluTanh() if module.approximate == "tanh" else nn.Gelu(),
}

_TO_TORCH: dict[type[torch.nn.Module], Callable[[torch.nn.Module], torch.nn.Module | None]] = {
    nn.Swish: lambda module: torch.nn.SiLU() if module.beta == 1.0 else None,
    nn.HardSwish: lambda module: torch.nn.Hardswish(),
    nn.Mish: lambda module: torch.nn.Mish(),
    nn.Gelu: lambda module: torch.nn.GELU(),
    nn.GeluTanh: lambda module: torch.nn.GELU(approximate="tanh"),
}


def _replace(
    model: torch.nn.Module,
    table: dict[type[torch.nn.Module], Callable[[torch.nn.Module], torch.nn.Module | None]],
) -> dict[str, str]:
    done: dict[str, str] = {}
    made: dict[torch.nn.Module, torch.nn.Module] = {}  # a shared module stays shared
    for path, parent in list(model.named_modules(remove_duplicate=False)):
        for name, child in list(parent.named_children()):
            make = table.get(type(child))  # exact types: a subclass may compute something else
            new = made.get(child) or (make(child) if make is not None else None)
            if new is None:
                continue
            made[child] = new.train(child.training)
            setattr(parent, name, new)
            done[f"{path}.{name}" if path else name] = f"{type(child).__name__} -> {new}"
    return done


def to_myops(model: torch.nn.Module) -> dict[str, str]:
    """Replaces ``SiLU``, ``Hardswish``, ``Mish`` and ``GELU`` inside ``model``, in place.

    Args:
        model: any module. Its parameters, buffers, hooks and state dict keys stay as they are; the
            replaced modules have none.

    Returns:
        Module path -> "old -> new", for what was replaced.

    Does not look at functions (``F.silu``) or subclasses, and ``inplace=True`` becomes an operator
    with an output of its own.
    """
    return _replace(model, _TO_OURS)


def to_torch(model: torch.nn.Module) -> dict[str, str]:
    """Replaces our modules by torch's, in place: the way back from ``to_myops``.

    ``Swish`` with another ``beta`` than 1 stays: torch has no module for it.
    """
    return _replace(model, _TO_TORCH)
