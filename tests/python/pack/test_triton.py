# SPDX-License-Identifier: Apache-2.0
"""The model repository for Triton: its configuration says what the model says, and the op library
is found as Triton looks for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from google.protobuf import text_format
from myops._errors import ModelError
from myops.pack import make_bundle, triton
from onnx import TensorProto, helper

from ..ort.support import info
from .model_config import parse
from .support import check, failed, network, save


def _model(node: onnx.NodeProto, inputs, outputs, opset: int = 18) -> onnx.ModelProto:
    graph = helper.make_graph([node], "g", inputs, outputs)
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def _config(model: onnx.ModelProto, plugins: Sequence[str] = (), why: str = "") -> triton.Config:
    return triton.config(model, "net", plugins, 16, lambda: why)


FLOAT = TensorProto.FLOAT


def test_reader_of_configurations_refuses_what_is_not_documented() -> None:
    for text in ('nmae: "x"', "input [ { data_type: TYPE_FP31 } ]", 'max_batch_size: "8"'):
        with pytest.raises(text_format.ParseError):
            parse(text)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("triton")
    source = save(network(portable=False), folder / "my net.onnx")
    bundle = make_bundle(source, folder / "made", for_triton=True, max_batch_size=16)
    assert bundle.triton is not None
    return Path(shutil.move(bundle.path, folder / "moved")) / "triton"


def test_repository_is_laid_out_as_documented(repository: Path) -> None:
    files = {p.relative_to(repository).as_posix() for p in repository.rglob("*") if p.is_file()}
    assert files == {*("my_net/config.pbtxt", "my_net/1/model.onnx", "my_net/1/libmyops_ort.so")}
    code, steps = check(repository.parent)
    assert code == 0, failed(steps)
    assert sum("triton/my_net" in step["text"] for step in steps if step["step"] == "file") == 3


def test_configuration_says_what_the_model_says(repository: Path) -> None:
    config = parse((repository / "my_net" / "config.pbtxt").read_text())
    assert (config.name, config.backend, config.platform) == (
        *("my_net", "onnxruntime", "onnxruntime_onnx"),
    )
    assert config.max_batch_size == 16
    assert config.HasField("dynamic_batching")
    ((x,), (y,)) = (config.input, config.output)
    types = config.input[0].DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_name
    assert (x.name, list(x.dims), x.data_type) == ("x", [8], types["TYPE_FP32"].number)
    assert (y.name, list(y.dims), y.data_type) == ("y", [4], types["TYPE_FP32"].number)
    assert list(config.model_operations.op_library_filename) == ["libmyops_ort.so"]


SERVE = """
import sys
import numpy as np, onnxruntime
options = onnxruntime.SessionOptions()
options.register_custom_ops_library(sys.argv[1])
session = onnxruntime.InferenceSession(sys.argv[2], options)
print(session.run(None, {"x": np.zeros((2, 8), np.float32)})[0].shape)
"""


def test_op_library_is_found_by_its_name(repository: Path, tmp_path: Path) -> None:
    """Triton passes the name on to ONNX Runtime, which passes it to the system's loader."""
    folder = repository / "my_net" / "1"
    config = parse((repository / "my_net" / "config.pbtxt").read_text())
    (name,) = config.model_operations.op_library_filename
    command = [sys.executable, "-c", SERVE, name, str(folder / "model.onnx")]
    for path, code in ((str(folder), 0), ("", 1)):
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "LD_LIBRARY_PATH": path},
            check=False,
        )
        assert done.returncode == code, done.stderr
    assert "libmyops_ort.so" in done.stderr


def test_documented_configuration_can_be_read() -> None:
    text = (Path(__file__).parents[3] / "docs" / "deploy.md").read_text()
    (block,) = [part for part in text.split("```text\n") if part.startswith('name: "net"')]
    config = parse(block.split("```")[0])
    assert config.max_batch_size == triton.MAX_BATCH_SIZE
    assert len(config.model_operations.op_library_filename) == 1


def test_every_dtype_has_a_name() -> None:
    for element_type, name in triton._DTYPES.items():
        values = [info("x", element_type, ("n", 2))], [info("y", element_type, ("n", 2))]
        config = parse(_config(_model(helper.make_node("Identity", ["x"], ["y"]), *values)).text)
        types = config.input[0].DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number
        assert types[config.input[0].data_type].name == name
        assert config.output[0].data_type == config.input[0].data_type
        onnx_name = TensorProto.DataType.Name(element_type)
        expected = {"FLOAT": "FP32", "DOUBLE": "FP64", "FLOAT16": "FP16", "BFLOAT16": "BF16"}
        assert name == f"TYPE_{expected.get(onnx_name, onnx_name)}"


@pytest.mark.parametrize(
    ("shape", "batched", "dims", "reshaped"),
    [
        (("n", 3, "t"), True, [3, -1], None),
        (("n",), True, [1], []),
        ((2, "t"), False, [2, -1], None),
        ((None, 3), False, [-1, 3], None),
        ((), False, [1], []),
    ],
    ids=["batch", "batch of scalars", "fixed first", "unnamed first", "scalar"],
)
def test_dims(shape, batched, dims, reshaped) -> None:
    """Without the batch dim where requests are put together; no dims are one element."""
    node = helper.make_node("Identity", ["x"], ["y"])
    made = _config(_model(node, [info("x", FLOAT, shape)], [info("y", FLOAT, shape)]))
    config = parse(made.text)
    assert config.max_batch_size == (16 if batched else 0)
    assert config.HasField("dynamic_batching") is batched
    assert bool(made.why_no_batching) is not batched
    for tensor in (*config.input, *config.output):
        assert list(tensor.dims) == dims
        assert tensor.HasField("reshape") is (reshaped is not None)
        assert list(tensor.reshape.shape) == []
    assert not config.HasField("model_operations")


@pytest.mark.parametrize(
    ("inputs", "output", "words"),
    [
        ((("n", 2), ("m", 2)), ("n", 2), "one name in common"),
        ((("n", 2), (1, 2)), ("n", 2), "'b' is not symbolic"),
        ((("n", 2), ("n", 2)), ("k", 2), "another name"),
        ((("n", 2), ("n", 2)), (4, 2), "output 'y' is not symbolic"),
    ],
)
def test_why_not_batched(inputs, output, words) -> None:
    node = helper.make_node("Add", ["a", "b"], ["y"])
    values = [info(name, FLOAT, shape) for name, shape in zip("ab", inputs, strict=True)]
    made = _config(_model(node, values, [info("y", FLOAT, output)]))
    assert words in made.why_no_batching
    assert parse(made.text).max_batch_size == 0


def test_names_are_quoted() -> None:
    name = 'a "b"\\Größe\n'
    node = helper.make_node("Identity", [name], ["y"])
    config = parse(_config(_model(node, [info(name)], [info("y")])).text)
    assert config.input[0].name == name


@pytest.mark.parametrize("shape", [None])
def test_unknown_rank_is_refused(shape, check_message) -> None:
    node = helper.make_node("Identity", ["x"], ["y"])
    with pytest.raises(ModelError) as raised:
        _config(_model(node, [info("x", FLOAT, shape)], [info("y", FLOAT, shape)]))
    assert "'x'" in check_message(raised.value)


def _packed(model: onnx.ModelProto, folder: Path, **options: object) -> triton.Config:
    bundle = make_bundle(save(model, folder / "m.onnx"), folder / "b", for_triton=True, **options)
    assert bundle.triton is not None
    return bundle.triton


@pytest.mark.parametrize("rows", [1, 3])
def test_rows_that_depend_on_each_other_are_not_batched(tmp_path: Path, rows: int) -> None:
    """Its signature looks as if they might be; Triton would mix the users' requests."""
    values = [info("x", FLOAT, ("n", 3))], [info("y", FLOAT, ("n", 3))]
    node = helper.make_node("Softmax", ["x"], ["y"], axis=0)
    made = _packed(_model(node, *values), tmp_path, dims={"n": rows})
    assert "depends on the other rows" in made.why_no_batching
    assert parse(made.text).max_batch_size == 0
    node = helper.make_node("Softmax", ["x"], ["y"], axis=1)
    made = _packed(_model(node, *values), tmp_path, dims={"n": rows})
    assert (made.why_no_batching, made.max_batch_size) == ("", triton.MAX_BATCH_SIZE)


def test_model_that_gives_other_rows_is_not_batched() -> None:
    def run(inputs: triton.Arrays) -> dict[str, np.ndarray]:
        return {"y": np.concatenate([inputs["x"]] * 2)}

    limits = {"y": triton.Tolerance(absolute=1e-6)}
    text = triton.why_rows_differ(run, {"x": np.zeros((2, 3), np.float32)}, limits)
    assert "a row per row" in text


def test_model_with_a_fixed_size_inside_is_not_batched() -> None:
    def run(inputs: triton.Arrays) -> dict[str, np.ndarray]:
        if len(inputs["x"]) != 2:
            raise RuntimeError("cannot be reshaped")
        return dict(inputs)

    limits = {"x": triton.Tolerance(absolute=1e-6)}
    text = triton.why_rows_differ(run, {"x": np.zeros((2, 3), np.float32)}, limits)
    assert "does not run on one row alone: cannot be reshaped" in text
