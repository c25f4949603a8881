# SPDX-License-Identifier: Apache-2.0
"""Derivatives: reverse and forward mode, first and second, over layouts; none is lost silently."""

from __future__ import annotations

import myops.functional as F
import pytest
import torch
from torch.autograd import forward_ad

from ..support import each_spec, each_spec_with
from .support import (
    LAYOUTS,
    composed,
    each_spec_with_layout,
    function,
    leading,
    other_attributes,
    overloads,
    pass_tensors,
    results,
)


def _leaves(spec, layout: str = "contiguous") -> list[torch.Tensor]:
    # gradcheck perturbs elements one by one, which memory shared between elements forbids.
    tensors = pass_tensors(spec, "", lambda s: LAYOUTS[layout](s, torch.float64))
    return [tensor.requires_grad_() for tensor in tensors]


each_spec_with_gradcheck_layout = each_spec_with(
    "layout",
    [name for name in LAYOUTS if not name.startswith(("expanded", "overlapping"))],
    ("contiguous",),
)


@each_spec_with_gradcheck_layout
def test_gradcheck(spec, layout):
    attributes = other_attributes(spec)
    assert torch.autograd.gradcheck(
        lambda *inputs: function(spec)(*inputs, **attributes),
        _leaves(spec, layout),
        check_forward_ad=True,
        check_backward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=True,
    )


@each_spec_with_gradcheck_layout
def test_gradgradcheck(spec, layout):
    attributes = other_attributes(spec)
    assert torch.autograd.gradgradcheck(
        lambda *inputs: function(spec)(*inputs, **attributes),
        _leaves(spec, layout),
        check_fwd_over_rev=True,
        check_rev_over_rev=True,
        check_batched_grad=True,
    )


@each_spec
@pytest.mark.parametrize("layout", ["expanded", "overlapping", "channels_last"])
def test_gradients_through_views(spec, layout):
    """Elements that share memory collect the gradients of all their places."""
    bases = pass_tensors(spec, "", lambda s: torch.randn(24, dtype=torch.float64))
    view = {
        "expanded": lambda base: base[:4].view(4, 1).expand(4, 6),
        "overlapping": lambda base: base.as_strided((4, 6), (2, 1)),
        "channels_last": lambda base: base.view(2, 3, 2, 2).contiguous(
            memory_format=torch.channels_last
        ),
    }[layout]
    results = []
    for op in (function(spec), composed(spec)):
        leaves = [base.clone().requires_grad_() for base in bases]
        y = op(*(view(leaf) for leaf in leaves))
        weight = torch.arange(y.numel(), dtype=y.dtype).view(y.shape)
        results.append(torch.autograd.grad((y * weight).sum(), leaves))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


@each_spec
def test_gradient_is_not_lost_beside_another_path(spec):
    """Without an autograd registration this gives the other path's gradient and no error."""
    leaves = _leaves(spec)
    (function(spec)(*leaves).sum() + leaves[0].sum()).backward()
    expected = _leaves(spec)
    composed(spec)(*expected).sum().backward()
    torch.testing.assert_close(leaves[0].grad, expected[0].grad + 1)
    assert not torch.equal(leaves[0].grad, torch.ones_like(leaves[0]))


@each_spec
def test_forward_mode_tangent_is_not_zero(spec):
    primals = [leaf.detach() for leaf in _leaves(spec)]
    tangents = [torch.randn_like(primal) for primal in primals]
    outcomes = []
    for op in (function(spec), composed(spec)):
        with forward_ad.dual_level():
            duals = [forward_ad.make_dual(*p) for p in zip(primals, tangents, strict=True)]
            outcomes.append(forward_ad.unpack_dual(op(*duals)).tangent)
    assert outcomes[0] is not None
    torch.testing.assert_close(*outcomes)


@each_spec
def test_only_what_requires_grad_gets_one(spec):
    for index in range(len(spec.inputs)):
        leaves = [leaf.detach() for leaf in _leaves(spec)]
        leaves[index].requires_grad_()
        y = function(spec)(*leaves)
        assert y.requires_grad
        y.sum().backward()
        assert [leaf.grad is not None for leaf in leaves] == [
            i == index for i in range(len(leaves))
        ]
    with torch.no_grad():
        assert not function(spec)(*_leaves(spec)).requires_grad
    with torch.inference_mode():
        assert function(spec)(*_leaves(spec)).is_inference()


@each_spec_with_layout
def test_gradient_has_the_inputs_layout(spec, layout):
    tensors = pass_tensors(spec, "_backward", lambda s: LAYOUTS[layout](s, torch.float32))
    for grad in results(overloads(spec, "_backward").default(*tensors)):
        assert grad.stride() == torch.empty_like(tensors[leading(spec)]).stride()


@each_spec
def test_backward_in_float_types(spec):
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        leaves = [leaf.detach().to(dtype).requires_grad_() for leaf in _leaves(spec)]
        function(spec)(*leaves).sum().backward()
        assert all(leaf.grad.dtype == dtype for leaf in leaves)


@each_spec
def test_saved_input_that_changed_is_an_error(spec):
    leaves = [leaf.clone() for leaf in _leaves(spec)]
    y = function(spec)(*leaves)
    with torch.no_grad():
        leaves[0].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@each_spec
def test_second_backward_needs_retain_graph(spec):
    leaves = _leaves(spec)
    y = function(spec)(*leaves).sum()
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


@each_spec
def test_saved_tensor_hooks_and_checkpointing(spec):
    packed = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.append(tensor)
        return tensor

    leaves = _leaves(spec)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = function(spec)(*leaves)
    assert len(packed) == len(leaves)
    y.sum().backward()
    again = _leaves(spec)
    torch.utils.checkpoint.checkpoint(function(spec), *again, use_reentrant=False).sum().backward()
    for leaf, other in zip(leaves, again, strict=True):
        assert torch.equal(leaf.grad, other.grad)


@each_spec
def test_node_names_the_operator(spec):
    y = function(spec)(*_leaves(spec))
    assert y.grad_fn.name() == f"{spec.name}Backward"
    (grad,) = torch.autograd.grad(
        y.sum(), y.grad_fn.next_functions[0][0].variable, None, None, True
    )
    assert grad.grad_fn.name() == f"{spec.name}BackwardBackward"


@each_spec
@pytest.mark.parametrize("way", ["reverse", "forward", "functional"])
def test_third_derivative_says_so(spec, way, check_message):
    x = torch.randn(2, dtype=torch.float64, requires_grad=True)

    def of_the_first(first: torch.Tensor) -> torch.Tensor:
        return function(spec)(first, *(torch.ones_like(first) for _ in spec.inputs[1:]))

    def third() -> None:
        if way == "reverse":
            grads = of_the_first(x)
            for _ in range(3):
                (grads,) = torch.autograd.grad(grads.sum(), x, create_graph=True)
        else:
            jac = of_the_first
            for _ in range(3):
                jac = (torch.func.jacrev if way == "functional" else torch.func.jacfwd)(jac)
            jac(x.detach())

    with pytest.raises(NotImplementedError) as raised:
        third()
    text = check_message(raised.value)
    assert text.startswith(f"[{spec.torch_name}] ")
    assert "third" in text


@each_spec
def test_gradient_of_an_attribute_is_not_lost_silently(spec):
    """Attributes are numbers: a tensor that wants a gradient must not pass for one."""
    for attribute in spec.attributes:
        wanted = torch.tensor(attribute.default, requires_grad=True)
        inputs = [leaf.detach() for leaf in _leaves(spec)]
        with pytest.raises((TypeError, ValueError, RuntimeError)):
            function(spec)(*inputs, **{attribute.name: wanted})


def test_training_with_both_gradients_of_a_residual():
    """The Swish gradient inside a larger graph, against the composed formula."""
    torch.manual_seed(0)
    weight = torch.randn(5, 5, dtype=torch.float64, requires_grad=True)
    x = torch.randn(3, 5, dtype=torch.float64)
    grads = [
        torch.autograd.grad((x + act(x @ weight)).square().sum(), weight)[0]
        for act in (F.swish, torch.nn.functional.silu)
    ]
    torch.testing.assert_close(*grads)
