# SPDX-License-Identifier: Apache-2.0
"""Operators with a smaller second input: both exporters, with the plugin and without."""

from __future__ import annotations

from pathlib import Path

import myops.functional
import myops.nn
import myops.onnx
import myops.ort
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from myops.spec import SWISH_TENSOR
from onnx import TensorProto, helper

from .support import DTYPES, ONNX_TYPES, each_dtype, each_exporter

X = (2, 3, 4, 5)
BETAS = [(3, 1, 1), (5,), (), (2, 3, 1, 1), (1,), (4, 1), (2, 1, 4, 1), X]


def _plain(path: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


class Scaled(torch.nn.Module):
    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.beta = torch.nn.Parameter(torch.randn(shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return myops.functional.swish_tensor(x, self.beta)


@each_exporter
@pytest.mark.parametrize("shape", [(3, 1, 1), (5,), (), (2, 3, 1, 1)], ids=str)
def test_export(exporter, shape, tmp_path):
    model, x, path = Scaled(shape), torch.randn(X), tmp_path / "m.onnx"
    myops.onnx.export(model, (x,), path, exporter=exporter)
    expected = model(x).detach().numpy()
    proto = onnx.load(path)
    # The small coefficient stays small: nothing expands it in the graph.
    assert [n.op_type for n in proto.graph.node if n.op_type != "Constant"] == ["SwishTensor"]
    assert len(proto.graph.node[-1].input) == 2
    for session in (myops.ort.session(path), _plain(path)):
        (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


@each_exporter
@pytest.mark.parametrize("mode", ["native", "custom", "portable"])
def test_export_per_channel(exporter, mode, tmp_path):
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 6, 1), myops.nn.SwishPerChannel(6))
    torch.nn.init.normal_(model[1].beta)
    path = tmp_path / "m.onnx"
    myops.onnx.export(
        model,
        (torch.randn(X),),
        path,
        mode=mode,
        exporter=exporter,
        dynamic={"input": {0: "batch"}},
    )
    x = torch.randn(5, *X[1:])
    expected = model(x).detach().numpy()
    for make in [myops.ort.session] + [_plain] * (mode != "custom"):
        session = make(path)
        assert session.get_outputs()[0].shape[0] == "batch"
        (y,) = session.run(None, {"input": x.numpy()})
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


def _model(dtype: str) -> bytes:
    """float64 in and out, cast around the node: the Python API has no bfloat16 arrays."""
    kind = ONNX_TYPES[dtype]
    nodes = [
        *(helper.make_node("Cast", [n], [f"{n}_cast"], f"{n}_node", to=kind) for n in ("x", "b")),
        helper.make_node("SwishTensor", ["x_cast", "b_cast"], ["s"], "node", domain="myops"),
        helper.make_node("Cast", ["s"], ["y"], "y_node", to=TensorProto.DOUBLE),
    ]
    inputs = [helper.make_tensor_value_info(n, TensorProto.DOUBLE, None) for n in ("x", "b")]
    graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name="y")])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("myops", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


def _random(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape).mul(3).to(dtype).double()


@each_dtype
@pytest.mark.parametrize(
    ("shape", "betas"),
    [
        (X, BETAS),
        ((0, 3), [(3,), (1, 3), (), (0, 1)]),
        ((), [()]),
        ((1, 1), [(1,), ()]),
        # Several tasks, tiles that end inside rows, rows longer and shorter than a tile.
        ((5, 7, 3001), [(7, 1), (3001,), (5, 1, 1), (5, 1, 3001), (5, 7, 1), ()]),
        ((4001, 3, 9), [(3, 1), (9,), (4001, 1, 9), (4001, 1, 1)]),
    ],
    ids=str,
)
def test_plugin_gives_the_bits_of_torch(dtype, shape, betas):
    session = myops.ort.session(_model(dtype))
    x = _random(*shape, dtype=DTYPES[dtype])
    for beta_shape in betas:
        beta = _random(*beta_shape, dtype=DTYPES[dtype])
        (y,) = session.run(None, {"x": x.numpy(), "b": beta.numpy()})
        expected = myops.functional.swish_tensor(x.to(DTYPES[dtype]), beta.to(DTYPES[dtype]))
        np.testing.assert_array_equal(y, expected.double().numpy(), err_msg=str(beta_shape))


@pytest.mark.parametrize(
    ("shape", "beta"), [((2, 3), (2,)), ((2, 3), (1, 2, 3)), ((1, 3), (2, 3)), ((2, 3), (0,))]
)
def test_plugin_refuses_what_does_not_fit(shape, beta):
    with pytest.raises(Exception, match="aligned at the last dim") as raised:
        myops.ort.session(_model("float32")).run(None, {"x": np.ones(shape), "b": np.ones(beta)})
    assert str(list(shape)) in str(raised.value)
    assert str(list(beta)) in str(raised.value)


def test_shape_is_the_first_inputs():
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, "M"])
    beta = helper.make_tensor_value_info("b", TensorProto.FLOAT, [3, 1])
    node = helper.make_node(SWISH_TENSOR.name, ["x", "b"], ["y"], "node", domain="myops")
    graph = helper.make_graph([node], "g", [x, beta], [onnx.ValueInfoProto(name="y")])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("myops", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    session = myops.ort.session(model.SerializeToString())
    assert session.get_outputs()[0].shape == ["N", 3, "M"]
