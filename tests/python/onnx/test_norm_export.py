# SPDX-License-Identifier: Apache-2.0
"""The norms through both exporters, with and without the plugin, and the plugin's refusals."""

from __future__ import annotations

import myops.nn
import myops.ort
import numpy as np
import onnx
import pytest
import torch
from myops.norm_spec import ADD_RMS_NORM
from myops.onnx import add_functions, expand, export, function_proto
from myops.onnx import model as onnx_model
from myops.spec import DOMAIN, DOMAIN_VERSION
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from ..support import each_norm, norm_values
from .support import MODES, ONNX_TYPES, our_nodes, plain_session

WIDTH = 6
EPS = 2.0**-10


class Block(torch.nn.Module):
    """RMSNorm without a residual and with one, and of the latter all results, the first, or the
    second."""

    def __init__(self, used: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.used = used
        self.first = myops.nn.RMSNorm(WIDTH, EPS, dtype=dtype)
        self.second = myops.nn.RMSNorm(WIDTH, EPS, dtype=dtype)
        with torch.no_grad():
            self.second.weight.copy_(torch.linspace(0.5, 2, WIDTH))

    def forward(self, x: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
        y, total = self.second(self.first(x), r)
        return {"both": y * total, "y": y, "sum": total}[self.used]


def _arrays(dtype: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal((3, 4, WIDTH)).astype(dtype) for name in ("x", "r")}


def _check(actual: np.ndarray, expected: np.ndarray, dtype: str) -> None:
    tolerance = {"float32": 1e-5, "float64": 1e-12, "float16": 4e-3}[dtype]
    assert actual.dtype == np.dtype(dtype)
    np.testing.assert_allclose(actual.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


# All ways in float32, one in the other dtypes.
CASES = [
    *(("float32", used, mode) for used in ("both", "y", "sum") for mode in MODES),
    ("float64", "both", "portable"),
    ("float16", "both", "portable"),
]


@pytest.mark.parametrize(
    ("exporter", "opset"),
    [("dynamo", 18), ("dynamo", 23), ("torchscript", 9), ("torchscript", 17), ("torchscript", 18)],
)
@pytest.mark.parametrize(("dtype", "used", "mode"), CASES)
def test_export(used, exporter, opset, dtype, mode, tmp_path):
    model = Block(used, getattr(torch, dtype))
    arrays = _arrays(dtype)
    args = tuple(torch.from_numpy(a[:2]) for a in arrays.values())
    path = tmp_path / "m.onnx"
    dynamic = {name: {0: "batch"} for name in arrays}
    export(model, args, path, mode=mode, exporter=exporter, opset=opset, dynamic=dynamic)
    file = onnx.load(path)
    if mode != "native":
        nodes = our_nodes(file)
        names = [node.op_type for node in nodes]
        # What nobody uses is not computed: of "sum" only an addition is left.
        assert names in (["RMSNorm", "AddRMSNorm"], ["RMSNorm"])
        assert names == ["RMSNorm", "AddRMSNorm"] or used == "sum"
        assert {a.name: a.f for node in nodes for a in node.attribute} == {"eps": EPS}
    (output,) = file.graph.output
    assert onnx_model.dims(output) == ["batch", 4, WIDTH]
    with torch.no_grad():
        wide = [torch.from_numpy(a.astype(np.float64)) for a in arrays.values()]
        expected = model.double()(*wide).numpy()
    _check(myops.ort.session(path).run(None, arrays)[0], expected, dtype)
    if mode != "custom":
        _check(plain_session(path).run(None, arrays)[0], expected, dtype)


def _model(spec, dtype: str, opset: int = 18, weight=WIDTH, residual=(3, WIDTH), **attributes):
    element_type = ONNX_TYPES[dtype]
    shapes = {"x": (3, WIDTH), "residual": residual, "weight": (weight,)}
    node = helper.make_node(
        spec.name, spec.inputs, spec.outputs, "the_node", domain=DOMAIN, **attributes
    )
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node],
        "g",
        [info(name, element_type, shapes[name]) for name in spec.inputs],
        [info(name, element_type, (3, WIDTH)) for name in spec.outputs],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, DOMAIN_VERSION)]
    model = helper.make_model(graph, opset_imports=imports)
    model.ir_version = max(8, helper.find_min_ir_version_for([imports[0]]))
    return model


def _feeds(spec, dtype: str, **shapes) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    sizes = {"x": (3, WIDTH), "residual": (3, WIDTH), "weight": (WIDTH,)} | shapes
    return {name: rng.standard_normal(sizes[name]).astype(dtype) for name in spec.inputs}


@each_norm
@pytest.mark.parametrize(
    ("way", "opset"),
    # The evaluator hands no attributes to functions below opset 12.
    [
        *((add_functions, opset) for opset in (13, 17, 18, 21, 23)),
        *((expand, opset) for opset in (9, 13, 17, 18, 21, 23)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_body_under_the_reference_evaluator(spec, way, opset, dtype):
    values = norm_values(spec)
    model = _model(spec, dtype, opset, **values)
    way(model)
    onnx.checker.check_model(model, full_check=True)
    feeds = _feeds(spec, dtype)
    expected = spec.reference(*(a.astype(np.float64) for a in feeds.values()), **values)
    results = ReferenceEvaluator(model).run(None, feeds)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for result, truth in zip(results, expected, strict=True):
        _check(result, truth, dtype)


@each_norm
def test_functions_for_several_types(spec):
    function = function_proto(spec, [TensorProto.FLOAT, TensorProto.FLOAT16], 18)
    assert list(function.output) == list(spec.outputs)
    assert [n.op_type for n in function.node].count("CastLike") == len(spec.outputs)


def test_expand_where_nobody_reads_the_sum():
    model = _model(ADD_RMS_NORM, "float32", eps=EPS)
    del model.graph.output[1]
    model.graph.node[0].output[1] = ""
    expand(model)
    onnx.checker.check_model(model, full_check=True)
    feeds = _feeds(ADD_RMS_NORM, "float32")
    (y,) = ReferenceEvaluator(model).run(None, feeds)
    _check(
        y,
        ADD_RMS_NORM.reference(*(a.astype(np.float64) for a in feeds.values()), EPS)[0],
        "float32",
    )


@each_norm
def test_missing_attribute_is_the_default(spec):
    feeds = _feeds(spec, "float32")
    for name in spec.inputs[:-1]:
        feeds[name] *= np.float32(1e-3)
    session = myops.ort.session(_model(spec, "float32").SerializeToString())
    expected = spec.reference(*(a.astype(np.float64) for a in feeds.values()), **spec.defaults())
    expected = expected[0] if isinstance(expected, tuple) else expected
    _check(session.run(None, feeds)[0], expected, "float32")


@each_norm
def test_plugin_refuses(spec):
    wrong = {"weight": WIDTH + 1}
    session = myops.ort.session(_model(spec, "float32", **wrong).SerializeToString())
    with pytest.raises(Exception, match=rf"\[{spec.name}\] weight should have the size"):
        session.run(None, _feeds(spec, "float32", weight=(WIDTH + 1,)))
    for attribute in spec.attributes:
        if np.isfinite(attribute.lowest):
            wrong = {attribute.name: attribute.lowest - 1.0}
            sentence = rf"{attribute.name} should be at least {attribute.lowest:g}.*the_node"
            with pytest.raises(Exception, match=sentence):
                myops.ort.session(_model(spec, "float32", **wrong).SerializeToString())
    if spec is ADD_RMS_NORM:
        model = _model(spec, "float32", residual=(1, WIDTH))
        session = myops.ort.session(model.SerializeToString())
        with pytest.raises(Exception, match=r"residual should have the shape of x, \[3, 6\]"):
            session.run(None, _feeds(spec, "float32", residual=(1, WIDTH)))


@each_norm
@pytest.mark.parametrize("threads", [1, 2])
def test_no_rows_and_many(spec, threads):
    values = norm_values(spec)
    model = _model(spec, "float32", **values)
    for value in (*model.graph.input, *model.graph.output):
        dims = value.type.tensor_type.shape.dim
        if len(dims) == 2:
            dims[0].dim_param = "rows"
    session = myops.ort.session(model.SerializeToString(), intra_op_num_threads=threads)
    for rows in (0, 1, 20_000):
        feeds = _feeds(spec, "float32", x=(rows, WIDTH), residual=(rows, WIDTH))
        expected = spec.reference(*(a.astype(np.float64) for a in feeds.values()), **values)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for result, truth in zip(session.run(None, feeds), expected, strict=True):
            _check(result, truth, "float32")
