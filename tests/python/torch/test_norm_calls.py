# SPDX-License-Identifier: Apache-2.0
"""The norms' calls: special rows, layouts, ``out=`` forms, threads, wrong arguments."""

from __future__ import annotations

import itertools

import myops.functional as F
import numpy as np
import pytest
import torch
from torch.library import opcheck

from ..support import each_norm, each_norm_of_one
from .norm_support import (
    ROW_LAYOUTS,
    attributes,
    each_norm_with_attributes,
    exact,
    function,
    norm_inputs,
    out_names,
)
from .support import DTYPES, each_dtype, overloads, results, same_bits, strides

each_row_layout = pytest.mark.parametrize("layout", ROW_LAYOUTS)
each_checked_layout = pytest.mark.parametrize(
    "layout",
    [
        *("contiguous", "transposed", "row_sliced", "channels_last", "stepped", "expanded"),
        *("expanded_everywhere", "one_element", "no_rows"),
    ],
)

SHAPES = [(7,), (5, 1), (4, 2), (3, 63), (3, 64), (2, 3, 65), (2, 1024), (2, 1025), (300, 200)]
SHAPES += [(5, 2500)]


def _slack(spec, dtype: str) -> float:
    computed = np.float64 if dtype == "float64" else np.float32
    return spec.denormals * float(np.finfo(computed).smallest_subnormal)


def _check(spec, dtype: str, values: dict[str, float], inputs, check_ulp) -> None:
    outcome = results(function(spec)(*inputs, **values))
    expected = exact(spec, dtype, values, *inputs)
    for name, actual, other in zip(spec.outputs, outcome, expected, strict=True):
        assert actual.dtype == DTYPES[dtype]
        limit = 0 if name == "sum" else spec.max_ulp[dtype]
        check_ulp(actual.double().numpy(), other, dtype, limit, slack=_slack(spec, dtype))


@each_norm_with_attributes
@each_dtype
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values(spec, values, dtype, shape, check_ulp):
    _check(spec, dtype, values, norm_inputs(spec, shape, DTYPES[dtype]), check_ulp)


def _special_rows(dtype: str) -> torch.Tensor:
    info = torch.finfo(DTYPES[dtype])
    plain = torch.linspace(-1, 1, 70, dtype=torch.float64)
    rows = [
        *(plain * scale for scale in (info.max, info.tiny, info.tiny * info.eps * 8, 1e-5, 1e5)),
        torch.zeros(70, dtype=torch.float64),
        torch.full((70,), -0.0, dtype=torch.float64),
    ]
    for value in (torch.inf, -torch.inf, torch.nan, info.max):
        row = plain.clone()
        row[[3, 69]] = value
        rows.append(row)
    rows.append(plain.clone())
    rows[-1][:2] = torch.tensor([torch.inf, torch.nan])
    return (
        torch.stack(rows)
        .clamp(info.min, info.max)
        .where(torch.stack(rows).isfinite(), torch.stack(rows))
    )


@each_norm_with_attributes
@each_dtype
def test_special_rows(spec, values, dtype, check_ulp):
    x = _special_rows(dtype).to(DTYPES[dtype])
    zeros = [torch.zeros_like(x) for _ in spec.inputs[2:]]
    weight = torch.linspace(-2, 2, x.shape[-1], dtype=torch.float64).to(x.dtype)
    _check(spec, dtype, values, (x, *zeros, weight), check_ulp)


@each_norm
@each_dtype
@each_row_layout
def test_layouts_have_the_bits_of_contiguous_tensors(spec, dtype, layout):
    inputs = norm_inputs(spec, make=lambda seed: ROW_LAYOUTS[layout](seed, DTYPES[dtype]))
    expected = results(function(spec)(*(tensor.contiguous() for tensor in inputs)))
    for y, other in zip(results(function(spec)(*inputs)), expected, strict=True):
        assert same_bits(y, other)
        assert strides(y) == strides(torch.empty_like(inputs[0]))
        assert all(y.data_ptr() != tensor.data_ptr() or y.numel() == 0 for tensor in inputs)


@each_norm
def test_inputs_of_different_layouts(spec):
    contiguous = norm_inputs(spec, (3, 4, 5))
    orders = list(itertools.permutations(range(3)))
    expected = results(function(spec)(*contiguous))
    for chosen in itertools.product(orders, repeat=len(contiguous) - 1):
        rows = [
            tensor.permute(order).contiguous().permute(tuple(np.argsort(order)))
            for tensor, order in zip(contiguous, chosen, strict=False)
        ]
        weight = torch.stack([contiguous[-1]] * 2, -1)[:, 0]
        for y, other in zip(results(function(spec)(*rows, weight)), expected, strict=True):
            assert torch.equal(y, other), chosen


@each_norm
@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (2, 0, 4)], ids=str)
def test_empty(spec, shape):
    inputs = [tensor.requires_grad_() for tensor in norm_inputs(spec, shape)]
    outcome = results(function(spec)(*inputs))
    assert all(y.shape == shape for y in outcome)
    sum(y.sum() for y in outcome).backward()
    assert all(torch.equal(t.grad, torch.zeros_like(t)) for t in inputs)


@each_norm
@each_checked_layout
def test_opcheck(spec, layout):
    inputs = norm_inputs(spec, make=lambda seed: ROW_LAYOUTS[layout](seed, torch.float32))
    for needed in (False, True):
        leaves = tuple(tensor.detach().requires_grad_(needed) for tensor in inputs)
        opcheck(overloads(spec).default, leaves, attributes(spec))


@each_norm_of_one
@each_checked_layout
def test_opcheck_of_the_backward(spec, layout):
    tensors = [ROW_LAYOUTS[layout](seed, torch.float32) for seed in range(2)]
    weight = torch.ones(tensors[0].shape[-1])
    leaves = tuple(tensor.detach().requires_grad_() for tensor in (*tensors, weight))
    opcheck(overloads(spec, "_backward").default, leaves, attributes(spec))


OUTS = {
    "contiguous": lambda x: torch.empty(x.shape, dtype=x.dtype),
    "like": torch.empty_like,
    "reversed_dims": lambda x: torch.empty(x.shape[::-1], dtype=x.dtype).permute(
        tuple(range(x.dim()))[::-1]
    ),
    "stepped": lambda x: torch.empty(*x.shape, 3, dtype=x.dtype)[..., 1],
    "resized": lambda x: torch.empty(0, dtype=x.dtype),
}


@each_norm
@pytest.mark.parametrize("out", OUTS)
@each_checked_layout
def test_out(spec, layout, out):
    inputs = norm_inputs(spec, make=lambda seed: ROW_LAYOUTS[layout](seed, torch.float32))
    expected = results(function(spec)(*inputs))
    targets = [OUTS[out](inputs[0]) for _ in spec.outputs]
    given = targets[0] if len(targets) == 1 else tuple(targets)
    versions = [target._version for target in targets]
    assert function(spec)(*inputs, out=given) is given
    for target, other, version in zip(targets, expected, versions, strict=True):
        assert same_bits(target, other)
        assert target._version > version
    fresh = {name: OUTS[out](inputs[0]) for name in out_names(spec)}
    opcheck(overloads(spec).out, tuple(inputs), {**attributes(spec), **fresh})


@each_norm
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "row_sliced", "channels_last"])
def test_out_in_place_on_the_inputs(spec, layout):
    for places in itertools.permutations(range(len(spec.inputs) - 1), len(spec.outputs)):
        inputs = norm_inputs(spec, make=lambda seed: ROW_LAYOUTS[layout](seed, torch.float32))
        expected = results(function(spec)(*(tensor.clone() for tensor in inputs)))
        targets = tuple(inputs[place] for place in places)
        function(spec)(*inputs, out=targets[0] if len(targets) == 1 else targets)
        for target, other in zip(targets, expected, strict=True):
            assert torch.equal(target, other), places


@each_norm
def test_out_that_overlaps_is_an_error(spec):
    memory = torch.arange(40.0)
    x = memory[:24].view(4, 6)
    others = norm_inputs(spec, (4, 6), torch.float32)[1:]
    fresh = [torch.empty(4, 6) for _ in spec.outputs]
    expanded = torch.empty(6).expand(4, 6)
    for place, name in enumerate(out_names(spec)):
        for wrong in (memory[1:25].view(4, 6), expanded):
            targets = dict(zip(out_names(spec), fresh, strict=True)) | {name: wrong}
            with pytest.raises(RuntimeError, match="single memory location"):
                overloads(spec).out(x, *others, **targets)
        weight = memory[26:32]
        wrong = memory[12:36].view(4, 6)
        targets = dict(zip(out_names(spec), fresh, strict=True)) | {name: wrong}
        with pytest.raises(RuntimeError, match="single memory location"):
            overloads(spec).out(fresh[place - 1] * 0, *others[:-1], weight, **targets)
    if len(fresh) > 1:
        with pytest.raises(RuntimeError, match="single memory location"):
            overloads(spec).out(x, *others, **dict.fromkeys(out_names(spec), fresh[0]))
    assert torch.equal(memory, torch.arange(40.0))


@each_norm
@pytest.mark.parametrize(
    ("wrong", "error"),
    [({"dtype": torch.float64}, TypeError), ({"device": "meta"}, ValueError)],
    ids=["dtype", "device"],
)
def test_wrong_out_is_named_and_writes_nothing(spec, wrong, error, check_message):
    inputs = norm_inputs(spec, dtype=torch.float32)
    for name in out_names(spec):
        targets = {each: torch.empty(0) for each in out_names(spec)}
        targets[name] = torch.empty(0, **wrong)
        with pytest.raises(error) as raised:
            overloads(spec).out(*inputs, **targets)
        assert check_message(raised.value).startswith(f"[{spec.torch_name}] {name} ")
        assert all(target.shape == (0,) for target in targets.values())


@each_norm
def test_out_is_without_gradients(spec, check_message):
    inputs = norm_inputs(spec)
    for wanting in range(len(inputs)):
        given = [t.clone().requires_grad_(i == wanting) for i, t in enumerate(inputs)]
        targets = tuple(torch.empty(4, 6, dtype=torch.float64) for _ in spec.outputs)
        out = targets[0] if len(targets) == 1 else targets
        with pytest.raises(RuntimeError) as raised:
            function(spec)(*given, out=out)
        assert "out=" in check_message(raised.value)
        with torch.no_grad():
            function(spec)(*given, out=out)
        assert not any(target.requires_grad for target in targets)


@pytest.mark.parametrize("out", [torch.empty(4, 6), (torch.empty(4, 6),), 3], ids=["one", "1", "3"])
def test_out_with_a_residual_is_a_pair(out, check_message):
    x = torch.randn(4, 6)
    with pytest.raises(TypeError) as raised:
        F.rms_norm(x, torch.ones(6), residual=x, out=out)
    assert "pair" in check_message(raised.value)


def _replaced(inputs: list[torch.Tensor], place: int, value: torch.Tensor) -> list[torch.Tensor]:
    return [value if i == place % len(inputs) else tensor for i, tensor in enumerate(inputs)]


# What is wrong: place of the argument, its value, the error, a word of the sentence.
WRONG = {
    "weight_size": (-1, torch.ones(5), ValueError, "weight"),
    "weight_of_one": (-1, torch.ones(1), ValueError, "weight"),
    "weight_dims": (-1, torch.ones(1, 6), ValueError, "weight"),
    "weight_scalar": (-1, torch.tensor(1.0), ValueError, "weight"),
    "weight_dtype": (-1, torch.ones(6, dtype=torch.float64), TypeError, "float64"),
    "weight_device": (-1, torch.ones(6, device="meta"), ValueError, "meta"),
    "x_integers": (0, torch.ones(4, 6, dtype=torch.int64), TypeError, "int64"),
    "x_scalar": (0, torch.tensor(1.0), ValueError, "scalar"),
    "x_sparse": (0, torch.ones(4, 6).to_sparse(), TypeError, "dense"),
    "residual_shape": (1, torch.ones(1, 6), ValueError, "residual"),
    "residual_dims": (1, torch.ones(6), ValueError, "residual"),
    "residual_dtype": (1, torch.ones(4, 6).half(), TypeError, "residual"),
    "residual_device": (1, torch.ones(4, 6, device="meta"), ValueError, "meta"),
}


def _calls(spec):
    """The ways a wrong argument can take, each with checks of its own."""
    op = overloads(spec).default
    yield op
    yield lambda *a: op(*(t.detach().clone().requires_grad_(t.is_floating_point()) for t in a))

    def forward_mode(*inputs: torch.Tensor):
        with torch.autograd.forward_ad.dual_level():
            last = inputs[-1]
            return op(
                *inputs[:-1], torch.autograd.forward_ad.make_dual(last, torch.ones_like(last))
            )

    yield forward_mode


@each_norm
@pytest.mark.parametrize("what", WRONG)
def test_wrong_argument(spec, what, check_message):
    place, value, error, word = WRONG[what]
    if what.startswith("residual") and len(spec.inputs) == 2:
        return
    inputs = _replaced(norm_inputs(spec, dtype=torch.float32), place, value)
    for call in _calls(spec):
        with pytest.raises(error) as raised:
            call(*inputs)
        text = check_message(raised.value)
        assert text.startswith(f"[{spec.torch_name}] ")
        assert word in text


@each_norm
def test_wrong_attribute(spec, check_message):
    """Not finite, or below what the ``OpSpec`` says is the lowest."""
    cases = itertools.product(spec.attributes, (-1e-6, torch.nan, torch.inf, -torch.inf))
    for attribute, step in cases:
        wrong = {attribute.name: attribute.lowest + step}
        if not np.isfinite(step):
            wrong = {attribute.name: step}
        for device in ("cpu", "meta"):
            inputs = tuple(t.to(device) for t in norm_inputs(spec, dtype=torch.float32))
            with pytest.raises(ValueError) as raised:
                function(spec)(*inputs, **wrong)
            assert attribute.name in check_message(raised.value)
            with pytest.raises(ValueError):
                torch.func.jvp(lambda *a, w=wrong: function(spec)(*a, **w), inputs, inputs)


@each_norm
def test_attributes_are_not_trained(spec):
    for name, value in spec.defaults().items():
        with pytest.raises(TypeError, match="requires grad"):
            function(spec)(*norm_inputs(spec), **{name: torch.tensor(value, requires_grad=True)})


@each_norm
@each_dtype
@pytest.mark.parametrize("shape", [(301, 515), (4096, 64), (256, 1024)], ids=str)
def test_threads_give_the_same_bits(spec, dtype, shape):
    """The weight's gradient, too, which is summed over rows that threads share."""
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            leaves = [t.requires_grad_() for t in norm_inputs(spec, shape, DTYPES[dtype])]
            outcome = results(function(spec)(*leaves))
            sum(y.square().sum() for y in outcome).backward()
            found.append([*outcome, *(leaf.grad for leaf in leaves)])
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@each_norm
@each_dtype
def test_autocast_keeps_the_dtype(spec, dtype):
    inputs = norm_inputs(spec, dtype=DTYPES[dtype])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outcome = results(function(spec)(*inputs))
    for y, other in zip(outcome, results(function(spec)(*inputs)), strict=True):
        assert y.dtype == DTYPES[dtype]
        assert torch.equal(y, other)
