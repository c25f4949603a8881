# SPDX-License-Identifier: Apache-2.0
"""Any strides in, the strides of ``empty_like`` out, no memory shared."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

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
    overloads,
    pass_tensors,
    results,
    same_bits,
    strides,
    tensor_count,
)


def _contiguous(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.resolve_neg().clone(memory_format=torch.contiguous_format)


@each_spec_with_layout
@each_dtype
@each_pass
def test_values_equal_the_contiguous_ones(spec, dtype, layout, suffix):
    attributes = other_attributes(spec)
    tensors = pass_tensors(spec, suffix, lambda seed: LAYOUTS[layout](seed, DTYPES[dtype]))
    before = [_contiguous(tensor) for tensor in tensors]
    op = overloads(spec, suffix).default
    expected = results(op(*before, **attributes))
    for result, other in zip(results(op(*tensors, **attributes)), expected, strict=True):
        assert result.shape == tensors[0].shape
        assert result.dtype == tensors[0].dtype
        assert same_bits(result, other)
    for tensor, copy in zip(tensors, before, strict=True):
        assert torch.equal(tensor, copy), "an input was written to"


@each_spec_with_layout
@each_pass
def test_strides(spec, layout, suffix):
    """The same in eager mode, in the Meta kernel and on fake tensors."""
    make = LAYOUTS[layout]
    op = overloads(spec, suffix).default
    tensors = pass_tensors(spec, suffix, lambda seed: make(seed, torch.float32))
    meta = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta") for t in tensors]
    mode = FakeTensorMode()
    fakes = [mode.from_tensor(t.resolve_neg()) for t in tensors]
    with mode:
        on_fakes = results(op(*fakes))
    first = leading(spec)
    for result, on_meta, fake in zip(
        results(op(*tensors)), results(op(*meta)), on_fakes, strict=True
    ):
        assert result.stride() == torch.empty_like(tensors[first]).stride()
        assert strides(result) == strides(torch.nn.functional.silu(tensors[first]))
        assert on_meta.is_meta
        assert strides(on_meta) == strides(result)
        assert on_meta.stride() == torch.empty_like(meta[first]).stride()
        assert strides(fake) == strides(result)
        assert fake.dtype == result.dtype
        assert fake.device == result.device


@each_spec
def test_known_strides(spec):
    transposed = pass_tensors(spec, "", lambda s: torch.randn(4, 6).t())
    assert function(spec)(*transposed).stride() == (1, 6)
    channels_last = pass_tensors(
        spec, "", lambda s: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    )
    assert function(spec)(*channels_last).stride() == (60, 1, 15, 3)


MIXED = ("contiguous", "transposed", "stepped", "expanded", "overlapping")


def _square(layout: str, seed: int) -> torch.Tensor:
    """The layout in the one shape 4 x 4."""
    base = LAYOUTS["contiguous"](seed, torch.float64).flatten()
    wide = base.repeat(4)
    return {
        "contiguous": lambda: wide[:16].view(4, 4),
        "transposed": lambda: wide[:16].view(4, 4).t(),
        "stepped": lambda: wide[:64].view(8, 8)[::2, 1::2],
        "expanded": lambda: wide[:4].view(4, 1).expand(4, 4),
        "overlapping": lambda: wide.as_strided((4, 4), (2, 1)),
    }[layout]()


@each_representative
@each_pass
def test_arguments_of_different_layouts(spec, suffix):
    op = overloads(spec, suffix).default
    every = list(itertools.product(MIXED, repeat=tensor_count(spec, suffix)))
    # All combinations of up to three, and some of five.
    for layouts in every if len(every) <= 125 else random.Random(0).sample(every, 125):
        tensors = [_square(layout, seed) for seed, layout in enumerate(layouts)]
        expected = results(op(*(_contiguous(t) for t in tensors)))
        for result, other in zip(results(op(*tensors)), expected, strict=True):
            assert torch.equal(result, other), layouts
            assert result.stride() == torch.empty_like(tensors[leading(spec)]).stride()


@each_spec_with_layout
@each_pass
def test_output_shares_no_memory(spec, layout, suffix):
    tensors = pass_tensors(spec, suffix, lambda seed: LAYOUTS[layout](seed, torch.float32))
    outputs = results(overloads(spec, suffix).default(*tensors))
    for i, result in enumerate(outputs):
        assert not result._is_view()
        for tensor in (*tensors, *outputs[:i]):
            assert result is not tensor
            assert result.untyped_storage()._cdata != tensor.untyped_storage()._cdata, (
                "the output is a view of an input, or of another output"
            )
            if tensor.numel():
                assert result.data_ptr() != tensor.data_ptr()


@each_spec
@pytest.mark.parametrize("shape", [(0,), (2, 0, 3), ()], ids=str)
@each_dtype
def test_empties_and_scalars(spec, shape, dtype):
    inputs = [torch.ones(shape, dtype=DTYPES[dtype], requires_grad=True) for _ in spec.inputs]
    y = function(spec)(*inputs)
    assert y.shape == shape
    assert y.dtype == DTYPES[dtype]
    y.sum().backward()
    for tensor in inputs:
        assert tensor.grad.shape == shape


@each_spec
def test_subclasses_and_parameters(spec):
    inputs = [torch.nn.Parameter(torch.ones(3)) for _ in spec.inputs]
    y = function(spec)(*inputs)
    assert type(y) is torch.Tensor
    assert y.requires_grad


@each_spec
def test_conjugate_and_negative_views(spec):
    z = torch.randn(5, dtype=torch.complex128).conj().imag
    assert z.is_neg()
    inputs = [z] * len(spec.inputs)
    assert torch.equal(function(spec)(*inputs), function(spec)(*(i.clone() for i in inputs)))


@each_spec
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_leaves_the_dtype_alone(spec, dtype):
    inputs = [torch.randn(3) for _ in spec.inputs]
    with torch.autocast("cpu", dtype=dtype):
        y = function(spec)(*inputs)
    assert y.dtype == torch.float32
    assert torch.equal(y, function(spec)(*inputs))
