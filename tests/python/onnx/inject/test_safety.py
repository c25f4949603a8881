# SPDX-License-Identifier: Apache-2.0
"""Places that must not be replaced stay, with the obstacle's name as the reason."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from myops.onnx.inject import list_candidates
from onnx import TensorProto, helper

from .graphs import SHAPE, custom, ops, parse, scalars, skipped

SWISH = "s = Sigmoid(x) y = Mul(x, s)"


def refused(model: onnx.ModelProto, operator: str = "Swish") -> str:
    """Asserts that nothing happens; the reason."""
    result, report = custom(model)
    assert result is model
    (reason,) = skipped(report, operator)
    return reason


def test_another_reader() -> None:
    model = parse(
        "s = Sigmoid(x) y = Mul(x, s) z = Mul(w, s)",
        inputs=f"{SHAPE} x, {SHAPE} w",
        outputs=f"{SHAPE} y, {SHAPE} z",
    )
    model.graph.node[2].name = "reader"
    reason = refused(model)
    assert "'s'" in reason and "'reader'" in reason


def test_graph_output() -> None:
    model = parse(SWISH, outputs=f"{SHAPE} s, {SHAPE} y")
    assert "'s' is an output of the graph" in refused(model)


def test_captured_by_an_inner_graph() -> None:
    model = parse(
        f"{SWISH} z = If(c) <then_branch = t () => ({SHAPE} a) {{ a = Neg(s) }}, "
        f"else_branch = e () => ({SHAPE} b) {{ b = Abs(x) }}>",
        inputs=f"{SHAPE} x, bool c",
        outputs=f"{SHAPE} y, {SHAPE} z",
    )
    model.graph.node[2].name = "branch"
    reason = refused(model)
    assert "captured" in reason and "'branch'" in reason


def test_overridable_initializer() -> None:
    body = "z = Mul(x, b) s = Sigmoid(z) y = Mul(x, s)"
    model = parse(body, inputs=f"{SHAPE} x, float b", initializers="float b = {1.5}")
    reason = refused(model, "SwishTensor")
    assert "override" in reason and "'b'" in reason


def test_overridable_constant_inside() -> None:
    body = "a = Add(x, three) c = Clip(a, zero, six) m = Mul(x, c) y = Div(m, six)"
    model = parse(body, inputs=f"{SHAPE} x, float three", initializers=scalars(body))
    reason = refused(model, "HardSwish")
    assert "override" in reason and "'three'" in reason


def test_initializers_are_all_inputs_before_ir_4() -> None:
    body = "z = Mul(x, b) s = Sigmoid(z) y = Mul(x, s)"
    model = parse(
        body, inputs=f"{SHAPE} x, float b", initializers="float b = {1.5}", ir_version=3, opset=8
    )
    result, _ = custom(model)
    assert ops(result) == ["myops::Swish"]
    assert result.ir_version == 3
    assert [value.name for value in result.graph.input] == ["x", "b"]


@pytest.mark.parametrize("shape", ["1,2,3", "2,1,3"])
def test_coefficient_that_adds_a_dim(shape: str) -> None:
    size = int(np.prod([int(n) for n in shape.split(",")]))
    body = "z = Mul(x, b) s = Sigmoid(z) y = Mul(x, s)"
    dims = "1,2,3" if shape == "1,2,3" else "2,2,3"
    values = ", ".join(["1.5"] * size)
    model = parse(body, outputs=f"float[{dims}] y", initializers=f"float[{shape}] b = {{{values}}}")
    reason = refused(model, "SwishTensor")
    assert "per-channel" in reason and f"[{shape}]" in reason and "[2,3]" in reason


def test_coefficient_per_channel() -> None:
    body = "z = Mul(x, b) s = Sigmoid(z) y = Mul(x, s)"
    model = parse(body, initializers="float[3] b = {1.0, 2.0, 3.0}")
    result, report = custom(model)
    assert ops(result) == ["myops::SwishTensor"]
    assert [row.operator for row in report.rows] == ["SwishTensor"]
    assert list(result.graph.node[0].input) == ["x", "b"]


@pytest.mark.parametrize(("shape", "fits"), [("[1,1]", True), ("[1,1,1]", False)])
def test_rank_of_a_constant(shape: str, fits: bool) -> None:
    body = (
        f"c = Constant<value = float{shape} {{1.5}}>() z = Mul(x, c) s = Sigmoid(z) y = Mul(x, s)"
    )
    outputs = f"{SHAPE} y" if fits else "float[1,2,3] y"
    model = parse(body, outputs=outputs)
    if fits:
        assert ops(custom(model)[0]) == ["myops::Swish"]
    else:
        assert "the shape may change: a constant of rank 3" in refused(model)


def test_unknown_rank_takes_scalars_only() -> None:
    def of(constant: str) -> onnx.ModelProto:
        body = "r = Reshape(x, n) z = Mul(r, b) s = Sigmoid(z) y = Mul(r, s)"
        return parse(
            body,
            inputs="float[2,3] x, int64[k] n",
            outputs="float y",
            initializers=f"{constant} b = {{1.5}}",
        )

    def without_shape(model: onnx.ModelProto) -> onnx.ModelProto:
        model.graph.output[0].type.tensor_type.ClearField("shape")
        return model

    n = np.array([3, 2], np.int64)
    feeds = {"x": np.ones((2, 3), np.float32), "n": n}
    result, _ = custom(without_shape(of("float")), inputs=feeds)
    assert ops(result) == ["Reshape", "myops::Swish"]
    model = without_shape(of("float[1]"))
    result, report = custom(model, inputs=feeds)
    assert result is model
    assert "unknown rank" in skipped(report, "Swish")[0]


def test_integers_are_none_of_ours() -> None:
    node = [
        helper.make_node("Sigmoid", ["x"], ["s"]),
        helper.make_node("Mul", ["x", "s"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.INT32, [2])
    y = helper.make_tensor_value_info("y", TensorProto.INT32, [2])
    graph = helper.make_graph(node, "g", [x], [y])
    report = list_candidates(helper.make_model(graph, ir_version=8))
    assert all(row.decision == "skipped" and "type" in row.reason for row in report.rows)


QDQ = "q = QuantizeLinear(v, scale8, zero8) x = DequantizeLinear(q, scale8, zero8) s = Sigmoid(x) "
QDQ_CONSTANTS = "float scale8 = {0.05}, int8 zero8 = {0}"


def test_quantized_inside_stays() -> None:
    body = QDQ + (
        "r = QuantizeLinear(s, scale8, zero8) t = DequantizeLinear(r, scale8, zero8) y = Mul(x, t)"
    )
    reason = refused(parse(body, inputs=f"{SHAPE} v", initializers=QDQ_CONSTANTS))
    assert "quantized inside" in reason


@pytest.mark.parametrize("twice", [False, True])
def test_quantized_around_is_fused_between(twice: bool) -> None:
    """Exporters write a DequantizeLinear for every reader."""
    again = "x2 = DequantizeLinear(q, scale8, zero8) " if twice else ""
    body = (
        QDQ + again + f"m = Mul({'x2' if twice else 'x'}, s) y = QuantizeLinear(m, scale8, zero8)"
    )
    model = parse(body, inputs=f"{SHAPE} v", outputs="int8[2,3] y", initializers=QDQ_CONSTANTS)
    annotation = model.graph.quantization_annotation.add(tensor_name="m")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="scale8")
    result, _ = custom(model)
    assert ops(result) == ["QuantizeLinear", "DequantizeLinear", "myops::Swish", "QuantizeLinear"]
    assert list(result.graph.initializer) == list(model.graph.initializer)
    assert list(result.graph.quantization_annotation) == [annotation]


def test_sum_that_is_read_before_all_inputs_exist() -> None:
    body = (
        "s = Add(a, x) n = ReduceSum<keepdims=0>(s) p = Pow(s, two) m = ReduceMean<axes=[-1]>(p) "
        "e = Add(m, eps) q = Sqrt(e) d = Div(s, q) w = Mul(row, n) y = Mul(d, w)"
    )
    model = parse(
        body,
        inputs=f"{SHAPE} a, {SHAPE} x",
        outputs=f"{SHAPE} y",
        initializers="float two = {2.0}, float eps = {0.001}, float[3] row = {1.0, 2.0, 3.0}",
    )
    result, report = custom(model)
    assert "myops::AddRMSNorm" not in ops(result)
    # The weight depends on the sum, which one node cannot serve; the norm alone can be replaced.
    assert ops(result)[-1] == "myops::RMSNorm"
    assert report.rewritten == 1


def test_what_surrounds_stays_as_it_is() -> None:
    model = parse(f"u = Neg(v) x = Abs(u) {SWISH} z = Relu(y)", f"{SHAPE} v", f"{SHAPE} z")
    for number, node in enumerate(model.graph.node):
        node.name, node.doc_string = f"n{number}", f"doc {number}"
    model.metadata_props.add(key="author", value="somebody")
    model.producer_name, model.doc_string, model.model_version = "tool", "text", 7
    model.graph.value_info.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]))
    model.graph.value_info.append(helper.make_tensor_value_info("s", TensorProto.FLOAT, [2, 3]))
    result, _ = custom(model)
    assert [n.name for n in result.graph.node] == ["n0", "n1", "n3", "n4"]
    assert [n.doc_string for n in result.graph.node] == ["doc 0", "doc 1", "doc 3", "doc 4"]
    assert [v.name for v in result.graph.value_info] == ["x"]
    assert result.metadata_props == model.metadata_props
    assert result.ir_version == model.ir_version
    assert [(e.domain, e.version) for e in result.opset_import] == [("", 17), ("myops", 1)]
    for name in ("producer_name", "doc_string", "model_version"):
        assert getattr(result, name) == getattr(model, name)


def test_symbolic_dims_keep_their_names() -> None:
    shape = "float[batch, width]"
    result, _ = custom(parse(SWISH, f"{shape} x", f"{shape} y"))
    dims = result.graph.output[0].type.tensor_type.shape.dim
    assert [d.dim_param for d in dims] == ["batch", "width"]


def test_sparse_initializers_stay() -> None:
    model = parse("e = Add(x, w) s = Sigmoid(e) y = Mul(e, s)")
    values = helper.make_tensor("w", TensorProto.FLOAT, [1], [2.0])
    indices = helper.make_tensor("", TensorProto.INT64, [1], [4])
    sparse = helper.make_sparse_tensor(values, indices, [2, 3])
    model.graph.sparse_initializer.append(sparse)
    result, _ = custom(model)
    assert ops(result) == ["Add", "myops::Swish"]
    assert list(result.graph.sparse_initializer) == [sparse]
