# SPDX-License-Identifier: Apache-2.0
"""Swish with a coefficient per channel: along any dim, trained, and through every transform."""

from __future__ import annotations

import warnings

import myops.functional as F
import myops.nn
import numpy as np
import pytest
import torch
from myops.spec import SWISH_TENSOR
from torch.autograd import forward_ad
from torch.func import grad, jacfwd, jacrev, vmap

from .support import DTYPES, each_dtype

OP = torch.ops.myops.swish_tensor

SHAPE = (2, 3, 4, 5)
# Shapes that reach SHAPE by broadcasting.
BETAS = [SHAPE, (3, 1, 1), (5,), (), (2, 3, 1, 1), (1, 1, 4, 1), (4, 1), (1,), (2, 1, 1, 5)]
each_beta = pytest.mark.parametrize("shape", BETAS, ids=str)


def _randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).mul(3).to(dtype)


def _composed(x: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(beta * x)


def _leaves(shape: tuple[int, ...]) -> list[torch.Tensor]:
    return [_randn(*s, seed=i).requires_grad_() for i, s in enumerate((SHAPE, shape))]


@each_dtype
@each_beta
@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "transposed", "stepped"])
def test_values(dtype, shape, layout, check_ulp):
    x = _randn(*SHAPE, dtype=DTYPES[dtype])
    if layout == "channels_last":
        x = x.contiguous(memory_format=torch.channels_last)
    elif layout == "transposed":
        x = x.transpose(0, 3).contiguous().transpose(0, 3)
    elif layout == "stepped":
        x = torch.stack([x, x], -1)[..., 0]
    beta = _randn(*shape, seed=1, dtype=DTYPES[dtype])
    with torch.inference_mode():
        y = F.swish_tensor(x, beta)
    assert y.shape == x.shape
    assert y.dtype == x.dtype
    assert y.stride() == torch.empty_like(x).stride()
    kind = np.longdouble if dtype == "float64" else np.float64
    exact = SWISH_TENSOR.reference(*(t.double().numpy().astype(kind) for t in (x, beta)))
    check_ulp(y.double().numpy(), exact, dtype, SWISH_TENSOR.max_ulp[dtype])
    assert torch.equal(y, F.swish_tensor(x, beta.expand(SHAPE).contiguous()))
    assert torch.equal(y, F.swish_tensor(x, beta.clone().requires_grad_()))
    out = torch.empty(0, dtype=x.dtype)
    assert F.swish_tensor(x, beta, out=out) is out
    assert torch.equal(out, y)
    meta = F.swish_tensor(x.to("meta"), beta.to("meta"))
    assert (meta.shape, meta.stride()) == (y.shape, torch.empty_like(x.to("meta")).stride())


@pytest.mark.parametrize("dim", [0, 1, 2, 3, -1, -2, -3, -4])
def test_beta_lies_along_dim(dim):
    x = _randn(*SHAPE)
    beta = _randn(SHAPE[dim], seed=1)
    rest = [1] * 4
    rest[dim] = -1
    torch.testing.assert_close(
        F.swish_per_channel(x, beta, dim), _composed(x, beta.reshape(rest)), rtol=1e-13, atol=0
    )
    out = torch.empty_like(x)
    assert F.swish_per_channel(x, beta, dim, out=out) is out
    assert torch.equal(out, F.swish_per_channel(x, beta, dim))


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_one_element_serves_all_channels(shape):
    for x in (_randn(*SHAPE), _randn(7), _randn()):
        beta = torch.full(shape, 1.7, dtype=torch.float64)
        torch.testing.assert_close(F.swish_per_channel(x, beta), F.swish(x, 1.7))


def test_tasks_of_large_tensors_give_the_same_bits():
    x = _randn(7, 33, 1000, dtype=torch.float32)
    beta = _randn(33, seed=1, dtype=torch.float32)
    expected = torch.stack([F.swish_tensor(r, beta[:, None].expand(33, 1000)) for r in x])
    assert torch.equal(F.swish_per_channel(x, beta), expected)


@each_beta
def test_gradients_equal_the_composed_ones(shape):
    weight = _randn(*SHAPE, seed=7)
    outcomes = []
    for function in (F.swish_tensor, _composed):
        leaves = _leaves(shape)
        first = torch.autograd.grad((function(*leaves) * weight).sum(), leaves, create_graph=True)
        second = torch.autograd.grad(sum(f.square().sum() for f in first), leaves)
        outcomes.append([*first, *second])
    for ours, theirs in zip(*outcomes, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("shape", [(2, 3), (3,), (2, 1), ()], ids=str)
def test_gradcheck(shape):
    leaves = [_randn(2, 3).requires_grad_(), _randn(*shape, seed=1).requires_grad_()]
    assert torch.autograd.gradcheck(
        F.swish_tensor,
        leaves,
        check_forward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=True,
    )
    assert torch.autograd.gradgradcheck(
        F.swish_tensor, leaves, check_fwd_over_rev=True, check_batched_grad=True
    )


@each_beta
@pytest.mark.parametrize("which", [(0,), (1,), (0, 1)])
def test_forward_mode(shape, which):
    primals = [leaf.detach() for leaf in _leaves(shape)]
    outcomes = []
    for function in (F.swish_tensor, _composed):
        with forward_ad.dual_level():
            duals = [
                forward_ad.make_dual(p, torch.ones_like(p)) if i in which else p
                for i, p in enumerate(primals)
            ]
            outcomes.append(forward_ad.unpack_dual(function(*duals)).tangent)
    torch.testing.assert_close(*outcomes)


@pytest.mark.parametrize("shape", [SHAPE, (3, 1, 1), ()], ids=str)
def test_opcheck(shape):
    torch.library.opcheck(OP.default, tuple(_leaves(shape)))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(dynamic):
    act = myops.nn.SwishPerChannel(3, beta=1.5, dtype=torch.float64)
    torch.nn.init.normal_(act.beta)
    compiled = torch.compile(act, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    x = _randn(*SHAPE)
    with torch.no_grad():
        assert torch.equal(compiled(x), act(x))
    outcomes = []
    for module in (compiled, act):
        y = module(x)
        outcomes.append([y, *torch.autograd.grad(y.square().sum(), act.beta)])
    for ours, theirs in zip(*outcomes, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("x_dim", "beta_dim", "beta_shape"),
    [
        (0, None, (3,)),
        (0, None, (4, 1)),
        (0, None, ()),
        (1, 0, (2, 3)),
        (0, 1, (4, 2, 1)),
        (0, 0, (2,)),
        (None, 0, (5, 3)),
        (None, 0, (5,)),
    ],
)
def test_vmap(x_dim, beta_dim, beta_shape):
    x = _randn(4, 3) if x_dim is None else _randn(2, 4, 3).movedim(0, x_dim)
    beta = _randn(*beta_shape, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # vmap's slow loop
        warnings.simplefilter("ignore", DeprecationWarning)
        results = [
            vmap(function, in_dims=(x_dim, beta_dim))(x, beta)
            for function in (F.swish_tensor, _composed)
        ]
        torch.testing.assert_close(*results)


def test_vmap_takes_no_batch_for_a_dim(check_message):
    with pytest.raises(ValueError) as raised:
        vmap(F.swish_tensor, in_dims=(0, None))(torch.ones(2, 3), torch.ones(2, 3))
    assert check_message(raised.value).startswith("[swish_tensor] ")


def test_gradients_per_sample():
    x, beta = _randn(6, 3, 4), _randn(3, seed=1)

    def loss(b: torch.Tensor, sample: torch.Tensor) -> torch.Tensor:
        return F.swish_per_channel(sample, b, 0).square().sum()

    per_sample = vmap(grad(loss), in_dims=(None, 0))(beta, x)
    expected = torch.stack([grad(loss)(beta, sample) for sample in x])
    torch.testing.assert_close(per_sample, expected)
    torch.testing.assert_close(jacrev(loss)(beta, x[0]), jacfwd(loss)(beta, x[0]))


def test_module():
    act = myops.nn.SwishPerChannel(3, beta=1.5)
    assert {k: v.tolist() for k, v in act.state_dict().items()} == {"beta": [1.5] * 3}
    assert isinstance(act.beta, torch.nn.Parameter)
    assert repr(act) == "SwishPerChannel(3, dim=1, beta=1.5)"
    with torch.no_grad():
        act.beta += 1
    other = myops.nn.SwishPerChannel(3)
    other.load_state_dict(act.state_dict())
    assert other.beta.tolist() == [2.5] * 3
    other.reset_parameters()
    assert other.beta.tolist() == [1.0] * 3
    assert myops.nn.SwishPerChannel(2, device="meta", dtype=torch.float64).beta.is_meta
    x = _randn(*SHAPE, dtype=torch.float32)
    torch.testing.assert_close(act(x), F.swish(x, 2.5))


@each_dtype
def test_module_computes_in_the_inputs_dtype(dtype):
    act = myops.nn.SwishPerChannel(5, dim=-1)
    y = act(_randn(*SHAPE, dtype=DTYPES[dtype]))
    assert y.dtype == DTYPES[dtype]
    y.sum().backward()
    assert act.beta.grad.dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inner = torch.nn.Linear(4, 5)(torch.ones(2, 4))
        assert act(inner).dtype == inner.dtype == torch.bfloat16


def test_training_reduces_the_loss():
    torch.manual_seed(0)
    x = torch.randn(64, 3)
    target = F.swish_per_channel(x, torch.tensor([0.5, 1.0, 2.0]))
    act = myops.nn.SwishPerChannel(3)
    optimizer = torch.optim.SGD(act.parameters(), lr=5.0)
    losses = []
    for _ in range(100):
        optimizer.zero_grad()
        loss = (act(x) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 1e-2 * losses[0]


@pytest.mark.parametrize(
    ("error", "word", "shape", "beta", "dim"),
    [
        (IndexError, "from -2 to 1", (2, 3), (3,), 2),
        (IndexError, "from -2 to 1", (2, 3), (3,), -3),
        (IndexError, "[3]", (3,), (3,), 1),
        (ValueError, "Received 4", (2, 3), (4,), 1),
        (ValueError, "[2, 3]", (2, 3), (2, 3), 1),
    ],
)
def test_per_channel_errors(error, word, shape, beta, dim, check_message):
    with pytest.raises(error) as raised:
        F.swish_per_channel(torch.ones(shape), torch.ones(beta), dim)
    text = check_message(raised.value)
    assert text.startswith("[swish_per_channel] ")
    assert word in text


@pytest.mark.parametrize("shape", [(4,), (2, 1), (2, 2, 3), (1, 2, 3), (0,)], ids=str)
@pytest.mark.parametrize("wanted", [False, True])
def test_shapes_that_do_not_broadcast(shape, wanted, check_message):
    x, beta = torch.ones(3, 3), torch.ones(shape)
    with pytest.raises(ValueError) as raised:
        F.swish_tensor(x, beta.requires_grad_(wanted))
    text = check_message(raised.value)
    assert str(list(shape)) in text
    assert "broadcast" in text
    with pytest.raises(TypeError):
        F.swish_tensor(x, torch.ones(3, dtype=torch.float64).requires_grad_(wanted))


@pytest.mark.parametrize(
    "arguments", [(0, float("nan")), (2, float("inf"))], ids=["channels", "beta"]
)
def test_module_errors(arguments, check_message):
    with pytest.raises(ValueError) as raised:
        myops.nn.SwishPerChannel(*arguments[:1], beta=arguments[1])
    assert check_message(raised.value).startswith("[SwishPerChannel] ")
