# SPDX-License-Identifier: Apache-2.0
"""Derivatives, transforms and compilation of the norms."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

from ..support import each_norm, each_norm_of_one, each_rms_norm
from .norm_support import composed, function, loss, norm_inputs
from .support import DTYPES, overloads, results

SHAPES = [(5,), (3, 4), (2, 2, 3), (2, 1)]


def _leaves(spec, *arguments: object, **more: object) -> list[torch.Tensor]:
    return [tensor.requires_grad_() for tensor in norm_inputs(spec, *arguments, **more)]


@each_norm
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradcheck(spec, shape):
    leaves = _leaves(spec, shape)
    assert gradcheck(
        function(spec),
        leaves,
        check_forward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=True,
    )
    assert gradgradcheck(function(spec), leaves, check_batched_grad=True, check_fwd_over_rev=True)


@each_norm
def test_gradcheck_of_other_layouts(spec):
    inputs = norm_inputs(spec, make=lambda s: torch.randn(4, 3, 5, dtype=torch.float64))
    rows = [tensor.permute(1, 2, 0)[::2].detach().requires_grad_() for tensor in inputs[:-1]]
    weight = torch.randn(8, dtype=torch.float64)[::2].requires_grad_()
    assert gradcheck(function(spec), (*rows, weight))
    assert gradgradcheck(function(spec), (*rows, weight))


@each_norm
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(9, 65), (2, 3, 1025)], ids=str)
def test_gradients_against_float64(spec, dtype, shape):
    leaves = _leaves(spec, shape, DTYPES[dtype])
    if dtype in ("float16", "bfloat16"):
        # Sums that the halves hold: rounding them is no matter of the gradient.
        for leaf in leaves[:-1]:
            leaf.data = (leaf.data * 4).round().clamp(-32, 32) / 4
    wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
    ours = results(function(spec)(*leaves))
    theirs = results(composed(spec)(*wide))
    cotangents = [torch.randn(y.shape, dtype=torch.float64).to(y.dtype) for y in ours]
    found = torch.autograd.grad(ours, leaves, cotangents)
    expected = torch.autograd.grad(theirs, wide, [c.double() for c in cotangents])
    epsilon = torch.finfo(DTYPES[dtype]).eps
    # The halves round the norm's gradient, and its sum with that of the residual sum.
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == DTYPES[dtype]
        size = max(1.0, float(b.abs().max()))
        torch.testing.assert_close(a.double(), b, rtol=4 * epsilon, atol=4 * epsilon * size)


@each_norm
def test_only_what_is_wanted(spec):
    """Every subset of the inputs, and for several results each of them alone."""
    count = len(spec.inputs)
    for chosen in range(1, 2**count):
        for place in range(len(spec.outputs)):
            inputs = norm_inputs(spec)
            for i, tensor in enumerate(inputs):
                tensor.requires_grad_(bool(chosen >> i & 1))
            wanted = [tensor for tensor in inputs if tensor.requires_grad]
            ours, theirs = (results(f(*inputs))[place] for f in (function(spec), composed(spec)))
            assert ours.requires_grad == theirs.requires_grad
            if ours.requires_grad:
                more = {"allow_unused": True, "materialize_grads": True}
                pair = [torch.autograd.grad(y.sin().sum(), wanted, **more) for y in (ours, theirs)]
                torch.testing.assert_close(*pair)


@each_rms_norm
def test_rows_outside_the_exponent_range_of_squares(spec):
    """The gradient of a row scaled by 2**k is that of the row, scaled by 2**-k: without an eps
    RMSNorm is the same for both."""
    for exponent in (100, -100, 600, -490):
        scale, plain = 2.0**exponent, _leaves(spec, (3, 70))
        scaled = [(t.detach() * scale).requires_grad_() for t in plain[:-1]]
        scaled.append(plain[-1].detach().clone().requires_grad_())
        for leaves in (plain, scaled):
            results(function(spec)(*leaves, eps=0.0))[0].sin().sum().backward()
        for a, b in zip(scaled[:-1], plain[:-1], strict=True):
            torch.testing.assert_close(a.grad * scale, b.grad, rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(scaled[-1].grad, plain[-1].grad, rtol=1e-12, atol=1e-13)


@each_norm_of_one
def test_gradient_of_huge_float32_rows_is_finite(spec):
    grad, x, weight = torch.ones(1, 8), torch.full((1, 8), 1e38), torch.ones(8)
    for result in overloads(spec, "_backward")(grad, x, weight):
        assert result.isfinite().all()


@each_norm
def test_checkpoint(spec):
    plain, again = _leaves(spec), _leaves(spec)
    loss(function(spec), *plain).backward()
    torch.utils.checkpoint.checkpoint(
        lambda *a: loss(function(spec), *a), *again, use_reentrant=False
    ).backward()
    for a, b in zip(plain, again, strict=True):
        assert torch.equal(a.grad, b.grad)


@each_norm
def test_backward_twice_and_after_a_change_in_place(spec):
    leaves = _leaves(spec)
    y = results(function(spec)(*leaves))[0]
    y.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()
    weight = leaves[-1].detach().clone().requires_grad_()
    y = results(function(spec)(*leaves[:-1], weight))[0]
    with torch.no_grad():
        weight.mul_(2)
    with pytest.raises(RuntimeError, match="inplace"):
        y.sum().backward()


@each_norm
def test_tangents(spec):
    inputs, tangents = norm_inputs(spec), norm_inputs(spec)[::-1]
    tangents = [*tangents[:0:-1], tangents[0]]
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(x, t) for x, t in zip(inputs, tangents, strict=True)]
        outcome = [results(f(*duals)) for f in (function(spec), composed(spec))]
        for ours, theirs in zip(*outcome, strict=True):
            torch.testing.assert_close(
                tuple(forward_ad.unpack_dual(ours)), tuple(forward_ad.unpack_dual(theirs))
            )


# Of a function with one result.
SCALAR_TRANSFORMS: dict[str, Callable] = {
    "grad": lambda f, n: grad(f, n),
    "jacrev": lambda f, n: jacrev(f, n),
    "jacfwd": lambda f, n: jacfwd(f, n),
    "hessian": lambda f, n: hessian(f, n),
    "jacrev_of_jacrev": lambda f, n: jacrev(jacrev(f, n), n),
    "jacfwd_of_jacfwd": lambda f, n: jacfwd(jacfwd(f, n), n),
    "jacrev_of_jacfwd": lambda f, n: jacrev(jacfwd(f, n), n),
}


@pytest.fixture
def _no_fallback():
    """vmap falls back to a slow loop with a warning only."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DeprecationWarning)  # torch's own, of torch.jit
        yield


@each_norm
@pytest.mark.parametrize("transform", SCALAR_TRANSFORMS)
@pytest.mark.parametrize("shape", [(3,), (2, 3)], ids=str)
@pytest.mark.usefixtures("_no_fallback")
def test_transforms_equal_the_composed_formula(spec, transform, shape):
    inputs = norm_inputs(spec, shape)
    places = tuple(range(len(inputs)))
    ours, theirs = (
        SCALAR_TRANSFORMS[transform](lambda *a, f=f: loss(f, *a), places)(*inputs)
        for f in (function(spec), composed(spec))
    )
    torch.testing.assert_close(ours, theirs)


@each_norm
@pytest.mark.usefixtures("_no_fallback")
def test_vjp_and_jvp(spec):
    inputs = tuple(norm_inputs(spec))
    ones = tuple(torch.ones_like(tensor) for tensor in inputs)
    torch.testing.assert_close(
        *(
            jvp(lambda *a, f=f: results(f(*a)), inputs, ones)
            for f in (function(spec), composed(spec))
        )
    )
    pulled = []
    for f in (function(spec), composed(spec)):
        outcome, pull = vjp(lambda *a, f=f: results(f(*a)), *inputs)
        pulled.append(pull(tuple(y.cos() for y in outcome)))
    torch.testing.assert_close(*pulled)


VMAPPED: dict[str, Callable] = {
    "forward": lambda f: lambda *a: results(f(*a)),
    "grad": lambda f: grad(lambda *a: loss(f, *a), tuple(range(2))),
    "grad_of_all": lambda f: lambda *a: grad(lambda *b: loss(f, *b), tuple(range(len(a))))(*a),
    "jacfwd": lambda f: jacfwd(lambda *a: results(f(*a))),
    "hessian": lambda f: hessian(lambda *a: loss(f, *a)),
}


@each_norm
@pytest.mark.parametrize("inner", VMAPPED)
@pytest.mark.parametrize("shape", [(3,), (2, 3)], ids=str)
@pytest.mark.usefixtures("_no_fallback")
def test_vmap_over_each_set_of_inputs(spec, inner, shape):
    """Weights batched or not, rows batched or not, equal a loop over the composed formula."""
    size, inputs = 4, norm_inputs(spec, shape)
    for chosen in range(1, 2 ** len(inputs)):
        batched = [bool(chosen >> i & 1) for i in range(len(inputs))]
        given = [
            torch.stack([t * (1 + i) for i in range(size)], -1) if b else t
            for t, b in zip(inputs, batched, strict=True)
        ]
        dims = tuple(-1 if b else None for b in batched)
        ours = vmap(VMAPPED[inner](function(spec)), in_dims=dims)(*given)
        loop = [
            VMAPPED[inner](composed(spec))(
                *(t[..., i] if b else t for t, b in zip(given, batched, strict=True))
            )
            for i in range(size)
        ]
        whole = loop if isinstance(loop[0], torch.Tensor) else list(zip(*loop, strict=True))
        expected = (
            torch.stack(whole)
            if isinstance(loop[0], torch.Tensor)
            else tuple(torch.stack(each) for each in whole)
        )
        torch.testing.assert_close(ours, expected, msg=lambda m, d=dims: f"{d}: {m}")


@each_norm
@pytest.mark.usefixtures("_no_fallback")
def test_vmap_of_vmap(spec):
    inputs = norm_inputs(spec, (5, 4, 2, 3))[:-1]
    weights = torch.randn(4, 3, dtype=torch.float64)
    for f in (lambda f: f, lambda f: lambda *a: grad(lambda w: loss(f, *a[:-1], w))(a[-1])):
        ours, theirs = (
            vmap(vmap(f(g)), in_dims=(*[0] * len(inputs), None))(*inputs, weights)
            for g in (function(spec), composed(spec))
        )
        torch.testing.assert_close(ours, theirs)


@pytest.fixture
def _fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@each_norm
@pytest.mark.parametrize(
    ("backend", "dynamic"), [("aot_eager", True), ("aot_eager", False), ("inductor", True)]
)
@pytest.mark.usefixtures("_fresh_dynamo")
def test_compiled(spec, backend, dynamic):
    def body(*inputs: torch.Tensor):
        y, *rest = results(function(spec)(*(t * 2 for t in inputs)))
        return (y + 1, *rest)

    compiled = torch.compile(body, fullgraph=True, dynamic=dynamic, backend=backend)
    for shape in ((4, 6), (5, 6), (7, 9), (2, 9)):
        ours, theirs = (_leaves(spec, shape, torch.float32) for _ in range(2))
        for f, leaves in ((compiled, ours), (body, theirs)):
            outcome = f(*leaves)
            sum(y.square().sum() for y in outcome).backward()
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a.grad, b.grad)


@each_norm
@pytest.mark.parametrize("layout", ["transposed", "channels_last", "row_sliced"])
@pytest.mark.usefixtures("_fresh_dynamo")
def test_compiled_strides(spec, layout):
    from .norm_support import ROW_LAYOUTS

    compiled = torch.compile(function(spec), fullgraph=True, backend="aot_eager")
    inputs = norm_inputs(spec, make=lambda seed: ROW_LAYOUTS[layout](seed, torch.float32))
    for a, b in zip(results(compiled(*inputs)), results(function(spec)(*inputs)), strict=True):
        assert torch.equal(a, b)
        assert a.stride() == b.stride()


@each_norm
def test_torch_export(spec):
    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor, weight: torch.Tensor):
            return function(spec)(*[x] * (len(spec.inputs) - 1), weight)

    x, weight = torch.randn(4, 6), torch.randn(6)
    rows = torch.export.Dim("rows", min=2)
    program = torch.export.export(Net(), (x, weight), dynamic_shapes=({0: rows}, None))
    assert overloads(spec).default in {node.target for node in program.graph.nodes}
    x = torch.randn(9, 6)
    found, expected = program.module()(x, weight), Net()(x, weight)
    for a, b in zip(results(found), results(expected), strict=True):
        assert torch.equal(a, b)
