# SPDX-License-Identifier: Apache-2.0
"""The modules: attribute values, state, copies, wrong arguments."""

from __future__ import annotations

import copy
import inspect
import io
import pickle

import myops.functional
import myops.nn
import pytest
import torch
from myops.norm_spec import derived
from myops.spec import ELEMENTWISE, NORMS

from ..support import each_spec
from .support import (
    attribute_sets,
    function,
    other_attributes,
)


def _module(spec) -> type[torch.nn.Module]:
    return getattr(myops.nn, spec.name)


def test_names():
    specs = (*ELEMENTWISE, *derived(NORMS))
    modules = {spec.name for spec in specs}
    assert set(myops.nn.__all__) == modules | {"Operator", "RMSNorm", "SwishPerChannel"}
    names = {spec.torch_name for spec in specs}
    assert set(myops.functional.__all__) == names | {
        "quick_gelu",
        "rms_norm",
        "split_gate",
        "swish_per_channel",
    }


@each_spec
def test_forward_is_the_function(spec):
    inputs = [torch.randn(3, 4) for _ in spec.inputs]
    for attributes in (spec.defaults(), other_attributes(spec), *attribute_sets(spec)):
        expected = function(spec)(*inputs, **attributes)
        assert torch.equal(_module(spec)(**attributes)(*inputs), expected)
        assert torch.equal(_module(spec)(*attributes.values())(*inputs), expected)
    assert torch.equal(_module(spec)()(*inputs), function(spec)(*inputs))


@each_spec
def test_forward_spells_its_arguments_out(spec):
    """Exporters name the graph's inputs after them."""
    assert tuple(inspect.signature(_module(spec)().forward).parameters) == spec.inputs


@each_spec
def test_repr(spec):
    attributes = dict.fromkeys(spec.defaults(), 1.75)
    inner = ", ".join(f"{name}=1.75" for name in attributes)
    assert repr(_module(spec)(**attributes)) == f"{spec.name}({inner})"


@each_spec
def test_repr_tells_close_values_apart(spec):
    for name in spec.defaults():
        assert repr(_module(spec)(**{name: 1.0})) != repr(_module(spec)(**{name: 1.0000001}))


@each_spec
@pytest.mark.parametrize("way", ["copy", "deepcopy", "pickle", "torch.save"])
def test_copies(spec, way):
    module = _module(spec)(**other_attributes(spec))
    if way == "copy":
        other = copy.copy(module)
    elif way == "deepcopy":
        other = copy.deepcopy(module)
    elif way == "pickle":
        other = pickle.loads(pickle.dumps(module))
    else:
        buffer = io.BytesIO()
        torch.save(module, buffer)
        buffer.seek(0)
        other = torch.load(buffer, weights_only=False)
    assert type(other) is type(module)
    assert repr(other) == repr(module)
    inputs = [torch.randn(3) for _ in spec.inputs]
    assert torch.equal(other(*inputs), module(*inputs))


@each_spec
def test_state_dict_is_empty_and_loads(spec):
    module = _module(spec)(**other_attributes(spec))
    assert module.state_dict() == {}
    assert list(module.parameters()) == []
    assert list(module.buffers()) == []
    net = torch.nn.ModuleDict({"act": module, "linear": torch.nn.Linear(2, 2)})
    assert all(key.startswith("linear.") for key in net.state_dict())
    net.load_state_dict(net.state_dict(), strict=True)


@each_spec
def test_attributes_are_floats_and_may_change(spec):
    module = _module(spec)(**dict.fromkeys(spec.defaults(), 2))
    inputs = [torch.randn(3) for _ in spec.inputs]
    for name in spec.defaults():
        assert type(getattr(module, name)) is float
        setattr(module, name, 0.75)
    values = dict.fromkeys(spec.defaults(), 0.75)
    assert torch.equal(module(*inputs), function(spec)(*inputs, **values))


@each_spec
def test_conversions_leave_the_attributes_alone(spec):
    module = _module(spec)(**other_attributes(spec))
    for convert in (torch.nn.Module.half, torch.nn.Module.double, torch.nn.Module.eval):
        text = repr(module)
        assert repr(convert(module)) == text


@each_spec
def test_too_many_arguments(spec, check_message):
    with pytest.raises(TypeError) as raised:
        _module(spec)(*([1.0] * (len(spec.attributes) + 1)))
    assert check_message(raised.value).startswith(f"[{spec.name}] ")


@each_spec
def test_unknown_and_repeated_arguments(spec, check_message):
    with pytest.raises(TypeError) as raised:
        _module(spec)(nonsense=1.0)
    assert "nonsense=1.0" in check_message(raised.value)
    for attribute in spec.attributes[:1]:
        with pytest.raises(TypeError) as raised:
            _module(spec)(1.0, **{attribute.name: 2.0})
        assert f"{attribute.name}=2.0" in check_message(raised.value)


@each_spec
@pytest.mark.parametrize("value", ["text", None, [1.0], 1j])
def test_values_that_are_no_numbers(spec, value):
    for attribute in spec.attributes:
        with pytest.raises((TypeError, ValueError)):
            _module(spec)(**{attribute.name: value})


@each_spec
def test_learnable_attribute_is_refused(spec):
    """It would be frozen silently: attributes are numbers, not parameters."""
    for attribute in spec.attributes:
        with pytest.raises((TypeError, ValueError)):
            _module(spec)(**{attribute.name: torch.nn.Parameter(torch.tensor(1.0))})


@each_spec
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite(spec, value, check_message):
    inputs = [torch.ones(3) for _ in spec.inputs]
    for attribute in spec.attributes:
        with pytest.raises(ValueError) as raised:
            _module(spec)(**{attribute.name: value})(*inputs)
        check_message(raised.value)


@each_spec
def test_documentation(spec):
    text = _module(spec).__doc__
    assert spec.summary in text
    assert spec.details in text
    assert "Shape:" in text
    for attribute in spec.attributes:
        assert attribute.doc in text


@each_spec
def test_in_a_sequential_with_hooks(spec):
    if len(spec.inputs) == 1:
        seen = []
        module = _module(spec)()
        module.register_forward_hook(lambda m, args, out: seen.append(out))
        torch.nn.Sequential(torch.nn.Linear(3, 3), module)(torch.randn(2, 3))
        assert len(seen) == 1
