# SPDX-License-Identifier: Apache-2.0
"""What callers may get wrong, and that each mistake is answered in one line of the house form."""

from __future__ import annotations

import warnings

import pytest
import torch

from ..support import each_spec
from .support import (
    DTYPES,
    each_pass,
    function,
    leading,
    overloads,
    pass_tensors,
    tensor_count,
)

NOT_FLOATING = [
    torch.int64,
    torch.int32,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.complex128,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # layouts and quantization are announced as beta or deprecated
    NOT_DENSE = {
        "sparse_coo": torch.ones(3, 3).to_sparse(),
        "sparse_csr": torch.ones(3, 3).to_sparse_csr(),
        "sparse_csc": torch.ones(3, 3).to_sparse_csc(),
        "mkldnn": torch.ones(3, 3).to_mkldnn(),
        "quantized": torch.quantize_per_tensor(torch.ones(3, 3), 0.1, 0, torch.qint8),
    }


def _all_but_the_leading(spec, count: int) -> list[int]:
    """Places of the tensors that have to agree with the first input."""
    return [i for i in range(count) if i != count + leading(spec)]


@each_spec
@each_pass
@pytest.mark.parametrize("dtype", NOT_FLOATING, ids=str)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_dtype(spec, suffix, dtype, device, check_message):
    tensors = pass_tensors(spec, suffix, lambda s: torch.ones(3, device=device).to(dtype))
    with pytest.raises(TypeError) as raised:
        overloads(spec, suffix).default(*tensors)
    text = check_message(raised.value)
    assert text.startswith(f"[{spec.torch_name}] ")
    assert str(dtype).removeprefix("torch.") in text
    assert all(name in text for name in DTYPES)


@each_spec
@pytest.mark.parametrize("layout", NOT_DENSE)
def test_layout(spec, layout, check_message):
    inputs = [NOT_DENSE[layout]] * len(spec.inputs)
    with pytest.raises(TypeError) as raised:
        function(spec)(*inputs)
    assert check_message(raised.value).startswith(f"[{spec.torch_name}] ")


@each_spec
@each_pass
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_attribute_that_is_not_finite(spec, suffix, value, device, check_message):
    tensors = pass_tensors(spec, suffix, lambda s: torch.ones(3, device=device))
    for attribute in spec.attributes:
        with pytest.raises(ValueError) as raised:
            overloads(spec, suffix).default(*tensors, **{attribute.name: value})
        text = check_message(raised.value)
        assert text.startswith(f"[{spec.torch_name}] {attribute.name} ")
        assert str(value) in text


@each_spec
@each_pass
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_shapes_that_differ(spec, suffix, device, check_message):
    """Not even broadcastable ones, unless the operator says so: nothing is expanded silently."""
    count = tensor_count(spec, suffix)
    for index in _all_but_the_leading(spec, count):
        for shape in ((2,), (1,), (), (3, 1), (1, 3), (0,)):
            if spec.broadcasts and not suffix and shape in ((1,), ()):
                continue
            tensors = [torch.ones(3, device=device) for _ in range(count)]
            tensors[index] = torch.ones(shape, device=device)
            with pytest.raises(ValueError) as raised:
                overloads(spec, suffix).default(*tensors)
            text = check_message(raised.value)
            assert "[3]" in text
            assert str(list(shape)) in text


@each_spec
@each_pass
def test_dtypes_that_differ(spec, suffix, check_message):
    count = tensor_count(spec, suffix)
    for index in _all_but_the_leading(spec, count):
        for dtype in (torch.float64, torch.float16, torch.bfloat16):
            tensors = [torch.ones(3) for _ in range(count)]
            tensors[index] = tensors[index].to(dtype)
            with pytest.raises(TypeError) as raised:
                overloads(spec, suffix).default(*tensors)
            text = check_message(raised.value)
            assert "float32" in text
            assert str(dtype).removeprefix("torch.") in text


@each_spec
@each_pass
def test_devices_that_differ(spec, suffix, check_message):
    count = tensor_count(spec, suffix)
    for index in _all_but_the_leading(spec, count):
        tensors = [torch.ones(3) for _ in range(count)]
        tensors[index] = torch.ones(3, device="meta")
        with pytest.raises(ValueError) as raised:
            overloads(spec, suffix).default(*tensors)
        text = check_message(raised.value)
        assert "meta" in text
        assert "cpu" in text


@each_spec
def test_wrong_calls(spec):
    function_ = function(spec)
    inputs = [torch.ones(3) for _ in spec.inputs]
    for args, kwargs in (
        ((), {}),
        (([1.0],) * len(inputs), {}),
        ((*inputs, *(1.0 for _ in spec.attributes), 1.0), {}),
        (inputs, {"nonsense": 1.0}),
        (inputs, {spec.inputs[0]: inputs[0]}),
        ((*inputs, "text"), {}),
    ):
        with pytest.raises((TypeError, RuntimeError)) as raised:
            function_(*args, **kwargs)
        assert spec.torch_name in str(raised.value)


@each_spec
def test_attribute_forms(spec):
    """Keyword, position and int mean the same."""
    inputs = [torch.ones(3) for _ in spec.inputs]
    for attribute in spec.attributes:
        expected = function(spec)(*inputs, **{attribute.name: 2.0})
        assert torch.equal(function(spec)(*inputs, **{attribute.name: 2}), expected)
    values = [2] * len(spec.attributes)
    keywords = dict.fromkeys(spec.defaults(), 2.0)
    assert torch.equal(function(spec)(*inputs, *values), function(spec)(*inputs, **keywords))


@each_spec
def test_documentation(spec):
    function_ = function(spec)
    text = function_.__doc__
    for word in (*spec.inputs, *spec.defaults(), "Args:", "Returns:", "Raises:", "out:"):
        assert word in text
    assert spec.summary in text
    assert function_.__name__ == spec.torch_name
