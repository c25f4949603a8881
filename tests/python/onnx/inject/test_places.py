# SPDX-License-Identifier: Apache-2.0
"""Standard and contributed nodes as inputs; inner graphs and functions as places."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from myops.onnx import inject
from myops.onnx import model as onnx_model
from onnx import TensorProto, helper

from .graphs import SHAPE, beta, custom, ops, ours, parse, run

MICROSOFT = ', "com.microsoft" : 1'


@pytest.mark.parametrize(
    ("node", "value"),
    [
        ("y = com.microsoft.QuickGelu(x)", 1.702),
        ("y = com.microsoft.QuickGelu<alpha=1.5>(x)", 1.5),
    ],
)
def test_quick_gelu(node: str, value: float) -> None:
    result, _ = custom(parse(node, imports=MICROSOFT))
    assert ops(result) == ["myops::Swish"]
    assert beta(result) == np.float32(value)


def swish_node(opset: int, **attributes: float) -> onnx.ModelProto:
    """The standard Swish, which an older onnx cannot parse."""
    node = helper.make_node("Swish", ["x"], ["y"], name="act", **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])
    graph = helper.make_graph([node], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=11)


@pytest.mark.parametrize(("attributes", "value"), [({}, 1.0), ({"alpha": 1.5}, 1.5)])
@pytest.mark.parametrize("opset", [24, 25])
def test_standard_swish(opset: int, attributes: dict[str, float], value: float) -> None:
    model = swish_node(opset, **attributes)
    result, report = custom(model)
    assert ops(result) == ["myops::Swish"]
    assert beta(result) == np.float32(value)
    assert onnx_model.opset(result) == opset and result.ir_version == 11
    x = np.linspace(-4, 4, 6, dtype=np.float32).reshape(2, 3)
    wanted = x / (1 + np.exp(-np.float32(value) * x))
    for plugin in (None, False):
        np.testing.assert_allclose(run(result, {"x": x}, plugin)[0], wanted, rtol=1e-5)
    assert report.outputs, "compared with onnx's evaluator where ONNX Runtime lacks the node"


def test_standard_swish_that_onnxruntime_lacks_runs_afterwards() -> None:
    model = swish_node(25)
    with pytest.raises(Exception, match="Swish"):
        onnxruntime.InferenceSession(model.SerializeToString())
    result, _ = inject(model)
    assert run(result, {"x": np.ones((2, 3), np.float32)})[0] == pytest.approx(0.7310586)
    result, _ = inject(model, target="native")
    assert "Swish" not in ops(result)
    assert run(result, {"x": np.ones((2, 3), np.float32)}, False)[0] == pytest.approx(0.7310586)


def branch_model() -> onnx.ModelProto:
    return parse(
        f"o = Neg(x) y = If(c) <then_branch = t () => ({SHAPE} a) "
        f"{{ s = Sigmoid(o) a = Mul(o, s) }}, "
        f"else_branch = e () => ({SHAPE} b) {{ p = Softplus(x) q = Tanh(p) b = Mul(x, q) }}>",
        inputs=f"{SHAPE} x, bool c",
    )


@pytest.mark.parametrize("condition", [True, False])
def test_branches_of_an_if(condition: bool) -> None:
    model = branch_model()
    feeds = {
        "x": np.linspace(-4, 4, 6, dtype=np.float32).reshape(2, 3),
        "c": np.array(condition),
    }
    result, report = custom(model, inputs=feeds)
    assert ours(result) == {"Swish": 1, "Mish": 1}
    assert ops(result) == ["Neg", "If"]
    assert ["then_branch" in row.place for row in report.rows].count(True) == 1
    for plugin in (None, False):
        np.testing.assert_allclose(
            run(result, feeds, plugin)[0], run(model, feeds)[0], rtol=1e-5, atol=1e-6
        )


def test_constant_of_the_graph_around() -> None:
    model = parse(
        f"y = If(c) <then_branch = t () => ({SHAPE} a) "
        f"{{ z = Mul(x, b) s = Sigmoid(z) a = Mul(x, s) }}, "
        f"else_branch = e () => ({SHAPE} d) {{ d = Mul(x, b) }}>",
        inputs=f"{SHAPE} x, bool c",
        initializers="float b = {1.5}",
    )
    result, _ = custom(model)
    assert beta(result) == 1.5
    assert [t.name for t in result.graph.initializer] == ["b"]


FUNCTION = '<domain: "user", opset_import: ["" : 17]> Block (a) => (c) {{ {body} }}'
USER = ', "user" : 1'


@pytest.mark.parametrize("calls", [1, 2])
def test_function_body(calls: int) -> None:
    body = "s = Sigmoid(a) b = Mul(a, s) c = Neg(b)"
    nodes = "y = user.Block(x)" if calls == 1 else "u = user.Block(x) y = user.Block(u)"
    model = parse(nodes, imports=USER, functions=FUNCTION.format(body=body))
    result, report = custom(model)
    (function,) = (f for f in result.functions if f.domain == "user")
    assert [n.op_type for n in function.node] == ["Swish", "Neg"]
    assert [(e.domain, e.version) for e in function.opset_import] == [("", 17), ("myops", 1)]
    assert report.rows[0].place.startswith("function user::Block/")
    x = {"x": np.linspace(-4, 4, 6, dtype=np.float32).reshape(2, 3)}
    for plugin in (None, False):
        np.testing.assert_allclose(run(result, x, plugin)[0], run(model, x)[0], rtol=1e-5)


def test_function_called_with_two_types_stays() -> None:
    body = "s = Sigmoid(a) c = Mul(a, s)"
    model = parse(
        "y = user.Block(x) w = user.Block(v)",
        inputs=f"{SHAPE} x, double[2,3] v",
        outputs=f"{SHAPE} y, double[2,3] w",
        imports=USER,
        functions=FUNCTION.format(body=body),
    )
    result, report = custom(model)
    assert result is model
    assert "element type" in report.rows[0].reason


def test_output_of_a_function_stays() -> None:
    function = FUNCTION.replace("(a) => (c)", "(a) => (s, c)").format(
        body="s = Sigmoid(a) c = Mul(a, s)"
    )
    model = parse("t, y = user.Block(x)", imports=USER, functions=function)
    result, report = custom(model)
    assert result is model
    assert "output of the function" in report.rows[0].reason


def test_attribute_of_a_function_is_no_constant() -> None:
    function = (
        '<domain: "user", opset_import: ["" : 17]> Block <beta: float> (a) => (c) '
        "{ b = Constant<value_float: float = @beta>() z = Mul(a, b) s = Sigmoid(z) c = Mul(a, s) }"
    )
    model = parse("y = user.Block<beta=1.5>(x)", imports=USER, functions=function)
    result, _ = custom(model)
    # A tensor that is the same for all elements: the operator whose coefficient is a tensor fits.
    assert ours(result) in ({}, {"SwishTensor": 1})
    x = {"x": np.linspace(-4, 4, 6, dtype=np.float32).reshape(2, 3)}
    np.testing.assert_allclose(run(result, x)[0], run(model, x)[0], rtol=1e-5)


def test_our_nodes_that_are_there_stay() -> None:
    first, _ = custom(parse("s = Sigmoid(x) y = Mul(x, s)"))
    more = onnx.ModelProto()
    more.CopyFrom(first)
    del more.graph.output[:]
    more.graph.node.append(helper.make_node("Softplus", ["y"], ["p"]))
    more.graph.node.append(helper.make_node("Tanh", ["p"], ["t"]))
    more.graph.node.append(helper.make_node("Mul", ["y", "t"], ["o"], name="mish"))
    more.graph.output.append(helper.make_tensor_value_info("o", TensorProto.FLOAT, [2, 3]))
    result, _ = custom(more)
    assert ops(result) == ["myops::Swish", "myops::Mish"]
    assert {f.name for f in result.functions} == {"Swish", "Mish"}
    assert [e.domain for e in result.opset_import].count("myops") == 1
