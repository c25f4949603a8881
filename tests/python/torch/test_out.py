# SPDX-License-Identifier: Apache-2.0
"""The ``out=`` form: what it writes, what it refuses."""

from __future__ import annotations

import itertools
import warnings

import pytest
import torch

from ..support import each_representative, each_spec
from .support import (
    DTYPES,
    LAYOUTS,
    each_dtype,
    each_pass,
    each_spec_with_layout,
    function,
    leading,
    other_attributes,
    out_names,
    outs,
    overloads,
    pass_tensors,
    results,
    same_bits,
    tensor_count,
)

OUTS = {
    "contiguous": lambda x: torch.empty(x.shape, dtype=x.dtype),
    "like": lambda x: torch.empty_like(x),
    "reversed_dims": lambda x: torch.empty(x.shape[::-1], dtype=x.dtype).permute(
        tuple(range(x.dim()))[::-1]
    ),
    "stepped": lambda x: torch.empty(*x.shape, 3, dtype=x.dtype)[..., 1],
    "offset": lambda x: torch.empty(x.numel() + 1, dtype=x.dtype)[1:].view(x.shape),
}


@each_spec_with_layout
@each_pass
@pytest.mark.parametrize("out", OUTS)
def test_values_and_strides(spec, suffix, layout, out):
    attributes = other_attributes(spec)
    tensors = pass_tensors(spec, suffix, lambda s: LAYOUTS[layout](s, torch.float32))
    op = overloads(spec, suffix)
    targets = outs(spec, suffix, lambda: OUTS[out](tensors[leading(spec)]))
    before = [(target.stride(), target.data_ptr()) for target in targets.values()]
    assert op.out(*tensors, **attributes, **targets) is None
    expected = results(op.default(*tensors, **attributes))
    for target, other in zip(targets.values(), expected, strict=True):
        assert same_bits(target, other)
    assert [(target.stride(), target.data_ptr()) for target in targets.values()] == before


@each_representative
def test_outs_of_different_layouts(spec):
    """Each result goes to its own, in any order of its memory."""
    tensors = pass_tensors(spec, "_backward", lambda s: torch.randn(4, 4))
    op = overloads(spec, "_backward")
    expected = results(op.default(*tensors))
    for layouts in itertools.product(OUTS, repeat=len(expected)):
        made = [OUTS[layout](tensors[leading(spec)]) for layout in layouts]
        op.out(*tensors, **dict(zip(out_names(spec, "_backward"), made, strict=True)))
        for target, other in zip(made, expected, strict=True):
            assert torch.equal(target, other), layouts


@each_spec
def test_outs_that_share_memory_are_an_error(spec):
    tensors = pass_tensors(spec, "_backward", lambda s: torch.randn(4))
    names = out_names(spec, "_backward")
    if len(names) == 1:
        return
    memory = torch.arange(5.0)
    for first, second in ((memory[:4], memory[:4]), (memory[:4], memory[1:])):
        targets = dict.fromkeys(names, first) | {names[-1]: second}
        with pytest.raises(RuntimeError, match="single memory location"):
            overloads(spec, "_backward").out(*tensors, **targets)
    assert memory.tolist() == [0, 1, 2, 3, 4]


@each_spec
def test_wrong_out_of_several_is_named_and_writes_nothing(spec, check_message):
    tensors = pass_tensors(spec, "_backward", lambda s: torch.randn(3))
    names = out_names(spec, "_backward")
    for wrong in names:
        targets = {name: torch.empty(0) for name in names}
        targets[wrong] = torch.empty(0, dtype=torch.float64)
        with pytest.raises(TypeError) as raised:
            overloads(spec, "_backward").out(*tensors, **targets)
        assert check_message(raised.value).startswith(f"[{spec.torch_name}] {wrong} ")
        assert all(target.shape == (0,) for target in targets.values())


def _places(spec, suffix: str) -> list[tuple[int, str]]:
    """Each tensor argument of a pass with each keyword of its ``out=`` form."""
    return list(itertools.product(range(tensor_count(spec, suffix)), out_names(spec, suffix)))


@each_spec
@each_dtype
def test_function_returns_out(spec, dtype):
    inputs = [torch.randn(3, 4).to(DTYPES[dtype]) for _ in spec.inputs]
    out = torch.empty_like(inputs[0])
    assert function(spec)(*inputs, out=out) is out
    assert torch.equal(out, function(spec)(*inputs))


@each_spec
def test_an_out_that_is_empty_is_resized_without_a_warning(spec):
    inputs = [torch.randn(3, 4) for _ in spec.inputs]
    out = torch.empty(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        function(spec)(*inputs, out=out)
    assert out.shape == (3, 4)
    assert torch.equal(out, function(spec)(*inputs))


@each_spec
def test_an_out_of_another_shape_is_resized(spec):
    inputs = [torch.randn(3, 4) for _ in spec.inputs]
    out = torch.empty(2, 2)
    function(spec)(*inputs, out=out)
    assert torch.equal(out, function(spec)(*inputs))


@each_spec
@pytest.mark.parametrize(
    "wrong", [d for d in (*DTYPES.values(), torch.int64) if d != torch.float32]
)
def test_wrong_dtype(spec, wrong, check_message):
    inputs = [torch.randn(3) for _ in spec.inputs]
    with pytest.raises(TypeError) as raised:
        function(spec)(*inputs, out=torch.empty(3, dtype=wrong))
    text = check_message(raised.value)
    assert "float32" in text, "dtypes should be spelt as in torch"
    assert str(wrong).removeprefix("torch.") in text


@each_spec
def test_wrong_device(spec, check_message):
    inputs = [torch.randn(3) for _ in spec.inputs]
    with pytest.raises(ValueError) as raised:
        function(spec)(*inputs, out=torch.empty(3, device="meta"))
    assert "meta" in check_message(raised.value)


@each_spec
def test_wrong_input_writes_nothing(spec):
    out = torch.full((3,), 7.0)
    with pytest.raises(TypeError):
        function(spec)(*(torch.ones(3, dtype=torch.int64) for _ in spec.inputs), out=out)
    for attribute in spec.attributes:
        with pytest.raises(ValueError):
            nan = {attribute.name: float("nan")}
            function(spec)(*(torch.ones(3) for _ in spec.inputs), **nan, out=out)
    assert out.tolist() == [7.0, 7.0, 7.0]


@each_spec
@each_pass
@pytest.mark.parametrize(
    "layout", ["contiguous", "transposed", "channels_last", "stepped", "offset"]
)
def test_in_place_on_each_argument(spec, suffix, layout):
    op = overloads(spec, suffix)
    names = out_names(spec, suffix)
    for places in itertools.permutations(range(tensor_count(spec, suffix)), len(names)):
        tensors = pass_tensors(spec, suffix, lambda s: LAYOUTS[layout](s, torch.float32))
        expected = results(op.default(*(t.clone() for t in tensors)))
        op.out(*tensors, **{n: tensors[place] for n, place in zip(names, places, strict=True)})
        for place, other in zip(places, expected, strict=True):
            assert torch.equal(tensors[place], other)


@each_spec
@each_pass
def test_same_memory_in_another_order_is_an_error(spec, suffix):
    """As in torch: elements would be overwritten before they are read."""
    op = overloads(spec, suffix)
    for index, name in _places(spec, suffix):
        tensors = pass_tensors(spec, suffix, lambda s: torch.randn(5, 5))
        before = tensors[index].clone()
        targets = outs(spec, suffix, lambda: torch.empty(5, 5)) | {name: tensors[index].t()}
        with pytest.raises(RuntimeError, match="single memory location"):
            op.out(*tensors, **targets)
        assert torch.equal(tensors[index], before)


@each_spec
@each_pass
@pytest.mark.parametrize(
    "views",
    [
        lambda m: (m[:4], m[4:]),
        lambda m: (m[:, ::2], m[:, 1::2]),
        lambda m: (m[:, ::2], m[:, ::2]),
        lambda m: (m[::2, ::2].t(), m[::2, ::2].t()),
        lambda m: (m[:4, :4], m[4:, 4:].t()),
        lambda m: (m[::2, ::2], m.flatten()[:16].view(4, 4)),
    ],
    ids=[
        "halves",
        "interleaved",
        "same_stepped",
        "same_stepped_transposed",
        "corners",
        "dense_over_stepped",
    ],
)
def test_views_of_one_storage(spec, suffix, views):
    op = overloads(spec, suffix)
    for index, name in _places(spec, suffix):
        source, out = views(torch.randn(8, 8))
        tensors = pass_tensors(spec, suffix, lambda s, shape=source.shape: torch.randn(shape))
        tensors[index] = source
        expected = results(op.default(*(t.clone() for t in tensors)))
        targets = outs(spec, suffix, lambda shape=source.shape: torch.empty(shape)) | {name: out}
        op.out(*tensors, **targets)
        for target, other in zip(targets.values(), expected, strict=True):
            assert torch.equal(target, other)


@each_spec
@each_pass
def test_partial_overlap_is_an_error(spec, suffix):
    op = overloads(spec, suffix)
    for index, name in _places(spec, suffix):
        tensors = pass_tensors(spec, suffix, lambda s: torch.randn(4))
        memory = torch.arange(5.0)
        tensors[index] = memory[:4]
        targets = outs(spec, suffix, lambda: torch.empty(4)) | {name: memory[1:]}
        with pytest.raises(RuntimeError, match="single memory location"):
            op.out(*tensors, **targets)
        assert memory.tolist() == [0, 1, 2, 3, 4]


@each_spec
def test_out_that_overlaps_itself_is_an_error(spec):
    inputs = [torch.randn(4) for _ in spec.inputs]
    with pytest.raises(RuntimeError, match="single memory location"):
        function(spec)(*inputs, out=torch.empty(1).expand(4))


@each_spec
@pytest.mark.parametrize("who", ["input", "out"])
def test_requires_grad_is_an_error(spec, who, check_message):
    inputs = [torch.randn(3, requires_grad=who == "input") for _ in spec.inputs]
    out = torch.zeros(3, requires_grad=who == "out")
    with pytest.raises(RuntimeError) as raised:
        function(spec)(*inputs, out=out)
    check_message(raised.value)
    assert out.tolist() == [0.0, 0.0, 0.0]
    with torch.no_grad():
        function(spec)(*inputs, out=out)
    assert torch.equal(out, function(spec)(*(i.detach() for i in inputs)))


@each_spec
@each_pass
def test_version_counter(spec, suffix):
    """Autograd notices that ``out`` changed under a node that saved it."""
    tensors = pass_tensors(spec, suffix, lambda s: torch.randn(3))
    targets = outs(spec, suffix, lambda: torch.ones(3, requires_grad=True) * 2)
    products = [out * out for out in targets.values()]
    before = [out._version for out in targets.values()]
    with torch.no_grad():
        overloads(spec, suffix).out(*tensors, **targets)
    assert [out._version for out in targets.values()] == [version + 1 for version in before]
    for product in products:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.sum().backward()


@each_spec
def test_meta_resizes_too(spec):
    inputs = [torch.empty(3, 4, device="meta") for _ in spec.inputs]
    out = torch.empty(0, device="meta")
    function(spec)(*inputs, out=out)
    assert out.shape == (3, 4)


@each_spec
def test_out_in_inference_mode(spec):
    with torch.inference_mode():
        inputs = [torch.randn(3) for _ in spec.inputs]
        out = torch.empty(3)
        assert torch.equal(function(spec)(*inputs, out=out), function(spec)(*inputs))
