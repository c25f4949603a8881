# SPDX-License-Identifier: Apache-2.0
"""RMSNorm in torch, with and without a residual: values, derivatives, transforms, layouts."""

from __future__ import annotations

import copy

import myops.functional
import myops.nn
import myops.swap
import numpy as np
import pytest
import torch
from myops.verify.compare import Tolerance, compare, truth_type
from torch.autograd import gradcheck, gradgradcheck
from torch.utils.checkpoint import checkpoint

from ..support import each_norm

DTYPES = ("float32", "float64", "float16", "bfloat16")
EPS = 2.0**-17

OPS = torch.ops.myops


def _op(spec):
    return getattr(OPS, spec.torch_name)


def _inputs(spec, shape=(3, 4, 5), dtype=torch.float64, seed=0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randn(shape, generator=generator, dtype=dtype) for _ in spec.inputs[:-1]]
    return [*rows, torch.rand(shape[-1], generator=generator, dtype=dtype) + 0.5]


def _all(result) -> tuple[torch.Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def _composed(spec, *inputs: torch.Tensor, eps: float = EPS):
    """The formula in torch's operators."""
    *rows, weight = inputs
    total = rows[0] + rows[1] if len(rows) == 2 else rows[0]
    y = total * torch.rsqrt(total.square().mean(-1, keepdim=True) + eps) * weight
    return (y, total) if len(rows) == 2 else y


@each_norm
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 3, 64, 100, 1024, 2500])
def test_values(spec, dtype, width):
    inputs = _inputs(spec, (5, width), getattr(torch, dtype))
    if len(inputs) == 3:
        # A sum that needs no rounding: the reference does not know the dtype.
        inputs[1] = -inputs[0] / 2
    results = _all(_op(spec)(*inputs, EPS))
    exact = [t.double().numpy().astype(truth_type(dtype)) for t in inputs]
    expected = spec.reference(*exact, eps=EPS)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for result, truth in zip(results, expected, strict=True):
        found = compare(result.double().numpy(), truth, dtype, Tolerance(spec.max_ulp[dtype]))
        assert found.ok, found


@each_norm
def test_derivatives(spec):
    inputs = [t.requires_grad_() for t in _inputs(spec)]

    def function(*args):
        return _op(spec)(*args, EPS)

    assert gradcheck(function, inputs, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(function, inputs)


@each_norm
@pytest.mark.parametrize("needed", range(2))
def test_only_some_gradients(spec, needed):
    inputs = _inputs(spec)
    inputs[-1 if needed else 0].requires_grad_()
    results = _all(_op(spec)(*inputs, EPS))
    assert results[0].requires_grad
    sum(r.sum() for r in results if r.requires_grad).backward()
    assert [t.grad is not None for t in inputs] == [t.requires_grad for t in inputs]


def _layouts() -> dict[str, torch.Tensor]:
    x = torch.randn(4, 6, 8, 10, dtype=torch.float64)
    return {
        "contiguous": x,
        "transposed": x.transpose(0, 1),
        "channels_last": x.to(memory_format=torch.channels_last),
        "rows_sliced": x[:, ::2],
        "columns_sliced": x[..., ::2],
        "columns_moved": x.transpose(-1, -2),
        "expanded": x[:1].expand(4, 6, 8, 10),
        "no_rows": x[:0],
        "one_column": x[..., :1],
        "vector": x[0, 0, 0],
    }


@each_norm
@pytest.mark.parametrize("layout", _layouts())
def test_layouts(spec, layout):
    x = _layouts()[layout]
    rows = [x, x.contiguous() * 0.5][: len(spec.inputs) - 1]
    inputs = [*rows, torch.rand(x.shape[-1], dtype=x.dtype)]
    expected = _all(_composed(spec, *inputs))
    for result, truth in zip(_all(_op(spec)(*inputs, EPS)), expected, strict=True):
        torch.testing.assert_close(result, truth)
        assert result.stride() == torch.empty_like(x).stride()
    torch.library.opcheck(_op(spec).default, (*[t.detach() for t in inputs], EPS))
    leaves = [t.clone().requires_grad_() for t in inputs]
    torch.library.opcheck(_op(spec).default, (*leaves, EPS))
    grad = torch.randn_like(x)
    torch.library.opcheck(OPS.rms_norm_backward.default, (grad, x, inputs[-1], EPS))


@each_norm
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "columns_moved"])
def test_out(spec, layout):
    inputs = _inputs(spec, (6, 7, 8))
    inputs[:-1] = [t.transpose(0, 1) if layout == "transposed" else t for t in inputs[:-1]]
    expected = _all(_op(spec)(*inputs, EPS))
    outs = [torch.empty(0, dtype=torch.float64) for _ in expected]
    if layout == "columns_moved":
        shape = inputs[0].shape
        outs = [torch.empty(shape[0], shape[2], shape[1]).double().mT for _ in expected]
    names = ["out"] if len(outs) == 1 else ["out_y", "out_sum"]
    _op(spec).out(*inputs, EPS, **dict(zip(names, outs, strict=True)))
    for out, truth in zip(outs, expected, strict=True):
        assert torch.equal(out, truth)
    # Onto the inputs.
    rows = [t.clone() for t in inputs[:-1]]
    targets = rows[::-1] if len(outs) == 2 else rows
    _op(spec).out(*rows, inputs[-1], EPS, **dict(zip(names, targets, strict=True)))
    for out, truth in zip(targets, expected, strict=True):
        assert torch.equal(out, truth)
    version = outs[0]._version
    _op(spec).out(*inputs, EPS, **dict(zip(names, outs, strict=True)))
    assert outs[0]._version > version
    with pytest.raises(RuntimeError, match=r"out= form should be called without gradients"):
        _op(spec).out(
            inputs[0].clone().requires_grad_(),
            *inputs[1:],
            EPS,
            **dict(zip(names, outs, strict=True)),
        )


@each_norm
def test_errors(spec, check_message):
    *rows, weight = _inputs(spec)
    x = rows[0]
    op = _op(spec)
    cases = [
        (ValueError, [*rows, weight[:-1]], {}),
        (ValueError, [*rows, weight[None]], {}),
        (TypeError, [*rows, weight.float()], {}),
        (TypeError, [*[t.long() for t in rows], weight], {}),
        (ValueError, [*[t[0, 0, 0] for t in rows], weight], {}),
        (ValueError, [*rows, weight], {"eps": -1.0}),
        (ValueError, [*rows, weight], {"eps": float("nan")}),
        (ValueError, [*rows, weight.to("meta")], {}),
        (TypeError, [*[t.to_sparse() for t in rows], weight], {}),
    ]
    if len(rows) == 2:
        cases += [
            (ValueError, [x, x[:1], weight], {}),
            (TypeError, [x, x.float(), weight], {}),
        ]
    for kind, arguments, attributes in cases:
        with pytest.raises(kind) as raised:
            op(*arguments, **attributes)
        assert check_message(raised.value).startswith(f"[{spec.torch_name}]")


def test_errors_of_the_function():
    x, weight = torch.ones(2, 3), torch.ones(3)
    with pytest.raises(TypeError, match=r"which is not trained"):
        myops.functional.rms_norm(x, weight, torch.tensor(1.0, requires_grad=True))
    with pytest.raises(TypeError, match=r"out should be a pair"):
        myops.functional.rms_norm(x, weight, residual=x, out=x)


@pytest.mark.parametrize("dynamic", [False, True])
@each_norm
def test_compile(spec, dynamic):
    def function(*args):
        results = _all(_op(spec)(*args, EPS))
        return sum(r.sin().sum() for r in results)

    compiled = torch.compile(function, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for rows in (2, 5):
        ours = [t.requires_grad_() for t in _inputs(spec, (rows, 3, 16))]
        theirs = [t.detach().clone().requires_grad_() for t in ours]
        function(*ours).backward()
        compiled(*theirs).backward()
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(b.grad, a.grad)


@each_norm
def test_function_transforms(spec):
    inputs = tuple(_inputs(spec, (2, 3)))
    every = tuple(range(len(inputs)))

    def ours(*args):
        return _all(_op(spec)(*args, EPS))[0].sin().sum()

    def theirs(*args):
        return _all(_composed(spec, *args))[0].sin().sum()

    for transform in (torch.func.grad, torch.func.jacrev, torch.func.jacfwd, torch.func.hessian):
        a, b = transform(ours, every)(*inputs), transform(theirs, every)(*inputs)
        torch.testing.assert_close(a, b)


@each_norm
@pytest.mark.parametrize("batched_weight", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
def test_vmap(spec, batched_weight, dim):
    *rows, weight = _inputs(spec, (4, 5, 6))
    if batched_weight:
        weight = torch.rand(rows[0].shape[dim], 6, dtype=torch.float64)
    dims = (*[dim] * len(rows), 0 if batched_weight else None)
    ours = torch.vmap(lambda *a: _op(spec)(*a, EPS), dims)(*rows, weight)
    theirs = torch.vmap(lambda *a: _composed(spec, *a), dims)(*rows, weight)
    torch.testing.assert_close(ours, theirs)


@each_norm
@pytest.mark.parametrize("shape", [(6,), (3, 6)])
def test_per_sample_gradients(spec, shape):
    *rows, weight = _inputs(spec, (4, *shape))

    def loss(weight, *rows):
        return _all(_op(spec)(*rows, weight, EPS))[0].sin().sum()

    dims = (None, *[0] * len(rows))
    together = torch.vmap(torch.func.grad(loss), dims)(weight, *rows)
    one_by_one = [torch.func.grad(loss)(weight, *(t[i] for t in rows)) for i in range(4)]
    torch.testing.assert_close(together, torch.stack(one_by_one))


@pytest.mark.parametrize("width", [64, 1024])
def test_weight_gradient_has_the_same_bits_for_any_number_of_threads(width):
    x = torch.randn(2**18 // width, width)
    results = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(OPS.rms_norm_backward(x.cos(), x, torch.ones(width), EPS))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0][1], results[1][1])
    assert torch.equal(results[0][0], results[1][0])


@pytest.mark.parametrize("eps", [None, 1e-5])
@pytest.mark.parametrize("shape", [8, (8,), (4, 8)])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_module_is_torchs(eps, shape, affine, dtype):
    dtype = getattr(torch, dtype)
    ours = myops.nn.RMSNorm(shape, eps, affine, dtype=dtype)
    theirs = torch.nn.RMSNorm(shape, eps, affine, dtype=dtype)
    if affine:
        torch.nn.init.uniform_(theirs.weight)
    ours.load_state_dict(theirs.state_dict())
    x = (1e-3 * torch.randn(2, 4, 8)).to(dtype)
    torch.testing.assert_close(ours(x), theirs(x))
    y, total = ours(x, x)
    torch.testing.assert_close((y, total), (theirs(x + x), x + x))
    assert repr(ours) == repr(theirs)


def test_module():
    module = myops.nn.RMSNorm(8, 1e-5)
    torch.nn.init.zeros_(module.weight)
    module.reset_parameters()
    assert torch.equal(module.weight, torch.ones(8))
    x = torch.randn(3, 8, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        assert module(x).dtype == torch.float32
        assert module(x.bfloat16()).dtype == torch.bfloat16
    again = checkpoint(module, x, use_reentrant=False)
    assert torch.equal(again, module(x))
    again.sum().backward()
    other = torch.func.functional_call(module, {"weight": 2 * module.weight}, (x,))
    torch.testing.assert_close(other, 2 * module(x))
    assert torch.equal(copy.deepcopy(module)(x), module(x))
    with pytest.raises(ValueError, match=r"weight should have the size of the last dim of x"):
        module(torch.ones(3, 4))
    with pytest.raises(ValueError, match=r"the last dims of x should be \[2, 4\]"):
        myops.nn.RMSNorm((2, 4))(torch.ones(3, 8))


def test_swap_keeps_the_very_parameters():
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.RMSNorm(8, 1e-5))
    weight, x = model[1].weight, torch.randn(3, 4)
    before = model(x)
    assert set(myops.swap.to_myops(model)) == {"1"}
    assert isinstance(model[1], myops.nn.RMSNorm)
    assert model[1].weight is weight
    torch.testing.assert_close(model(x), before)
    assert set(myops.swap.to_torch(model)) == {"1"}
    assert isinstance(model[1], torch.nn.RMSNorm)
    assert model[1].weight is weight
    assert torch.equal(model(x), before)


def test_special_rows():
    x = torch.ones(4, 8)
    x[0], x[1, 3], x[2, 3], x[3] = 0, np.nan, np.inf, 1e38
    y = myops.functional.rms_norm(x, torch.ones(8))
    assert torch.equal(y[0], torch.zeros(8))
    assert y[1].isnan().all()
    assert y[2].isnan().tolist() == [i == 3 for i in range(8)]
    assert torch.equal(y[3], torch.ones(8))
    gx, _ = OPS.rms_norm_backward(torch.ones(1, 8), x[3:], torch.ones(8))
    assert torch.isfinite(gx).all()
