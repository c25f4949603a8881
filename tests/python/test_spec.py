# SPDX-License-Identifier: Apache-2.0
"""The operator table agrees with the native one, and each entry with itself."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable

import numpy as np
import pytest
from myops import _build_info, spec, spec_check
from myops._errors import UsageError
from myops.spec import ELEMENTWISE, NORMS, SPECS, SWISH, OpSpec

each_spec = pytest.mark.parametrize("entry", SPECS, ids=lambda entry: entry.torch_name)
each_elementwise = pytest.mark.parametrize("entry", ELEMENTWISE, ids=lambda entry: entry.torch_name)
each_norm = pytest.mark.parametrize("entry", NORMS, ids=lambda entry: entry.torch_name)

DTYPES = ("float32", "float64", "float16", "bfloat16")


def test_table_and_native_list_agree():
    assert spec_check.mismatches() == []
    assert [op["name"] for op in _build_info.ops()] == [entry.name for entry in SPECS]
    assert tuple(_build_info.dtypes) == DTYPES


def test_functor_without_entry_is_named(monkeypatch):
    monkeypatch.setattr(spec_check, "SPECS", ())
    found = spec_check.mismatches()
    assert len(found) == len(SPECS)
    for entry, sentence in zip(SPECS, found, strict=True):
        assert sentence.startswith(entry.name)
        assert "add one to python/myops/spec.py" in sentence


def test_entry_without_functor_is_named(monkeypatch):
    extra = dataclasses.replace(SPECS[0], name="Other", torch_name="other")
    monkeypatch.setattr(spec_check, "SPECS", (*SPECS, extra))
    (sentence,) = spec_check.mismatches()
    assert sentence.startswith("Other ")
    assert "native/kernels/ops" in sentence


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"torch_name": "other"}, "torch name"),
        ({"inputs": ("x", "gate")}, "inputs"),
        ({"attributes": (spec.Attribute("gamma", 1.0, ""),)}, "attributes"),
        ({"attributes": (spec.Attribute("beta", 1.5, ""),)}, "attributes"),
        ({"attributes": (spec.Attribute("beta", 1.0, "", lowest=0.0),)}, "attributes"),
        ({"broadcasts": True}, "broadcasts"),
    ],
)
def test_entry_that_differs_is_named(monkeypatch, change, word):
    changed = [dataclasses.replace(s, **change) if s is SWISH else s for s in SPECS]
    monkeypatch.setattr(spec_check, "SPECS", tuple(changed))
    (sentence,) = spec_check.mismatches()
    assert sentence.startswith(f"{SWISH.name}: {word}")


def test_names_are_unique_and_in_their_forms():
    names = [name for entry in SPECS for name in (entry.name, entry.torch_name)]
    assert len(set(names)) == len(names)
    for entry in SPECS:
        assert entry.name[0].isupper()
        assert entry.name.isalnum()
        assert entry.torch_name.islower()
        assert entry.torch_name.isidentifier()
        assert entry.torch_name.replace("_", "") == entry.name.lower()


@each_spec
def test_find(entry):
    assert spec.find(entry.name) is entry
    assert spec.find(entry.torch_name) is entry


def test_find_names_what_there_is(check_message):
    with pytest.raises(UsageError) as raised:
        spec.find("nonsense")
    text = check_message(raised.value)
    assert "'nonsense'" in text
    assert all(entry.name in text for entry in SPECS)


@each_spec
def test_entry_is_complete(entry: OpSpec):
    assert set(entry.max_ulp) == set(DTYPES)
    assert entry.max_ulp["float16"] <= 0.51
    assert entry.max_ulp["bfloat16"] <= 0.51
    assert 0 < entry.max_ulp["float32"] <= 8
    assert 0 < entry.max_ulp["float64"] <= 8
    assert entry.domain[0] < entry.domain[1]
    assert entry.summary.endswith(".")
    assert "Source:" in entry.details
    for attribute in entry.attributes:
        assert np.float32(attribute.default) == attribute.default, "ONNX attributes are float32"
        assert attribute.doc.endswith(".")
        assert attribute.lowest <= attribute.default


@each_spec
def test_callables_take_inputs_then_attributes(entry: OpSpec):
    def names(function: Callable) -> list[str]:
        parameters = inspect.signature(function).parameters.values()
        return [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]

    expected = [*entry.inputs, *entry.defaults()]
    inspect.signature(entry.reference).bind(*entry.inputs, **entry.defaults())
    assert names(entry.reference) == expected[: len(names(entry.reference))]
    for body in filter(None, (entry.body, entry.body_float64)):
        inspect.signature(body).bind("op", *expected)
        assert names(body) == ["op", *expected][: len(names(body))]


@each_elementwise
def test_reference_keeps_shape_and_precision(entry: OpSpec):
    for shape in ((), (0,), (2, 3)):
        inputs = [np.ones(shape) for _ in entry.inputs]
        result = entry.reference(*inputs, **entry.defaults())
        assert np.shape(result) == shape
        assert result.dtype == np.float64


@each_norm
def test_reference_of_a_norm_keeps_shape_and_precision(entry: OpSpec):
    for shape in ((0, 3), (3,), (2, 3), (4, 2, 3)):
        for dtype in (np.float64, np.longdouble):
            rows = [np.ones(shape, dtype) for _ in entry.inputs[:-1]]
            results = entry.reference(*rows, np.ones(3, dtype), **entry.defaults())
            results = results if isinstance(results, tuple) else (results,)
            assert len(results) == len(entry.outputs)
            assert {r.shape for r in results} == {shape}
            assert {r.dtype for r in results} == {np.dtype(dtype)}


@each_spec
def test_reference_never_warns(entry: OpSpec):
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e308, -1e308, 5e-324, 800.0, -800.0])
    with np.errstate(all="raise", under="ignore"):
        for factor in (1.0, -1.0, 0.0, 1e300):
            attributes = {a.name: a.default * factor for a in entry.attributes}
            entry.reference(*[x] * len(entry.inputs), **attributes)


@each_elementwise
def test_reference_in_longdouble_is_longdouble(entry: OpSpec):
    """float64 arithmetic cannot judge float64 kernels."""
    inputs = [np.linspace(-20, 20, 101).astype(np.longdouble) for _ in entry.inputs]
    result = entry.reference(*inputs, **entry.defaults())
    assert result.dtype == np.longdouble
    in_float64 = entry.reference(*(i.astype(np.float64) for i in inputs), **entry.defaults())
    np.testing.assert_allclose(in_float64, result.astype(np.float64), rtol=1e-13, atol=1e-300)


@pytest.mark.parametrize(
    ("x", "beta", "value"),
    [
        (1, 1, 0.7310585786),
        (1, 2, 0.8807970780),
        (1, 1.702, 0.8457957659),
        (-2, 1.702, -0.0643413769),
        (1, 0, 0.5),
        (-1000.0, 1, 0.0),
        (1000.0, 1, 1000.0),
    ],
)
def test_reference_values(x, beta, value):
    assert SWISH.reference(np.array(float(x)), beta) == pytest.approx(value, rel=1e-9)


def test_reference_limits():
    x = np.array([-0.0, 0.0, np.inf, -np.inf, np.nan])
    y = SWISH.reference(x, 1.0)
    assert y[:4].tolist() == [0.0, 0.0, np.inf, 0.0]
    assert np.signbit(y[:4]).tolist() == [True, False, False, True]
    assert np.isnan(y[4])
    mirrored = SWISH.reference(-x, -1.0)
    np.testing.assert_array_equal(mirrored, -y)
    assert SWISH.reference(x, 0.0)[2:4].tolist() == [np.inf, -np.inf]


@each_elementwise
def test_reference_of_a_zero_that_stands_for_a_number_keeps_its_sign(entry: OpSpec):
    """Kernels are judged by it: where float64 underflows, longdouble does not."""
    x = np.array([-30.0, -38.5, -87.0, -104.5, -700.0, -760.0, -1000.0, -1e4])
    others = [np.full_like(x, 1.5) for _ in entry.inputs[1:]]
    coarse = entry.reference(x, *others, **entry.defaults())
    fine = entry.reference(*(i.astype(np.longdouble) for i in (x, *others)), **entry.defaults())
    np.testing.assert_array_equal(np.signbit(coarse), np.signbit(fine))
