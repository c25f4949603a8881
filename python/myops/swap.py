# SPDX-License-Identifier: Apache-2.0
"""Putting our modules in the place of torch's in an existing model, and back."""

from __future__ import annotations

from collections.abc import Callable

import torch

from myops import nn


def _with_parameters(new: torch.nn.Module, old: torch.nn.Module) -> torch.nn.Module:
    """``new``, holding the very parameters of ``old``: optimizers keep them."""
    for name, parameter in old.named_parameters():
        setattr(new, name, parameter)
    return new


def _norm(target: type[torch.nn.Module]) -> Callable[[torch.nn.Module], torch.nn.Module]:
    def make(module: torch.nn.Module) -> torch.nn.Module:
        shape, affine = module.normalized_shape, module.elementwise_affine
        return _with_parameters(target(shape, module.eps, affine, device="meta"), module)

    return make


_TO_OURS: dict[type[torch.nn.Module], Callable[[torch.nn.Module], torch.nn.Module | None]] = {
    torch.nn.SiLU: lambda module: nn.Swish(),
    torch.nn.Hardswish: lambda module: nn.HardSwish(),
    torch.nn.Mish: lambda module: nn.Mish(),
    torch.nn.GELU: lambda module: nn.GeluTanh() if module.approximate == "tanh" else nn.Gelu(),
    torch.nn.RMSNorm: _norm(nn.RMSNorm),
}

_TO_TORCH: dict[type[torch.nn.Module], Callable[[torch.nn.Module], torch.nn.Module | None]] = {
    nn.Swish: lambda module: torch.nn.SiLU() if module.beta == 1.0 else None,
    nn.HardSwish: lambda module: torch.nn.Hardswish(),
    nn.Mish: lambda module: torch.nn.Mish(),
    nn.Gelu: lambda module: torch.nn.GELU(),
    nn.GeluTanh: lambda module: torch.nn.GELU(approximate="tanh"),
    nn.RMSNorm: _norm(torch.nn.RMSNorm),
}


def _replace(
    model: torch.nn.Module,
    table: dict[type[torch.nn.Module], Callable[[torch.nn.Module], torch.nn.Module | None]],
) -> dict[str, str]:
    done: dict[str, str] = {}
    made: dict[torch.nn.Module, torch.nn.Module] = {}  # a shared module stays shared
    for path, parent in list(model.named_modules(remove_duplicate=False)):
        # named_children() would name a child that one parent has twice only once.
        for name, child in list(parent._modules.items()):
            if child is None:
                continue
            make = table.get(type(child))  # exact types: a subclass may compute something else
            new = made.get(child) or (make(child) if make is not None else None)
            if new is None:
                continue
            made[child] = new.train(child.training)
            setattr(parent, name, new)
            done[f"{path}.{name}" if path else name] = f"{type(child).__name__} -> {new}"
    return done


def to_myops(model: torch.nn.Module) -> dict[str, str]:
    """Replaces ``SiLU``, ``Hardswish``, ``Mish``, ``GELU``, ``RMSNorm`` in ``model``, in place.

    Args:
        model: any module. Its parameters, buffers and state dict keys stay as they are: a norm
            keeps the very weight it had. Hooks on the replaced modules are lost.

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
