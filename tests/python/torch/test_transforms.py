# SPDX-License-Identifier: Apache-2.0
"""``torch.func`` and ``torch.vmap`` over every operator equal those over the composed formula."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import myops.nn
import pytest
import torch
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

from ..support import each_spec
from .support import (
    composed,
    each_pass,
    each_unary_spec,
    function,
    other_attributes,
    overloads,
    pass_tensors,
    results,
    tensor_count,
)

TRANSFORMS: dict[str, Callable] = {
    "grad": lambda f: grad(lambda *a: f(*a).sum()),
    "grad_of_grad": lambda f: grad(lambda *a: grad(lambda *b: f(*b).sum())(*a).sum()),
    "jacrev": jacrev,
    "jacfwd": jacfwd,
    "hessian": lambda f: hessian(lambda *a: f(*a).sum()),
    "jacrev_of_jacrev": lambda f: jacrev(jacrev(f)),
    "jacfwd_of_jacfwd": lambda f: jacfwd(jacfwd(f)),
    "jacrev_of_jacfwd": lambda f: jacrev(jacfwd(f)),
    "vmap": vmap,
    "vmap_of_vmap": lambda f: vmap(vmap(f), in_dims=1, out_dims=1),
    "vmap_of_grad": lambda f: vmap(grad(lambda *a: f(*a).sum())),
    "vmap_of_jacfwd": lambda f: vmap(jacfwd(f)),
    "vmap_of_hessian": lambda f: vmap(hessian(lambda *a: f(*a).sum())),
    "vjp": lambda f: lambda *a: vjp(f, *a)[1](torch.ones_like(a[0])),
    "jvp": lambda f: lambda *a: jvp(f, a, tuple(torch.ones_like(t) for t in a)),
}


@pytest.fixture(autouse=True)
def _no_fallback():
    """vmap falls back to a slow loop with a warning only."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DeprecationWarning)  # torch's own, of torch.jit
        yield


@each_spec
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_equal_the_composed_formula(spec, transform):
    inputs = [torch.randn(4, 3, dtype=torch.float64) for _ in spec.inputs]
    attributes = other_attributes(spec)
    results = [
        TRANSFORMS[transform](lambda *a, f=f: f(*a, **attributes))(*inputs)
        for f in (function(spec), composed(spec))
    ]
    torch.testing.assert_close(*results)


@each_spec
@each_pass
@pytest.mark.parametrize("in_dim", [0, 1, 2, -1])
@pytest.mark.parametrize("out_dim", [0, 2])
def test_batching_rule_of_each_pass(spec, suffix, in_dim, out_dim):
    op = overloads(spec, suffix).default
    tensors = pass_tensors(spec, suffix, lambda s: torch.randn(2, 3, 4))
    batched = results(vmap(op, in_dims=in_dim, out_dims=out_dim)(*tensors))
    for result, whole in zip(batched, results(op(*tensors)), strict=True):
        assert torch.equal(result, whole.movedim(in_dim % 3, 0).movedim(0, out_dim))


@each_spec
@pytest.mark.parametrize("suffix", ["_backward", "_double_backward"])
def test_batching_rule_with_unbatched_arguments(spec, suffix):
    op = overloads(spec, suffix).default
    count = tensor_count(spec, suffix)
    for batched in range(count):
        tensors = [torch.randn(3, 4) if i == batched else torch.randn(4) for i in range(count)]
        dims = tuple(0 if i == batched else None for i in range(count))
        expected = results(op(*(t if t.dim() == 2 else t.expand(3, 4) for t in tensors)))
        for result, other in zip(results(vmap(op, in_dims=dims)(*tensors)), expected, strict=True):
            assert torch.equal(result, other)


@each_spec
def test_vmap_over_empty_and_scalar_examples(spec):
    for shape in ((3,), (3, 0), (1, 2)):
        inputs = [torch.randn(shape) for _ in spec.inputs]
        assert torch.equal(vmap(function(spec))(*inputs), function(spec)(*inputs))


@each_unary_spec
def test_per_sample_gradients(spec):
    torch.manual_seed(0)
    act = getattr(myops.nn, spec.name)()
    net = torch.nn.Sequential(torch.nn.Linear(6, 4), act, torch.nn.Linear(4, 2)).double()
    parameters = dict(net.named_parameters())
    x = torch.randn(5, 6, dtype=torch.float64)

    def loss(parameters: dict, row: torch.Tensor) -> torch.Tensor:
        return functional_call(net, parameters, (row,)).square().sum()

    batched = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
    for i, row in enumerate(x):
        net.zero_grad()
        net(row).square().sum().backward()
        for name, parameter in net.named_parameters():
            torch.testing.assert_close(batched[name][i], parameter.grad)


@each_spec
def test_ensembles_of_models(spec):
    stacked = torch.randn(7, 3, 4, dtype=torch.float64)
    inputs = [stacked] * len(spec.inputs)
    jacobians = vmap(vmap(jacrev(function(spec))))(*inputs)
    assert jacobians.shape == (7, 3, 4, 4)
    torch.testing.assert_close(jacobians, vmap(vmap(jacrev(composed(spec))))(*inputs))
