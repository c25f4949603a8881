# SPDX-License-Identifier: Apache-2.0
"""Reading and writing model files."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from myops._errors import ModelError
from myops.onnx import model as onnx_model
from onnx import helper, numpy_helper
from onnx.external_data_helper import set_external_data


def _model(weights: int = 4) -> onnx.ModelProto:
    w = numpy_helper.from_array(np.arange(weights, dtype=np.float32), "w")
    value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [weights])
    output = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [weights])
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"], "add")], "g", [value], [output], [w]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


@pytest.mark.parametrize(
    "content",
    [b"", b"not a model", _model().SerializeToString()[:-7], b"\x08"],
    ids=["empty", "text", "truncated", "one_byte"],
)
def test_files_that_are_no_models(content, tmp_path, check_message):
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError) as raised:
        onnx_model.load(path)
    assert str(path) in check_message(raised.value)


@pytest.mark.parametrize("name", ["missing.onnx", "."])
def test_missing_file(name, tmp_path, check_message):
    with pytest.raises(ModelError) as raised:
        onnx_model.load(tmp_path / name)
    assert str(tmp_path) in check_message(raised.value)


def test_external_data_is_written_loaded_and_missed(tmp_path, monkeypatch, check_message):
    monkeypatch.setattr(onnx_model, "_SINGLE_FILE_LIMIT", 1000)
    path = onnx_model.write(_model(4000), tmp_path, "m.onnx")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]
    loaded = onnx_model.load(path)
    weights = numpy_helper.to_array(loaded.graph.initializer[0])
    np.testing.assert_array_equal(weights, np.arange(4000, dtype=np.float32))
    (tmp_path / "m.onnx.data").unlink()
    with pytest.raises(ModelError) as raised:
        onnx_model.load(path)
    check_message(raised.value)
    assert onnx_model.load(path, weights=False).graph.initializer[0].name == "w"


def test_limit_allows_what_protobuf_can_hold():
    assert 1_000_000_000 <= onnx_model._SINGLE_FILE_LIMIT < 2**31


def test_small_models_are_one_file(tmp_path):
    onnx_model.write(_model(), tmp_path, "m.onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_without_weights_keeps_types_and_small_constants():
    model = _model(4000)
    small = numpy_helper.from_array(np.array([1, 2], np.int64), "shape")
    model.graph.initializer.append(small)
    copy = onnx_model.without_weights(model)
    assert copy.ByteSize() < 1000
    assert copy.graph.initializer[0].dims == [4000]
    assert numpy_helper.to_array(copy.graph.initializer[1]).tolist() == [1, 2]
    assert model.ByteSize() > 16_000


def test_staged_files_arrive_only_after_success(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_text("old")
    with pytest.raises(KeyError), onnx_model.staged(path) as folder:
        (folder / "m.onnx").write_text("new")
        raise KeyError
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]
    with onnx_model.staged(path) as folder:
        (folder / "m.onnx").write_text("new")
        (folder / "m.onnx.data").write_text("data")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]


def test_dims():
    value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 3, None])
    assert onnx_model.dims(value) == ["N", 3, None]
    unknown = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, None)
    assert onnx_model.dims(unknown) is None


@pytest.mark.parametrize("spelling", ["", "ai.onnx"])
def test_default_domain_has_two_names(spelling):
    model = _model()
    model.opset_import[0].domain = spelling
    assert onnx_model.opset(model) == 18
    assert onnx_model.opset(model, "other") is None


def test_external_data_is_found_wherever_tensors_are():
    def external(name):
        tensor = numpy_helper.from_array(np.zeros(2, np.float32), name)
        set_external_data(tensor, f"{name}.bin")
        tensor.ClearField("raw_data")
        return tensor

    def constant(name):
        return helper.make_node("Constant", [], [name], value=external(name))

    model = _model()
    model.graph.initializer.append(external("weight"))
    branch = helper.make_graph([constant("branch")], "b", [], [], [external("inner")])
    model.graph.node.append(
        helper.make_node("If", ["c"], ["z"], then_branch=branch, else_branch=branch)
    )
    sparse = model.graph.sparse_initializer.add(dims=[9])
    sparse.values.CopyFrom(external("values"))
    function = onnx.FunctionProto(domain="d", name="f", node=[constant("function")])
    model.functions.append(function)
    found = [entry.value for entry in onnx_model.external_locations(model)]
    names = ["weight", "branch", "inner", "branch", "inner", "values", "function"]
    assert sorted(found) == sorted(f"{name}.bin" for name in names)
    for entry in onnx_model.external_locations(model):
        entry.value = "one"
    assert {entry.value for entry in onnx_model.external_locations(model)} == {"one"}
