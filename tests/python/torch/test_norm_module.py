# SPDX-License-Identifier: Apache-2.0
"""``nn.RMSNorm`` beside ``torch.nn.RMSNorm``, and their exchange in a model."""

from __future__ import annotations

import copy
import io

import myops.functional as F
import myops.nn
import pytest
import torch
from myops.swap import to_myops, to_torch
from torch.func import functional_call, grad, vmap

from .support import DTYPES, each_dtype

NORMALIZED = [5, (5,), [5], (4, 5), (3, 4, 5), torch.Size([4, 5])]

each_shape = pytest.mark.parametrize("shape", NORMALIZED, ids=str)
each_eps = pytest.mark.parametrize("eps", [None, 1e-3, 0.0], ids=str)
each_affine = pytest.mark.parametrize("affine", [True, False], ids=["affine", "plain"])


def _pair(*arguments: object, **more: object) -> tuple[torch.nn.Module, torch.nn.Module]:
    """Ours and torch's, with one weight that is not 1."""
    ours, theirs = (kind(*arguments, **more) for kind in (myops.nn.RMSNorm, torch.nn.RMSNorm))
    if theirs.weight is not None:
        torch.nn.init.normal_(theirs.weight)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


@each_shape
@each_eps
@each_affine
@each_dtype
def test_equals_torchs(shape, eps, affine, dtype):
    ours, theirs = _pair(shape, eps=eps, elementwise_affine=affine, dtype=DTYPES[dtype])
    x = torch.randn(2, 3, 4, 5, dtype=torch.float64).to(DTYPES[dtype])
    pair = []
    for module in (ours, theirs):
        leaf = x.clone().requires_grad_()
        y = module(leaf)
        assert y.dtype == DTYPES[dtype]
        assert y.shape == x.shape
        (y.sin() * torch.arange(5)).sum().backward()
        pair.append((y, leaf.grad, *(p.grad for p in module.parameters())))
    # Both round, and torch the halves once more; its gradients are off by up to 15 epsilons.
    epsilon = 32 * torch.finfo(DTYPES[dtype]).eps
    for a, b in zip(*pair, strict=True):
        size = max(1.0, float(b.detach().abs().max()))
        torch.testing.assert_close(a, b, rtol=epsilon, atol=epsilon * size)


@each_dtype
def test_eps_of_none_is_that_of_the_precision_that_computes(dtype):
    """Tiny rows show it."""
    x = torch.full((1, 8), 1e-7, dtype=DTYPES[dtype])
    computes = torch.float64 if dtype == "float64" else torch.float32
    expected = F.rms_norm(x, torch.ones(8, dtype=x.dtype), torch.finfo(computes).eps)
    assert torch.equal(myops.nn.RMSNorm(8)(x), expected)
    assert not torch.equal(F.rms_norm(x, torch.ones(8, dtype=x.dtype)), expected)


@each_shape
@each_affine
def test_residual(shape, affine):
    module, _ = _pair(shape, elementwise_affine=affine)
    x, residual = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 5)
    y, total = module(x, residual)
    assert torch.equal(total, x + residual)
    assert torch.equal(y, module(total))
    assert y.shape == total.shape == x.shape


@each_shape
def test_state_dict_goes_both_ways(shape):
    ours, theirs = _pair(shape)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    other = torch.nn.RMSNorm(shape)
    other.load_state_dict(ours.state_dict())
    assert torch.equal(other.weight, theirs.weight)
    assert _pair(shape, elementwise_affine=False)[0].state_dict() == {}


def test_reset_parameters():
    module, _ = _pair((4, 5), dtype=torch.float64)
    module.reset_parameters()
    assert torch.equal(module.weight, torch.ones(4, 5, dtype=torch.float64))
    myops.nn.RMSNorm(5, elementwise_affine=False).reset_parameters()
    empty = myops.nn.RMSNorm(5, device="meta").to_empty(device="cpu")
    empty.reset_parameters()
    assert torch.equal(empty.weight, torch.ones(5))


@each_shape
@each_eps
@each_affine
def test_repr_is_torchs(shape, eps, affine):
    ours, theirs = _pair(shape, eps=eps, elementwise_affine=affine)
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("way", ["deepcopy", "torch.save"])
def test_copies(way):
    module, _ = _pair(5, eps=1e-3)
    if way == "deepcopy":
        other = copy.deepcopy(module)
    else:
        file = io.BytesIO()
        torch.save(module, file)
        file.seek(0)
        other = torch.load(file, weights_only=False)
    x = torch.randn(3, 5)
    assert other.weight is not module.weight
    assert torch.equal(other(x), module(x))


@pytest.mark.parametrize("given", DTYPES)
@each_dtype
def test_the_inputs_dtype_counts(given, dtype):
    """The weight is converted; its gradient has the weight's dtype."""
    module = myops.nn.RMSNorm(8, dtype=DTYPES[dtype])
    x = torch.randn(3, 8).to(DTYPES[given]).requires_grad_()
    for enabled in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            y = module(x)
        assert y.dtype == DTYPES[given]
        y.sum().backward()
        assert module.weight.grad.dtype == DTYPES[dtype]


@pytest.mark.parametrize("normalized", [5, (4, 5)], ids=str)
@pytest.mark.parametrize("shape", [(2, 4), (5, 4), (1,), ()], ids=str)
def test_wrong_shape(normalized, shape, check_message):
    with pytest.raises(ValueError) as raised:
        myops.nn.RMSNorm(normalized)(torch.ones(shape))
    if normalized != 5:  # else the operator says it
        assert str(list(shape)) in check_message(raised.value)


def test_checkpoint():
    module, _ = _pair(5)
    x = torch.randn(3, 5, requires_grad=True)
    again = torch.utils.checkpoint.checkpoint(module, x, use_reentrant=False)
    assert torch.equal(again, module(x))
    again.sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("normalized", [5, (4, 5)], ids=str)
def test_wrong_residual(normalized, check_message):
    module = myops.nn.RMSNorm(normalized)
    for shape in ((1, 4, 5), (4, 5), (5,), (2, 4, 1), (2, 5, 4)):
        with pytest.raises(ValueError) as raised:
            module(torch.ones(2, 4, 5), torch.ones(shape))
        assert "residual" in check_message(raised.value)


def test_eps_that_is_not_usable(check_message):
    with pytest.raises(TypeError, match="requires grad"):
        myops.nn.RMSNorm(5, eps=torch.tensor(1.0, requires_grad=True))
    with pytest.raises(ValueError) as raised:
        myops.nn.RMSNorm(5, eps=-1.0)(torch.ones(2, 5))
    assert "eps" in check_message(raised.value)


class _Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(6, 4)
        self.norm = torch.nn.RMSNorm(4, eps=1e-3)
        self.shared = self.norm
        self.plain = torch.nn.RMSNorm(4, elementwise_affine=False)
        self.outer = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(self.shared(self.plain(self.norm(self.inner(x)))))


def test_swap_there_and_back_keeps_the_parameters():
    net, x = _Block().eval(), torch.randn(3, 6)
    net.norm.weight.requires_grad_(False)
    torch.nn.init.normal_(net.norm.weight)
    before, parameters, keys = net(x), list(net.parameters()), list(net.state_dict())
    assert set(to_myops(net)) == {"norm", "shared", "plain"}
    for way, kind in ((None, myops.nn.RMSNorm), (to_torch, torch.nn.RMSNorm)):
        if way is not None:
            assert set(way(net)) == {"norm", "shared", "plain"}
        assert type(net.norm) is type(net.plain) is kind
        assert net.norm is net.shared
        assert net.norm.eps == 1e-3
        assert net.plain.eps is None
        assert not net.norm.training
        assert list(net.state_dict()) == keys
        assert all(a is b for a, b in zip(net.parameters(), parameters, strict=True))
        assert not net.norm.weight.requires_grad
        torch.testing.assert_close(net(x), before)


def test_swap_keeps_the_device_of_a_norm_without_a_weight():
    net = torch.nn.Sequential(torch.nn.RMSNorm((2, 4), elementwise_affine=False))
    x = torch.randn(3, 2, 4)
    expected = net(x)
    to_myops(net)
    torch.testing.assert_close(net(x), expected)


def test_functional_call_and_per_sample_gradients():
    # No shared module: torch's functional_call does not put its parameters back.
    layers = (torch.nn.Linear(6, 4), torch.nn.RMSNorm(4), torch.nn.Linear(4, 2))
    net = torch.nn.Sequential(*layers).double()
    to_myops(net)
    parameters = dict(net.named_parameters())
    x = torch.randn(5, 6, dtype=torch.float64)
    doubled = {name: value.detach() * 2 for name, value in parameters.items()}
    assert not torch.equal(functional_call(net, doubled, (x,)), net(x))

    def loss(values: dict, row: torch.Tensor) -> torch.Tensor:
        return functional_call(net, values, (row,)).square().sum()

    batched = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
    for i, row in enumerate(x):
        net.zero_grad()
        net(row).square().sum().backward()
        for name, parameter in net.named_parameters():
            torch.testing.assert_close(batched[name][i], parameter.grad)


def test_ensemble_of_modules():
    modules = [_pair(4)[0].double() for _ in range(3)]
    parameters, _ = torch.func.stack_module_state(modules)
    x = torch.randn(2, 4, dtype=torch.float64)
    outcome = vmap(lambda p: functional_call(modules[0], p, (x,)))(parameters)
    torch.testing.assert_close(outcome, torch.stack([module(x) for module in modules]))
