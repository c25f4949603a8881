# SPDX-License-Identifier: Apache-2.0
"""Models whose graphs the exporters change: merged, dead, nested, conditional and wrapped calls."""

from __future__ import annotations

import myops.ort
import onnx
import pytest
import torch
from myops._errors import ExportError
from myops.onnx import model as onnx_model
from myops.onnx.export import export
from myops.spec import DOMAIN

from ..support import each_representative, each_spec, one_spec
from .support import (
    Call,
    attributes,
    call,
    close,
    each_exporter,
    each_mode,
    each_way,
    our_nodes,
    plain_session,
    run,
)

X = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))


def _agrees(path, model, x: torch.Tensor = X, *, plain: bool = True) -> None:
    expected = model(x)
    if plain:
        close(run(plain_session(path), x), expected, "float32")
    close(run(myops.ort.session(path), x), expected, "float32")


def _equal_calls(spec):
    return lambda x: call(spec, x) + call(spec, x)


def _equal_chains(spec):
    return lambda x: call(spec, call(spec, x)) + call(spec, call(spec, x))


def _equal_behind_equal(spec):
    return lambda x: call(spec, x + 1) * call(spec, x + 1)


def _spelt_differently(spec):
    defaults = spec.defaults()
    return lambda x: call(spec, x) + 2 * call(spec, x, **defaults)


def _different_attributes(spec):
    return lambda x: call(spec, x) + call(spec, x, **attributes(spec))


def _dead_call(spec):
    def body(x: torch.Tensor) -> torch.Tensor:
        call(spec, x, **attributes(spec))
        return call(spec, x) + 1

    return body


def _dead_chain(spec):
    def body(x: torch.Tensor) -> torch.Tensor:
        torch.relu(call(spec, call(spec, x, **attributes(spec))))
        return call(spec, x) + 1

    return body


def _two_outputs(spec):
    def body(x: torch.Tensor) -> torch.Tensor:
        y = call(spec, x)
        return torch.stack([y, call(spec, y)])

    return body


def _changed_in_place(spec):
    def body(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        first = call(spec, y)
        y.add_(1)
        return first - 2 * call(spec, y)

    return body


# Body and the number of different live calls.
BODIES = {
    "equal_calls": (_equal_calls, 1),
    "equal_chains": (_equal_chains, 2),
    "equal_behind_equal": (_equal_behind_equal, 1),
    "spelt_differently": (_spelt_differently, 1),
    "different_attributes": (_different_attributes, 2),
    "dead_call": (_dead_call, 1),
    "dead_chain": (_dead_chain, 1),
    "two_outputs": (_two_outputs, 2),
    "changed_in_place": (_changed_in_place, 2),
    "views": (lambda spec: lambda x: call(spec, x[:, :2]) + call(spec, x[:, 1:]), 2),
    "equal_views": (lambda spec: lambda x: call(spec, x.t()) + call(spec, x.t()), 1),
    "vmap": (lambda spec: lambda x: torch.vmap(lambda row: call(spec, row))(x), 1),
}


@each_representative
@each_exporter
@pytest.mark.parametrize("body", BODIES)
def test_merged_and_dead_calls(spec, exporter, body, tmp_path):
    """An exporter may keep or merge equal calls; the file must hold each different one."""
    make, different = BODIES[body]
    if not spec.attributes and body == "different_attributes":
        different = 1
    model = Call(make(spec))
    report = export(model, X, tmp_path / "m.onnx", exporter=exporter)
    nodes = our_nodes(onnx.load(report.path))
    assert different <= len(nodes) <= report.calls[spec.name]
    assert report.operators == {spec.name: len(nodes)}
    _agrees(report.path, model)


@each_representative
@each_way
def test_nested_modules(spec, exporter, mode, tmp_path):
    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.ModuleList([torch.nn.Linear(3, 3) for _ in range(2)])
            self.act = torch.nn.ModuleDict({"a": Call(lambda x: call(spec, x, **attributes(spec)))})

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for linear in self.inner:
                x = self.act["a"](linear(x))
            return x

    model = torch.nn.Sequential(Block(), torch.nn.Sequential(Block()))
    report = export(model, X, tmp_path / "m.onnx", mode=mode, exporter=exporter)
    assert report.calls == {spec.name: 4}
    assert report.operators == ({} if mode == "native" else {spec.name: 4})
    names = [node.name for node in our_nodes(onnx.load(report.path))]
    assert len(set(names)) == len(names)
    _agrees(report.path, model, plain=mode != "custom")


@each_representative
@each_mode
def test_branches_of_a_condition(spec, mode, tmp_path):
    """Both branches are in the file, one of them runs."""

    def body(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(
            x.sum() > 0,
            lambda x: call(spec, x),
            lambda x: call(spec, call(spec, x, **attributes(spec))),
            (x,),
        )

    model = Call(body)
    report = export(model, X, tmp_path / "m.onnx", mode=mode, exporter="dynamo")
    file = onnx.load(report.path)
    assert len(our_nodes(file)) == (0 if mode == "native" else 3)
    assert [n for n in file.graph.node if n.domain == DOMAIN] == []
    for x in (X.abs(), -X.abs()):
        _agrees(report.path, model, x, plain=mode != "custom")


@each_representative
@each_mode
def test_body_of_a_loop(spec, mode, tmp_path):
    from torch._higher_order_ops.while_loop import while_loop

    def body(x: torch.Tensor) -> torch.Tensor:
        step = torch.tensor(0)
        return while_loop(
            lambda i, x: i < 3, lambda i, x: (i + 1, call(spec, x, **attributes(spec))), (step, x)
        )[1]

    model = Call(body)
    report = export(model, X, tmp_path / "m.onnx", mode=mode, exporter="dynamo")
    assert len(our_nodes(onnx.load(report.path))) == (0 if mode == "native" else 1)
    _agrees(report.path, model, plain=mode != "custom")


def test_condition_and_an_exporter_that_has_none(tmp_path, check_message):
    body = Call(lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)))
    with pytest.raises(ExportError) as raised:
        export(body, X, tmp_path / "m.onnx", exporter="torchscript")
    check_message(raised.value)
    assert list(tmp_path.iterdir()) == []


@each_way
def test_model_without_our_operators(exporter, mode, tmp_path):
    report = export(torch.nn.ReLU(), X, tmp_path / "m.onnx", mode=mode, exporter=exporter)
    assert report.nodes == ["Relu"]
    assert report.operators == report.calls == {}
    model = onnx.load(report.path)
    assert onnx_model.opset(model, DOMAIN) is None
    assert len(model.functions) == 0
    _agrees(report.path, torch.nn.ReLU())


@each_representative
@each_way
@pytest.mark.parametrize("other", ["float64", "float16", "bfloat16"])
def test_two_dtypes(spec, mode, exporter, other, tmp_path):
    """One model-local function serves all types of a name."""
    dtype = getattr(torch, other)
    model = Call(lambda x: call(spec, x) + call(spec, x.to(dtype), **attributes(spec)).float())
    report = export(model, X, tmp_path / "m.onnx", mode=mode, exporter=exporter)
    for session in [plain_session] * (mode != "custom") + [myops.ort.session]:
        tolerance = {"float64": "float32"}.get(other, other)
        close(run(session(report.path), X), model(X), tolerance)


@one_spec
@pytest.mark.parametrize("opset", [9, 13])
def test_two_dtypes_below_cast_like(spec, opset, tmp_path, check_message):
    model = Call(lambda x: call(spec, x) + call(spec, x.double()).float())
    with pytest.raises(Exception, match=r"^\[myops") as raised:
        export(model, X, tmp_path / "m.onnx", opset=opset)
    text = check_message(raised.value)
    assert "float32" in text
    assert "float64" in text
    assert list(tmp_path.iterdir()) == []
    for mode in ("native", "custom"):
        export(model, X, tmp_path / f"{mode}.onnx", opset=opset, mode=mode)
        close(run(myops.ort.session(tmp_path / f"{mode}.onnx"), X), model(X), "float32")


def _wrapped(spec, symbolic: bool) -> type[torch.autograd.Function]:
    class Wrapped(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return call(spec, x)

        @staticmethod
        def backward(ctx, grad):
            return grad

    if symbolic:
        Wrapped.symbolic = staticmethod(lambda g, x: g.op("other::Op", x).setType(x.type()))
    return Wrapped


@each_representative
@pytest.mark.parametrize("mode", ["custom", "portable"])
def test_operator_lost_in_a_function_of_the_users_own(spec, mode, tmp_path, check_message):
    """The TorchScript exporter writes the user's symbolic instead of our node and says nothing."""
    path = tmp_path / "m.onnx"
    model = Call(_wrapped(spec, symbolic=True).apply)
    with pytest.raises(ExportError) as raised:
        export(model, X, path, mode=mode, exporter="torchscript")
    text = check_message(raised.value)
    assert f"{DOMAIN}::{spec.name}" in text
    assert list(tmp_path.iterdir()) == []
    report = export(model, X, path, mode=mode, exporter="dynamo")
    assert report.operators == {spec.name: 1}


@one_spec
def test_one_of_two_calls_lost(spec, tmp_path):
    model = Call(lambda x: call(spec, _wrapped(spec, symbolic=True).apply(x)))
    with pytest.raises(ExportError):
        export(model, X, tmp_path / "m.onnx", exporter="torchscript")
    assert list(tmp_path.iterdir()) == []


@one_spec
@each_exporter
def test_function_of_the_users_own_that_hides_nothing(spec, exporter, tmp_path):
    model = Call(_wrapped(spec, symbolic=False).apply)
    report = export(model, X, tmp_path / "m.onnx", exporter=exporter)
    assert report.operators == {spec.name: 1}
    _agrees(report.path, model)


COMPUTED = {
    "item": lambda x: x.mean().item(),
    "tensor": lambda x: x.mean(),
    "float_of_tensor": lambda x: float(x.mean()),
    "dynamic_dim": lambda x: float(x.shape[0]),
    "dynamic_dim_arithmetic": lambda x: 1.0 / x.shape[0],
}


@each_representative
@each_exporter
@pytest.mark.parametrize("value", COMPUTED)
def test_attribute_computed_from_the_input(spec, exporter, value, tmp_path):
    """Both exporters bake such a value in: the file would be right for the example only."""
    for attribute in spec.attributes:
        model = Call(lambda x, name=attribute.name: call(spec, x, **{name: COMPUTED[value](x)}))
        with pytest.raises(ExportError):
            export(model, X, tmp_path / "m.onnx", exporter=exporter, dynamic={"x": {0: "N"}})
        assert list(tmp_path.iterdir()) == []


@one_spec
@each_exporter
def test_attribute_of_a_static_shape_is_a_number(spec, exporter, tmp_path):
    for attribute in spec.attributes:
        model = Call(
            lambda x, name=attribute.name: call(spec, x, **{name: float(1.0 / x.shape[1])})
        )
        report = export(model, X, tmp_path / "m.onnx", exporter=exporter, dynamic={"x": {0: "N"}})
        (node,) = our_nodes(onnx.load(report.path))
        given = {a.name: a.f for a in node.attribute}
        assert given[attribute.name] == pytest.approx(1 / 3, rel=1e-7)


@each_representative
@each_exporter
def test_attribute_of_a_buffer_is_a_number(spec, exporter, tmp_path):
    """What does not depend on the inputs may be computed from the model's own state."""

    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = 0.75 + torch.zeros(1).sum().item()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return call(spec, x, **dict.fromkeys(spec.defaults(), self.scale * 2))

    report = export(Scaled(), X, tmp_path / "m.onnx", exporter=exporter, dynamic={"x": {0: "N"}})
    (node,) = our_nodes(onnx.load(report.path))
    assert {a.name: a.f for a in node.attribute} == dict.fromkeys(spec.defaults(), 1.5)


@each_spec
@each_exporter
@pytest.mark.parametrize("form", ["omitted", "keyword", "position", "int"])
def test_attribute_forms(spec, exporter, form, tmp_path):
    """Omitted, as keyword and as int: the node always says 1.0, 2.0, 2.0."""
    values = dict.fromkeys(spec.defaults(), 2.0)
    bodies = {
        "omitted": (lambda x: call(spec, x), spec.defaults()),
        "keyword": (lambda x: call(spec, x, **values), values),
        "position": (
            lambda x: getattr(myops.functional, spec.torch_name)(
                *[x] * len(spec.inputs), *values.values()
            ),
            values,
        ),
        "int": (lambda x: call(spec, x, **dict.fromkeys(values, 2)), values),
    }
    body, expected = bodies[form]
    report = export(Call(body), X, tmp_path / "m.onnx", exporter=exporter)
    (node,) = our_nodes(onnx.load(report.path))
    assert {a.name: (a.f, a.type) for a in node.attribute} == {
        name: (value, onnx.AttributeProto.FLOAT) for name, value in expected.items()
    }


@each_representative
@each_exporter
def test_backward_pass_in_a_model_is_an_error(spec, exporter, tmp_path, check_message):
    op = getattr(getattr(torch.ops, DOMAIN), spec.torch_name + "_backward")
    model = Call(lambda x: op(x, *[x] * len(spec.inputs)))
    with pytest.raises(ExportError) as raised:
        export(model, X, tmp_path / "m.onnx", exporter=exporter)
    check_message(raised.value)
    assert list(tmp_path.iterdir()) == []


@each_representative
@each_exporter
def test_out_form_in_a_model_is_an_error(spec, exporter, tmp_path, check_message):
    def body(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        getattr(myops.functional, spec.torch_name)(*[x] * len(spec.inputs), out=y)
        return y

    with pytest.raises(ExportError) as raised:
        export(Call(body), X, tmp_path / "m.onnx", exporter=exporter)
    check_message(raised.value)
    assert list(tmp_path.iterdir()) == []
