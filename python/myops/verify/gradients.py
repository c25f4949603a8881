# SPDX-License-Identifier: Apache-2.0
"""Derivatives against finite differences, in float64."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from myops.opspec import OpSpec

if TYPE_CHECKING:
    import torch

_ROWS, _WIDTH = 3, 5


def _first_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:200]


def check_operator(spec: OpSpec, attributes: Mapping[str, float]) -> str:
    """First and second derivatives and the forward mode of one operator at values of its domain;
    of a function over whole tensors the first, which is all it has, at its samples.

    Returns:
        What is wrong, or nothing.
    """
    import torch

    import myops.functional  # noqa: F401  (the operators must exist)

    operator = getattr(getattr(torch.ops, spec.namespace), spec.torch_name)
    rng = np.random.default_rng(0)
    shapes: list[tuple[int, ...]] = [(_ROWS, _WIDTH)] * len(spec.inputs)
    if spec.kind == "norm":
        shapes[-1] = (_WIDTH,)
    # Away from the ends of the domain: saturated, every derivative is 0 or 1.
    arrays = [rng.uniform(-2.5, 2.5, shape) for shape in shapes]
    if spec.sample is not None:
        arrays = [np.asarray(array, np.float64) for array in spec.sample(rng)]
    inputs = [torch.from_numpy(array).requires_grad_() for array in arrays]

    def call(*values: torch.Tensor) -> Any:
        return operator(*values, **attributes)

    try:
        if spec.kind == "custom":
            torch.autograd.gradcheck(call, inputs, fast_mode=True)
            return ""
        torch.autograd.gradcheck(call, inputs, check_forward_ad=True)
        torch.autograd.gradgradcheck(call, inputs)
    except Exception as error:  # torch raises its own kinds
        return f"{spec.name}: {_first_line(error)}"
    return ""


def check_module(model: torch.nn.Module, inputs: Mapping[str, torch.Tensor]) -> str:
    """First derivatives of a module in evaluation mode with respect to its floating-point inputs
    and its parameters, along random directions.

    Args:
        model: stays as it is.
        inputs: by the names of forward's arguments.

    Returns:
        What is wrong, or nothing.
    """
    import torch
    from torch.utils import _pytree

    double = copy.deepcopy(model).double().eval()
    fixed: dict[str, torch.Tensor] = {}
    names, values = [], []
    for name, tensor in inputs.items():
        if tensor.is_floating_point():
            names.append(name)
            values.append(tensor.detach().double().clone().requires_grad_())
        else:
            fixed[name] = tensor
    parameters = [name for name, p in double.named_parameters() if p.requires_grad]
    values += [dict(double.named_parameters())[name].detach().clone() for name in parameters]
    for value in values:
        value.requires_grad_()
    if not values:
        return ""

    def call(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        arguments = dict(zip(names, given, strict=False)) | fixed
        state = dict(zip(parameters, given[len(names) :], strict=True))
        result = torch.func.functional_call(double, state, kwargs=arguments)
        return tuple(
            leaf
            for leaf in _pytree.tree_leaves(result)
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
        )

    try:
        torch.autograd.gradcheck(call, values, fast_mode=True, atol=1e-4, rtol=1e-3)
    except Exception as error:  # torch raises its own kinds
        return _first_line(error)
    return ""
