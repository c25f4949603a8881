# SPDX-License-Identifier: Apache-2.0
"""What follows from a norm's ``OpSpec``: for made-up norms what needs no kernel, and the rest for
RMSNorm's, whose function and module in the package are written by hand."""

from __future__ import annotations

import copy
import inspect

import myops.functional as F
import myops.nn
import numpy as np
import onnx
import pytest
import torch
from myops.bench import compiled, ort_rows, rivals, torch_rows
from myops.norm_spec import ADD_RMS_NORM, RMS_NORM, derived
from myops.onnx import export, functions
from myops.onnx.inject.patterns import from_spelling
from myops.spec import NORMS, SPECS
from myops.verify import operators
from onnx.reference import ReferenceEvaluator

from ..made_up import GAIN_NORM, MADE_UP, PLAIN_NORM
from ..support import norm_values
from .norm_support import attribute_sets, attributes, composed, exact, loss, norm_inputs

each_made_up = pytest.mark.parametrize("spec", MADE_UP, ids=lambda spec: spec.torch_name)


@pytest.fixture(scope="module")
def function():
    """``rms_norm`` without a residual, made like that of any other norm."""
    return F._make(RMS_NORM)


@pytest.fixture(scope="module")
def module():
    return myops.nn._make_norm(RMS_NORM)


def test_which_are_derived():
    by_hand = [spec for spec in NORMS if spec not in derived(NORMS)]
    assert by_hand == [RMS_NORM, ADD_RMS_NORM]
    assert derived((*NORMS, *MADE_UP))[-2:] == MADE_UP


@each_made_up
def test_docstring_of_the_function(spec):
    text = F._norm_docstring(spec)
    assert text.startswith(f"{spec.summary}\n\n{spec.details}\n\nArgs:\n")
    assert "x: tensor of shape ``(..., n)``" in text
    assert "weight: tensor of shape ``(n,)``" in text
    for attribute in spec.attributes:
        assert f"    {attribute.name}: {attribute.doc} Default {attribute.default:g}.\n" in text
    for part in ("    out: ", "Returns:\n", "Raises:\n", "TypeError", "ValueError", "derivative"):
        assert part in text


def test_function_has_the_bits_of_the_one_written_by_hand(function):
    x, weight = norm_inputs(RMS_NORM, (3, 4, 6), torch.float32)
    parameters = inspect.signature(function).parameters
    assert list(parameters) == ["x", "weight", "eps", "out"]
    assert parameters["eps"].default == 1e-6
    for more in ({}, {"eps": 1e-3}, {"eps": 1}):
        expected = F.rms_norm(x, weight, **more)
        assert torch.equal(function(x, weight, **more), expected)
        out = torch.empty(0)
        assert function(x, weight, **more, out=out) is out
        assert torch.equal(out, expected)
    assert torch.equal(function(x, weight, 0.5), F.rms_norm(x, weight, 0.5))
    with pytest.raises(TypeError, match=r"\[rms_norm\].*requires grad"):
        function(x, weight, torch.tensor(1.0, requires_grad=True))


def test_function_is_compiled_whole(function):
    ours, theirs = (
        [t.requires_grad_() for t in norm_inputs(RMS_NORM, dtype=torch.float32)] for _ in range(2)
    )
    whole = torch.compile(lambda *a: loss(function, *a), fullgraph=True, backend="aot_eager")
    whole(*ours).backward()
    loss(F.rms_norm, *theirs).backward()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad)


@each_made_up
def test_signature_of_the_module(spec):
    parameters = inspect.signature(myops.nn._make_norm(spec)).parameters
    last = {"elementwise_affine": True, "device": None, "dtype": None}
    assert list(parameters) == ["normalized_shape", *spec.defaults(), *last]
    for name, default in (spec.defaults() | last).items():
        assert parameters[name].default == default


def test_state_of_the_module(check_message):
    made = myops.nn._make_norm(GAIN_NORM)
    module = made((2, 4), 3, dtype=torch.float64)
    assert repr(module) == "GainNorm((2, 4), gain=3.0, eps=0.001, elementwise_affine=True)"
    assert type(module.gain) is float
    assert list(module.state_dict()) == ["weight"]
    assert torch.equal(module.weight, torch.ones(2, 4, dtype=torch.float64))
    assert made(4, eps=0.5, elementwise_affine=False).state_dict() == {}
    assert made(4, device="meta").weight.device.type == "meta"
    assert repr(myops.nn._make_norm(PLAIN_NORM)(4)) == "PlainNorm((4,), elementwise_affine=True)"
    with pytest.raises(TypeError) as raised:
        made(4, torch.nn.Parameter(torch.tensor(1.0)))
    assert check_message(raised.value).startswith("[GainNorm] ")
    for wrong in ({"nonsense": 1}, {"gain": None}, {"gain": "text"}):
        with pytest.raises((TypeError, ValueError)):
            made(4, **wrong)
    with pytest.raises(ValueError) as raised:
        module(torch.ones(3, 4))
    assert check_message(raised.value).startswith("[GainNorm] the last dims of x should be [2, 4]")


@each_made_up
def test_documentation_of_the_module(spec):
    made = myops.nn._make_norm(spec)
    assert made.__module__ == "myops.nn"
    assert made.__name__ == spec.name
    for text in (spec.summary, spec.details, "normalized_shape:", "Shape:", "Raises:"):
        assert text in made.__doc__
    assert all(attribute.doc in made.__doc__ for attribute in spec.attributes)
    assert spec.torch_name in made.forward.__doc__
    assert list(inspect.signature(made.forward).parameters) == ["self", "x"]


@pytest.mark.parametrize("shape", [6, (4, 6)], ids=str)
@pytest.mark.parametrize("affine", [True, False], ids=["affine", "plain"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_module_has_the_bits_of_the_one_written_by_hand(module, shape, affine, dtype):
    made = module(shape, 1e-3, affine)
    theirs = myops.nn.RMSNorm(shape, 1e-3, affine)
    if affine:
        torch.nn.init.normal_(theirs.weight)
    made.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 4, 6).to(dtype)
    assert torch.equal(made(x), theirs(x))
    assert torch.equal(copy.deepcopy(made)(x), theirs(x))
    made.eps = theirs.eps = 0.5
    assert torch.equal(made(x), theirs(x))
    assert repr(made) == repr(theirs)


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_module_is_exported(module, exporter, tmp_path):
    made, path = module((3, 4), 2.0**-8), tmp_path / "m.onnx"
    export(made, torch.randn(2, 3, 4), path, exporter=exporter)
    (node,) = (n for n in onnx.load(path).graph.node if n.domain == "myops")
    assert (node.op_type, node.attribute[0].f) == ("RMSNorm", 2.0**-8)


def test_module_is_compiled_whole(module):
    made, x = module((3, 4)), torch.randn(2, 3, 4)
    whole = torch.compile(made, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(whole(x), made(x))


@each_made_up
def test_composed_of_the_body(spec):
    inputs = norm_inputs(spec)
    for values in (attributes(spec), *attribute_sets(spec)):
        (expected,) = exact(spec, "float64", values, *inputs)
        wide = composed(spec)(*inputs, **values)
        # The reference has its attributes in float64, too.
        np.testing.assert_allclose(wide.numpy(), expected.astype(np.float64), rtol=1e-13)
    leaves = [tensor.requires_grad_() for tensor in inputs]
    assert torch.autograd.gradgradcheck(composed(spec), leaves)


@each_made_up
def test_bodies_under_the_reference_evaluator(spec, monkeypatch):
    monkeypatch.setattr(SPECS, "_specs", [*SPECS, spec])
    values = norm_values(spec)
    feeds = {
        name: tensor.numpy()
        for name, tensor in zip(spec.inputs, norm_inputs(spec, dtype=torch.float32), strict=True)
    }
    expected = spec.reference(*(a.astype(np.float64) for a in feeds.values()), **values)
    for way in (functions.add_functions, functions.expand):
        model = operators.one_node_model(spec, "float32", values)
        way(model)
        (found,) = ReferenceEvaluator(model).run(None, feeds)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert from_spelling(spec, spec.body).roots == {"Mul", "Div"}


@each_made_up
def test_rows_of_the_benchmark(spec):
    data = rivals.Data.make(spec, 96, "float64")
    tensors = [torch_rows.tensor_on(array) for array in data.inputs]
    (found,) = compiled.body(spec, tensors)
    expected = spec.reference(*data.inputs, **spec.defaults())
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
    assert torch_rows.TORCH_RIVALS.get(spec.name, ()) == ()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SPECS, "_specs", [*SPECS, spec])
        assert ort_rows.chain(spec, "float32", links=3)


def test_attributes_that_are_verified():
    small, large = operators.attribute_sets(GAIN_NORM)
    assert small == {"gain": 2.0, "eps": 2.0**-20}
    assert large == {"gain": 3.5, "eps": 2.0**-10}
    assert list(operators.attribute_sets(PLAIN_NORM)) == [{}]
    assert list(operators.attribute_sets(RMS_NORM)) == [{"eps": 2.0**-20}, {"eps": 2.0**-10}]
