# SPDX-License-Identifier: Apache-2.0
"""Every spelling becomes the operator it spells, and nothing else does."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from myops.onnx import functions, inject
from myops.onnx.inject.patterns import patterns
from myops.spec import ELEMENTWISE, NORMS, SPECS, OpSpec
from onnx import TensorProto, helper

from .graphs import SHAPE, beta, custom, ops, ours, parse, run, scalars, skipped

HARDSWISH = {
    "HardSigmoid": "h = HardSigmoid<alpha=0.16666667, beta=0.5>(x)  y = Mul(x, h)",
    "default beta": "h = HardSigmoid<alpha=0.16666667>(x)  y = Mul(h, x)",
    "Clip, Mul, Div": "a = Add(x, three) c = Clip(a, zero, six) m = Mul(x, c) y = Div(m, six)",
    "Clip, Div, Mul": "a = Add(three, x) c = Clip(a, zero, six) d = Div(c, six) y = Mul(d, x)",
    "Clip, sixth": "a = Add(x, three) c = Clip(a, zero, six) d = Mul(sixth, c) y = Mul(x, d)",
    "x / 6": "s = Div(x, six) a = Add(x, three) c = Clip(a, zero, six) y = Mul(s, c)",
    "Min, Max": "a = Add(x, three) l = Max(zero, a) c = Min(l, six) m = Mul(x, c) y = Div(m, six)",
    "Relu, Min": "a = Add(x, three) l = Relu(a) c = Min(six, l) m = Mul(x, c) y = Div(m, six)",
    "Sub": "a = Sub(x, minus3) c = Clip(a, zero, six) m = Mul(x, c) y = Div(m, six)",
    "line": "l = Mul(x, sixth) a = Add(l, half) c = Clip(a, zero, one) y = Mul(x, c)",
    "node": "y = HardSwish(x)",
}
SCALARS = (
    "float zero = {0.0}, float one = {1.0}, float half = {0.5}, float three = {3.0}, "
    "float six = {6.0}, float sixth = {0.16666667}, float two = {2.0}, float b = {1.702}, "
    "float root = {1.4142135}, float cube = {0.044715}, float scale = {0.7978846}, "
    "float twenty = {20.0}, float third = {3.0}, float alpha = {0.1}"
)

SWISH = {
    ("Sigmoid, Mul", 1.0): "s = Sigmoid(x) y = Mul(x, s)",
    ("Mul(s, x)", 1.0): "s = Sigmoid(x) y = Mul(s, x)",
    ("beta last", 1.702): "z = Mul(x, b) s = Sigmoid(z) y = Mul(x, s)",
    ("beta first", 1.702): "z = Mul(b, x) s = Sigmoid(z) y = Mul(s, x)",
    ("Div", 2.0): "z = Div(x, half) s = Sigmoid(z) y = Mul(x, s)",
    ("negative", -1.0): "z = Neg(x) s = Sigmoid(z) y = Mul(x, s)",
    ("exp", 1.0): "n = Neg(x) e = Exp(n) d = Add(one, e) y = Div(x, d)",
    ("exp, beta", 1.702): "z = Mul(b, x) n = Neg(z) e = Exp(n) d = Add(e, one) y = Div(x, d)",
    ("reciprocal", 1.0): "n = Neg(x) e = Exp(n) d = Add(e, one) r = Reciprocal(d) y = Mul(r, x)",
    ("one over", 1.0): "n = Neg(x) e = Exp(n) d = Add(e, one) r = Div(one, d) y = Mul(x, r)",
    ("Identity", 1.0): "i = Identity(x) s = Sigmoid(i) j = Identity(s) y = Mul(x, j)",
    ("Constant", 1.702): "c = Constant<value = float {1.702}>() z = Mul(x, c) s = Sigmoid(z) "
    "y = Mul(x, s)",
    ("value_float", 1.5): "c = Constant<value_float = 1.5>() z = Mul(x, c) s = Sigmoid(z) "
    "y = Mul(x, s)",
    ("value_floats", 1.5): "c = Constant<value_floats = [1.5]>() z = Mul(x, c) s = Sigmoid(z) "
    "y = Mul(x, s)",
    ("Cast of value_int", 2.0): "c = Constant<value_int = 2>() f = Cast<to=1>(c) z = Mul(x, f) "
    "s = Sigmoid(z) y = Mul(x, s)",
    ("Cast of a double", 1.5): "c = Constant<value = double {1.5}>() f = Cast<to=1>(c) "
    "z = Mul(x, f) s = Sigmoid(z) y = Mul(x, s)",
    ("Identity of an initializer", 1.702): "i = Identity(b) z = Mul(x, i) s = Sigmoid(z) "
    "y = Mul(x, s)",
    ("[1]", 1.5): "c = Constant<value = float[1] {1.5}>() z = Mul(x, c) s = Sigmoid(z) "
    "y = Mul(x, s)",
    ("[1,1]", 1.5): "c = Constant<value = float[1,1] {1.5}>() z = Mul(x, c) s = Sigmoid(z) "
    "y = Mul(x, s)",
}

MISH = {
    "Softplus": "p = Softplus(x) t = Tanh(p) y = Mul(x, t)",
    "log": "e = Exp(x) a = Add(e, one) p = Log(a) t = Tanh(p) y = Mul(t, x)",
    "threshold": "p = Softplus(x) g = Greater(x, twenty) w = Where(g, x, p) t = Tanh(w) "
    "y = Mul(x, t)",
    "node": "y = Mish(x)",
}
GELU = {
    "Div, half last": "d = Div(x, root) e = Erf(d) a = Add(e, one) m = Mul(x, a) y = Mul(m, half)",
    "half first": "h = Mul(x, half) d = Div(x, root) e = Erf(d) a = Add(one, e) y = Mul(h, a)",
    "half on erf": "d = Div(x, root) e = Erf(d) a = Add(e, one) h = Mul(half, a) y = Mul(x, h)",
    "div two": "d = Div(x, root) e = Erf(d) a = Add(e, one) m = Mul(a, x) y = Div(m, two)",
    "half plus": "d = Div(x, root) e = Erf(d) h = Mul(e, half) a = Add(h, half) y = Mul(x, a)",
    "node": "y = Gelu(x)",
}
GELU_TANH = {
    "Pow": "p = Pow(x, three) c = Mul(p, cube) a = Add(x, c) i = Mul(a, scale) t = Tanh(i) "
    "o = Add(t, one) m = Mul(x, o) y = Mul(m, half)",
    "Muls": "q = Mul(x, x) p = Mul(q, x) c = Mul(cube, p) a = Add(c, x) i = Mul(scale, a) "
    "t = Tanh(i) o = Add(one, t) h = Mul(half, x) y = Mul(h, o)",
    "factored": "q = Mul(x, x) c = Mul(cube, q) a = Add(c, one) f = Mul(x, scale) i = Mul(f, a) "
    "t = Tanh(i) o = Add(one, t) h = Mul(half, x) y = Mul(h, o)",
    "node": 'y = Gelu<approximate = "tanh">(x)',
}


def _opset(body: str) -> int:
    return 20 if "Gelu" in body else 18 if "Mish" in body else 17


def model_of(body: str) -> onnx.ModelProto:
    opset = _opset(body)
    ir_version = 9 if opset > 18 else 8
    return parse(body, opset=opset, ir_version=ir_version, initializers=scalars(body))


def cases(table: dict[str, str], op: str) -> list:
    return [pytest.param(body, op, id=f"{op}-{name}") for name, body in table.items()]


@pytest.mark.parametrize(
    ("body", "op"),
    [
        *cases(HARDSWISH, "HardSwish"),
        *cases(MISH, "Mish"),
        *cases(GELU, "Gelu"),
        *cases(GELU_TANH, "GeluTanh"),
    ],
)
def test_spelling(body: str, op: str) -> None:
    result, report = custom(model_of(body))
    assert ops(result) == [f"myops::{op}"]
    assert [row.fate for row in report.rows] == [f"rewritten to myops::{op}"]
    assert not result.graph.initializer, "what only the old nodes read should be gone"


@pytest.mark.parametrize(
    ("body", "value"), [pytest.param(b, v, id=n) for (n, v), b in SWISH.items()]
)
def test_swish(body: str, value: float) -> None:
    result, _ = custom(model_of(body))
    assert ops(result) == ["myops::Swish"]
    assert beta(result) == np.float32(value)


@pytest.mark.parametrize(
    "body",
    [
        "h = HardSigmoid(x) y = Mul(x, h)",
        "a = Add(x, two) c = Clip(a, zero, six) m = Mul(x, c) y = Div(m, six)",
        "d = Div(x, two) e = Erf(d) a = Add(e, one) m = Mul(x, a) y = Mul(m, half)",
    ],
    ids=["HardSigmoid 0.2", "x + 2", "x / 2"],
)
def test_another_constant_is_not_it(body: str) -> None:
    model = model_of(body)
    result, report = custom(model)
    assert result is model
    (row,) = report.rows
    assert "constant out of tolerance" in row.reason


@pytest.mark.parametrize(
    "body",
    [
        "s = Sigmoid(x) y = Mul(w, s)",
        "t = Tanh(x) s = Sigmoid(w) y = Mul(t, s)",
        "s = Sigmoid(x) y = Add(x, s)",
        "s = Sigmoid(x) y = Div(x, s)",
        "t = Tanh(x) y = Mul(x, t)",
        "p = Softplus(x) t = Tanh(p) y = Mul(w, t)",
        "h = HardSigmoid<alpha=0.16666667, beta=0.5>(x) y = Mul(w, h)",
        "c = Clip(x, zero, six) m = Mul(x, c) y = Div(m, six)",
        "y = Relu(x)",
    ],
)
def test_look_alikes_stay(body: str) -> None:
    model = parse(body, inputs=f"{SHAPE} x, {SHAPE} w", initializers=scalars(body))
    result, report = custom(model)
    assert result is model
    assert all(row.decision == "skipped" and row.reason for row in report.rows)


def test_gate_is_reported() -> None:
    body = "h = HardSigmoid<alpha=0.16666667, beta=0.5>(x) y = Mul(w, h)"
    _, report = custom(parse(body, inputs=f"{SHAPE} x, {SHAPE} w"))
    (reason,) = skipped(report, "HardSwish")
    assert "gate" in reason and "'w'" in reason and "'x'" in reason


@pytest.mark.parametrize("opset", [6, 7, 10])
def test_clip_with_attributes(opset: int) -> None:
    body = "a = Add(x, three) c = Clip<min=0.0, max=6.0>(a) m = Mul(x, c) y = Div(m, six)"
    if opset == 6:
        opset = 7  # Add and Mul broadcast from 7 on only
    result, _ = custom(parse(body, opset=opset, ir_version=8, initializers=scalars(body)))
    assert ops(result) == ["myops::HardSwish"]


SWIGLU = {
    "Swish first": "s = Sigmoid(g) w = Mul(g, s) y = Mul(w, x)",
    "product first": "s = Sigmoid(g) m = Mul(s, x) y = Mul(g, m)",
}


@pytest.mark.parametrize("body", SWIGLU.values(), ids=SWIGLU)
def test_swiglu_is_longer_than_swish(body: str) -> None:
    result, report = custom(parse(body, inputs=f"{SHAPE} g, {SHAPE} x"))
    assert ops(result) == ["myops::SwiGLU"]
    assert list(result.graph.node[0].input) == ["g", "x"]
    assert len(report.rows) == 1


def test_swiglu_of_unequal_shapes_is_a_swish() -> None:
    body = "s = Sigmoid(g) w = Mul(g, s) y = Mul(w, x)"
    result, _ = custom(parse(body, inputs=f"{SHAPE} g, float[3] x"))
    assert ops(result) == ["myops::Swish", "Mul"]


def test_geglu() -> None:
    body = (
        "d = Div(g, root) e = Erf(d) a = Add(e, one) m = Mul(g, a) h = Mul(m, half) y = Mul(h, x)"
    )
    result, _ = custom(parse(body, inputs=f"{SHAPE} g, {SHAPE} x", initializers=scalars(body)))
    assert ops(result) == ["myops::GeGLU"]


RMS = {
    "Div": "p = Pow(x, two) m = ReduceMean<axes=[-1]>(p) e = Add(m, eps) q = Sqrt(e) "
    "d = Div(x, q) y = Mul(d, w)",
    "Reciprocal": "p = Mul(x, x) m = ReduceMean<axes=[1]>(p) e = Add(eps, m) q = Sqrt(e) "
    "r = Reciprocal(q) d = Mul(x, r) y = Mul(w, d)",
    "Pow": "p = Pow(x, two) m = ReduceMean<axes=[-1], keepdims=1>(p) e = Add(m, eps) "
    "r = Pow(e, minus) d = Mul(r, x) y = Mul(w, d)",
}
RMS_CONSTANTS = (
    "float two = {2.0}, float eps = {0.001}, float minus = {-0.5}, float[3] w = {1.0, 2.0, 3.0}"
)


@pytest.mark.parametrize("body", RMS.values(), ids=RMS)
def test_rms_norm(body: str) -> None:
    result, _ = custom(parse(body, initializers=RMS_CONSTANTS))
    assert ops(result) == ["myops::RMSNorm"]
    assert result.graph.node[0].attribute[0].f == np.float32(0.001)


def test_attribute_below_the_lowest_is_left() -> None:
    model = parse(RMS["Div"], initializers=RMS_CONSTANTS.replace("{0.001}", "{-0.001}"))
    result, report = custom(model)
    assert result is model
    assert skipped(report, "RMSNorm") == ["eps is -0.0010000000474974513, which is below 0"]


def test_rms_norm_of_a_residual_keeps_the_sum() -> None:
    body = "s = Add(a, x) n = Neg(s) " + RMS["Div"].replace("(x", "(s")
    model = parse(
        body,
        inputs=f"{SHAPE} a, {SHAPE} x",
        outputs=f"{SHAPE} y, {SHAPE} n",
        initializers=RMS_CONSTANTS,
    )
    result, _ = custom(model)
    assert ops(result) == ["myops::AddRMSNorm", "Neg"]
    assert list(result.graph.node[0].output) == ["y", "s"]


@pytest.mark.parametrize(
    "change",
    [("axes=[-1]", "axes=[0]"), ("axes=[-1]", "axes=[0,1]"), ("axes=[-1]", "axes=[-1],keepdims=0")],
)
def test_mean_over_other_dims_is_no_rms_norm(change: tuple[str, str]) -> None:
    body = RMS["Div"].replace(*change)
    shape = "float[3,3]"
    model = parse(body, f"{shape} x", f"{shape} y", initializers=RMS_CONSTANTS)
    assert custom(model)[0] is model


def test_layer_norm_is_left_to_onnxruntime() -> None:
    body = "a = ReduceMean<axes=[-1]>(v) x = Sub(v, a) " + RMS["Div"]
    model = parse(body, inputs=f"{SHAPE} v", initializers=RMS_CONSTANTS)
    result, report = custom(model)
    assert result is model
    assert "LayerNormalization" in skipped(report, "RMSNorm")[0]


def _expanded(spec: OpSpec, opset: int, kind: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """The operator's own body as a model."""
    values = {a.name: a.default * 1.5 for a in spec.attributes}
    inputs = [helper.make_tensor_value_info(n, kind, [4, 8]) for n in spec.inputs]
    if spec.kind == "norm":
        weight = helper.make_tensor_value_info(spec.inputs[-1], kind, [8])
        inputs[-1] = weight
    outputs = [helper.make_tensor_value_info(n, kind, [4, 8]) for n in spec.outputs]
    node = helper.make_node(spec.name, spec.inputs, spec.outputs, domain="myops", **values)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("myops", 1)]
    graph = helper.make_graph([node], "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    functions.expand(model)
    return model


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.DOUBLE])
@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_every_body_is_found(spec: OpSpec, opset: int, kind: int) -> None:
    """Of an operator that is new, too. float64 has bodies of its own."""
    model = _expanded(spec, opset, kind)
    result, _ = custom(model, allow_numeric_change=kind == TensorProto.DOUBLE)
    assert ops(result) == [f"myops::{spec.name}"]
    given = {a.name: a.f for a in result.graph.node[0].attribute}
    assert given == pytest.approx({a.name: a.default * 1.5 for a in spec.attributes})


@pytest.mark.parametrize("opset", [17, 18])
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_own_body_is_the_native_spelling(spec: OpSpec, opset: int) -> None:
    """Where nothing is better, nothing is changed."""
    model = _expanded(spec, opset)
    result, report = inject(model, target="native")
    assert result is model
    assert [r.reason for r in report.rows] == [
        "it is spelled in the fastest standard nodes already"
    ]


def test_patterns_stand_for_every_operator() -> None:
    assert {pattern.spec.name for pattern in patterns()} == {s.name for s in SPECS}
    assert {s.name for s in SPECS} == {s.name for s in (*ELEMENTWISE, *NORMS)}


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (HARDSWISH["Clip, Mul, Div"], ["HardSigmoid", "Mul"]),
        (SWISH["exp", 1.0], ["Sigmoid", "Mul"]),
        (MISH["threshold"], ["Softplus", "Tanh", "Mul"]),
    ],
)
def test_native(body: str, wanted: list[str]) -> None:
    model = model_of(body)
    result, report = inject(model, target="native")
    assert [op for op in ops(result) if op != "Constant"] == wanted
    assert report.rewritten == 1
    assert not result.functions and ours(result) == {}
    x = np.linspace(-9, 9, 6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(
        run(result, {"x": x}, plugin=False)[0], run(model, {"x": x})[0], rtol=1e-5, atol=1e-6
    )


def test_native_gelu_tanh_is_the_standard_node_where_there_is_one() -> None:
    body = GELU_TANH["Pow"]
    model = parse(body, opset=20, ir_version=9, initializers=scalars(body))
    result, _ = inject(model, target="native")
    assert ops(result) == ["Gelu"]


def test_transformer_block_with_symbolic_dims() -> None:
    body = (
        "s = Add(a, x) p = Pow(s, two) m = ReduceMean<axes=[-1]>(p) e = Add(m, eps) q = Sqrt(e) "
        "r = Reciprocal(q) d = Mul(s, r) t = Mul(d, w) g = MatMul(t, k) u = MatMul(t, k) "
        "z = Sigmoid(g) v = Mul(g, z) o = Mul(v, u) y = Add(o, s)"
    )
    matrix = ", ".join(["0.1"] * 9)
    shape = "float[batch,sequence,3]"
    model = parse(
        body,
        f"{shape} a, {shape} x",
        f"{shape} y",
        initializers=f"{RMS_CONSTANTS}, float[3,3] k = {{{matrix}}}".replace(
            "float minus = {-0.5}, ", ""
        ),
    )
    result, _ = custom(model, dims={"batch": 2, "sequence": 5})
    assert ops(result) == ["myops::AddRMSNorm", "MatMul", "MatMul", "myops::SwiGLU", "Add"]
