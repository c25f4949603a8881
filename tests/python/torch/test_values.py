# SPDX-License-Identifier: Apache-2.0
"""Forward and gradient values of every operator against float64 references."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from myops.spec import SPECS, OpSpec

from ..support import each_spec
from .support import (
    DTYPES,
    attribute_sets,
    composed,
    each_dtype,
    each_pass,
    function,
    other_attributes,
    overloads,
    reference,
    results,
    same_bits,
    sample,
    stored,
)

SPECIAL = [
    0.0,
    -0.0,
    math.inf,
    -math.inf,
    math.nan,
    1.0,
    -1.0,
    5e-324,
    -5e-324,
    1e-310,
    -1e-310,
    1e-45,
    -1e-45,
    1e-40,
    -1e-40,
    6e-8,
    -6e-8,
    1.1754943508222875e-38,
    -1.1754943508222875e-38,
    2.2250738585072014e-308,
    65504.0,
    -65504.0,
    3.4028234663852886e38,
    -3.4028234663852886e38,
    1.7976931348623157e308,
    -1.7976931348623157e308,
    *(s * v for s in (1, -1) for v in (87.0, 88.7, 89.0, 103.0, 104.5, 709.0, 745.0, 746.0, 1e4)),
]

# Computed elsewhere, so they guard the references, too: (operator, inputs, attributes, value). An
# operator without a line here is judged by its reference alone.
KNOWN = [
    ("Swish", (1.0,), {"beta": 1.0}, 0.7310585786),
    ("Swish", (1.0,), {"beta": 2.0}, 0.8807970780),
    ("Swish", (1.0,), {"beta": 1.702}, 0.8457957659),
    ("Swish", (-2.0,), {"beta": 1.702}, -0.0643413769),
    ("Swish", (1.0,), {"beta": 0.0}, 0.5),
    ("Mish", (1.0,), {}, 0.86509838827),
    ("Mish", (-1.0,), {}, -0.30340146137),
    ("Gelu", (1.0,), {}, 0.84134474607),
    ("Gelu", (-3.0,), {}, -0.0040496940949),
    ("GeluTanh", (1.0,), {}, 0.84119199061),
    ("GeluTanh", (-2.0,), {}, -0.045402305912),
    ("SwiGLU", (1.0, 2.0), {}, 1.4621171573),
    ("SwiGLU", (1.0, -3.0), {"beta": 1.702}, -2.5373872978),
    ("GeGLU", (1.0, -3.0), {}, -2.5240342382),
    ("HardSwish", (1.0,), {}, 2 / 3),
    ("HardSwish", (-1.0,), {}, -1 / 3),
    ("HardSwish", (3.0,), {}, 3.0),
    ("HardSwish", (-3.0,), {}, 0.0),
]
KNOWN_HERE = [
    pytest.param(spec, *known[1:], id=f"{spec.torch_name}-{known[1]}-{known[2]}")
    for known in KNOWN
    for spec in SPECS
    if spec.name == known[0]
]


# Allowed error of a derivative in epsilons of the dtype. The halves round once, after float32
# arithmetic. In float64 it is the composed formula that loses digits, in exp of a rounded argument.
FACTOR = {"float32": 6.0, "float64": 512.0, "float16": 0.51, "bfloat16": 0.51}


def _all_patterns(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)


def _random_patterns(dtype: str, count: int, seed: int) -> torch.Tensor:
    integers = {"float32": np.uint32, "float64": np.uint64}[dtype]
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, np.iinfo(integers).max, count, dtype=integers, endpoint=True)
    return torch.from_numpy(bits.view(dtype))


def _around(spec: OpSpec, x: torch.Tensor) -> Iterator[list[torch.Tensor]]:
    """Inputs with ``x`` for one of them in turn, and for the others values near zero: an
    intermediate value that underflows, times a large or infinite one, is a matter of taste."""
    for place in range(len(spec.inputs)):
        count = len(spec.inputs)
        inputs = [(sample(spec, x.numel(), seed=1 + i) / 4).to(x.dtype) for i in range(count)]
        inputs[place] = x
        yield inputs


def _slack(spec: OpSpec, dtype: str) -> float:
    """What intermediate values that are denormal may cost."""
    computed = np.float64 if dtype == "float64" else np.float32
    return spec.denormals * float(np.finfo(computed).smallest_subnormal)


@pytest.fixture(scope="module")
def check_values(check_ulp) -> Callable[..., None]:
    """``check_values(spec, dtype, *inputs)`` for all attribute sets."""

    def check(spec: OpSpec, dtype: str, *inputs: torch.Tensor) -> None:
        for attributes in attribute_sets(spec):
            y = function(spec)(*inputs, **attributes)
            exact = reference(spec, dtype, attributes, *inputs)
            at = inputs[0].double()
            slack = _slack(spec, dtype)
            check_ulp(y.double().numpy(), exact, dtype, spec.max_ulp[dtype], at=at, slack=slack)

    return check


@pytest.mark.parametrize(("spec", "inputs", "attributes", "value"), KNOWN_HERE)
@each_dtype
def test_known_values(spec, inputs, attributes, value, dtype):
    tensors = [torch.tensor([v], dtype=DTYPES[dtype]) for v in inputs]
    result = function(spec)(*tensors, **attributes).item()
    epsilon = torch.finfo(DTYPES[dtype]).eps
    assert result == pytest.approx(value, rel=max(epsilon, 1e-9), abs=1e-12)


@each_spec
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_all_patterns_of_the_halves(spec, dtype, check_values):
    for inputs in _around(spec, _all_patterns(DTYPES[dtype])):
        check_values(spec, dtype, *inputs)
    assert spec.max_ulp[dtype] <= 0.51


@each_spec
@each_dtype
def test_special_values(spec, dtype, check_values):
    for inputs in _around(spec, torch.tensor(SPECIAL, dtype=torch.float64).to(DTYPES[dtype])):
        check_values(spec, dtype, *inputs)


@each_spec
@each_dtype
def test_special_values_together(spec, dtype, check_values):
    """Every combination of limits, for operators with several inputs."""
    values = torch.tensor([0.0, -0.0, 1.0, -1.0, 5.0, -5.0, math.inf, -math.inf, math.nan])
    grid = torch.cartesian_prod(*[values] * len(spec.inputs)).reshape(-1, len(spec.inputs))
    check_values(spec, dtype, *(column.to(DTYPES[dtype]) for column in grid.unbind(1)))


@each_spec
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_random_patterns(spec, dtype, check_values):
    for inputs in _around(spec, _random_patterns(dtype, 100_000, seed=1)):
        check_values(spec, dtype, *inputs)


@each_spec
@each_dtype
def test_values_of_the_domain(spec, dtype, check_values):
    inputs = [sample(spec, 30_000, seed=i).to(DTYPES[dtype]) for i in range(len(spec.inputs))]
    check_values(spec, dtype, *inputs)


@each_spec
@given(
    value=st.floats(width=32, allow_subnormal=True),
    other=st.floats(-20, 20, width=32),
    factor=st.floats(-1e6, 1e6, width=32),
)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_any_float_and_any_attribute(spec, value, other, factor):
    attributes = {a.name: factor for a in spec.attributes}
    # A length that is no multiple of a vector also runs the tail of the loop.
    inputs = [torch.full((37,), v) for v in (value, *[other] * (len(spec.inputs) - 1))]
    y = function(spec)(*inputs, **attributes)
    exact = reference(spec, "float32", attributes, *inputs)
    assert same_bits(y, y[:1].expand_as(y))
    spacing = np.spacing(np.abs(exact[0]).astype(np.float32)) if np.isfinite(exact[0]) else 0.0
    if np.isnan(exact[0]):
        assert y[0].isnan()
    elif np.isinf(np.float32(exact[0])):
        assert y[0].item() == np.float32(exact[0])
    else:
        error = abs(y[0].item() - exact[0]) - _slack(spec, "float32")
        assert error <= spec.max_ulp["float32"] * spacing


@each_spec
@each_dtype
def test_every_length_and_offset_gives_the_same_bits(spec, dtype):
    """Heads and tails of vector loops compute what the body computes."""
    whole = [sample(spec, 300, seed=i).to(DTYPES[dtype]) for i in range(len(spec.inputs))]
    expected = function(spec)(*whole)
    for length in (*range(1, 70), 127, 128, 129, 255, 256, 257):
        for offset in (0, 1, 3):
            part = slice(offset, offset + length)
            y = function(spec)(*(tensor[part] for tensor in whole))
            assert torch.equal(y, expected[part]), (length, offset)


@each_spec
def test_defaults_are_the_native_defaults(spec):
    inputs = [sample(spec, 100, seed=i) for i in range(len(spec.inputs))]
    by_schema = overloads(spec).default(*inputs)
    assert torch.equal(by_schema, function(spec)(*inputs, **spec.defaults()))
    assert torch.equal(by_schema, function(spec)(*inputs, *spec.defaults().values()))


@each_spec
@each_dtype
@each_pass
def test_passes_against_the_composed_formula(spec, dtype, suffix):
    """Each pass equals autograd's derivatives of the composed formula in float64."""
    torch_dtype = DTYPES[dtype]
    count = len(spec.inputs)
    for attributes in [spec.defaults(), other_attributes(spec), *attribute_sets(spec)[1:]]:
        inputs = [sample(spec, 2_000, seed=i).to(torch_dtype).double() for i in range(count)]
        # Round numbers may be corners, where the formula's derivative is torch's choice.
        inputs = [i.where(i != i.round(), 0.75).requires_grad_() for i in inputs]
        grad, *directions = (
            sample(spec, 2_000, seed=90 + s).div(10).to(torch_dtype).double()
            for s in range(1 + count)
        )
        expected = [composed(spec)(*inputs, **stored(attributes, dtype))]
        tensors = list(inputs)
        if suffix:
            expected = torch.autograd.grad(expected[0], inputs, grad, create_graph=True)
            tensors = [grad, *tensors]
        if suffix == "_double_backward":
            slope = sum(d * e for d, e in zip(directions, expected, strict=True))
            expected = torch.autograd.grad(slope.sum(), inputs)
            tensors = [*directions, *tensors]
        arguments = [tensor.detach().to(torch_dtype) for tensor in tensors]
        actual = results(overloads(spec, suffix).default(*arguments, **attributes))
        epsilon = torch.finfo(torch_dtype).eps
        # Terms that cancel are as large as the inputs they are linear in.
        size = torch.ones_like(inputs[0])
        for tensor in inputs[1:]:
            size = size * tensor.detach().abs().clamp(min=1.0)
        if spec.broadcasts and dtype == "float64":
            # Each derivative by a coefficient brings a factor of the first input, by which the
            # composed formula's loss grows.
            size = size * inputs[0].detach().square().clamp(min=1.0)
        for ours, exact in zip(actual, expected, strict=True):
            assert ours.dtype == torch_dtype
            error = ((ours.double() - exact).abs() / exact.abs().maximum(size)).max().item()
            assert error <= FACTOR[dtype] * epsilon, (attributes, error / epsilon)


@each_spec
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_finite_inputs_give_finite_results(spec, dtype):
    """For all patterns of the halves, where formulas written in them overflow."""
    x = _all_patterns(DTYPES[dtype])
    x = x[x.isfinite()]
    inputs = [x.requires_grad_(), *(torch.ones_like(x) for _ in spec.inputs[1:])]
    y = function(spec)(*inputs)
    (grad,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(grad.sum(), x)
    for tensor in (y, grad, second):
        assert tensor.isfinite().all()
