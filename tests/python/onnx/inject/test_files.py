# SPDX-License-Identifier: Apache-2.0
"""From file to file: what is written, what is never touched, external data, models of gigabytes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from myops._errors import ModelError, UsageError
from myops.onnx.inject import inject_file, run
from myops.ort import session
from onnx import TensorProto, helper

from .graphs import SHAPE, ops, parse

SWISH = "s = Sigmoid(x) y = Mul(x, s)"
HARDSWISH = "h = HardSwish(x) t = Sigmoid(h) y = Mul(h, t)"


def save(folder: Path, model: onnx.ModelProto, name: str = "in.onnx") -> Path:
    path = folder / name
    onnx.save(model, path)
    return path


def with_weights(folder: Path, location: str = "weights/w.data") -> Path:
    """A Swish behind a product with a matrix in external data."""
    model = parse("m = MatMul(x, w) s = Sigmoid(m) y = Mul(m, s)", "float[2,64] x", "float[2,64] y")
    matrix = np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64)
    (folder / location).parent.mkdir(parents=True, exist_ok=True)
    (folder / location).write_bytes(matrix.tobytes())
    tensor = model.graph.initializer.add(
        name="w", data_type=TensorProto.FLOAT, dims=[64, 64], data_location=TensorProto.EXTERNAL
    )
    tensor.external_data.add(key="location", value=location)
    tensor.external_data.add(key="length", value=str(matrix.nbytes))
    return save(folder, model)


@pytest.mark.parametrize("target", ["custom", "native", "auto"])
@pytest.mark.parametrize("measure", [True, False])
def test_second_time_changes_nothing(tmp_path: Path, target: str, measure: bool) -> None:
    source = save(tmp_path, parse(HARDSWISH))
    before = source.read_bytes()
    options = {"target": target, "measure": measure, "seconds": 0.05}
    inject_file(source, tmp_path / "first.onnx", **options)
    report = inject_file(tmp_path / "first.onnx", tmp_path / "second.onnx", **options)
    assert report.rewritten == 0
    assert (tmp_path / "second.onnx").read_bytes() == (tmp_path / "first.onnx").read_bytes()
    assert source.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["first.onnx", "in.onnx", "second.onnx"]


def test_nothing_to_do_keeps_the_bytes(tmp_path: Path) -> None:
    # An entry that protobuf does not know, and fields in an order that it would not write.
    source = save(tmp_path, parse("y = Relu(x)"))
    source.write_bytes(source.read_bytes() + bytes([0xF8, 0x7D, 0x05]))
    inject_file(source, tmp_path / "out.onnx", target="custom")
    assert (tmp_path / "out.onnx").read_bytes() == source.read_bytes()


def test_output_is_the_input(tmp_path: Path) -> None:
    source = save(tmp_path, parse(SWISH))
    os.link(source, tmp_path / "link.onnx")
    for output in (source, tmp_path / "link.onnx"):
        with pytest.raises(UsageError, match="another file"):
            inject_file(source, output, target="custom")


def test_failure_leaves_the_old_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = with_weights(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    old = other / "out.onnx"
    old.write_bytes(b"old")

    def refuse(*_: object) -> None:
        raise ModelError("test", "outputs should be equal", "others", "Stop")

    monkeypatch.setattr(run.verify, "check_values", refuse)
    with pytest.raises(ModelError, match="outputs should be equal"):
        inject_file(source, old, target="custom")
    assert old.read_bytes() == b"old"
    assert [p.name for p in other.iterdir()] == ["out.onnx"]


def test_wrong_values_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern that computes something else does not pass for the operator."""
    from myops.onnx.inject import rewrite

    def wrong(spec, inputs, outputs, parameters, name):
        return helper.make_node("Relu", inputs, outputs, name=name)

    monkeypatch.setattr(rewrite, "custom_node", wrong)
    with pytest.raises(ModelError, match="should give the values of the nodes it replaces"):
        inject_file(save(tmp_path, parse(SWISH)), tmp_path / "out.onnx", target="custom")
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize("location", ["w.data", "weights/w.data"])
@pytest.mark.parametrize("where", [".", "elsewhere"])
def test_external_data(tmp_path: Path, location: str, where: str) -> None:
    source = with_weights(tmp_path, location)
    output = tmp_path / where / "out.onnx"
    report = inject_file(source, output, target="custom")
    assert report.rewritten == 1 and report.outputs
    data = output.parent / location
    assert data.is_file()
    assert data.read_bytes() == (tmp_path / location).read_bytes()
    assert data.stat().st_nlink == 1, "onnx does not load linked data"
    onnx.checker.check_model(str(output))
    files = sorted(p.name for p in output.parent.rglob("*"))
    inject_file(source, output, target="custom")
    assert sorted(p.name for p in output.parent.rglob("*")) == files, "the data is not copied twice"
    feeds = {"x": np.ones((2, 64), np.float32)}
    (wanted,) = session(source).run(None, feeds)
    for plugin in (None, False):
        (got,) = session(output, plugin=plugin).run(None, feeds)
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    model = onnx.load(output, load_external_data=False)
    assert ops(model) == ["MatMul", "myops::Swish"]


def test_external_data_whose_name_is_taken(tmp_path: Path) -> None:
    source = with_weights(tmp_path, "w.data")
    output = tmp_path / "elsewhere" / "out.onnx"
    output.parent.mkdir()
    (output.parent / "w.data").write_bytes(b"of another model")
    inject_file(source, output, target="custom")
    assert (output.parent / "w.data").read_bytes() == b"of another model"
    (tensor,) = onnx.load(output, load_external_data=False).graph.initializer
    (location,) = (e.value for e in tensor.external_data if e.key == "location")
    assert location == "out.onnx.data"
    feeds = {"x": np.ones((2, 64), np.float32)}
    np.testing.assert_allclose(
        session(output).run(None, feeds)[0], session(source).run(None, feeds)[0], rtol=1e-5
    )


def test_missing_or_escaping_external_data(tmp_path: Path) -> None:
    source = with_weights(tmp_path, "w.data")
    (tmp_path / "w.data").unlink()
    with pytest.raises(ModelError, match="external data should lie beside it"):
        inject_file(source, tmp_path / "out.onnx", target="custom")
    model = onnx.load(source, load_external_data=False)
    model.graph.initializer[0].external_data[0].value = "../w.data"
    source.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="in the model's folder"):
        inject_file(source, tmp_path / "out.onnx", target="custom")


def test_scalar_in_external_data(tmp_path: Path) -> None:
    model = parse("z = Mul(x, b) s = Sigmoid(z) y = Mul(x, s)", initializers="float b = {1.5}")
    onnx.save(
        model,
        tmp_path / "in.onnx",
        save_as_external_data=True,
        location="w.data",
        size_threshold=0,
    )
    report = inject_file(tmp_path / "in.onnx", tmp_path / "out.onnx", target="custom")
    assert report.rows[0].attributes == {"beta": 1.5}


BIG = 2_300_000_000
BIG_JOB = """
    import json, re, sys, time
    start = time.perf_counter()
    from myops.onnx.inject import inject_file
    report = inject_file(sys.argv[1], sys.argv[2])
    status = open("/proc/self/status").read()
    print(json.dumps({
        "seconds": time.perf_counter() - start,
        # getrusage would count what the parent held when it forked.
        "megabytes": int(re.search(r"VmHWM:\\s+(\\d+)", status)[1]) / 1024,
        "rewritten": report.rewritten,
        "notes": report.notes,
    }))
"""


@pytest.mark.parametrize("where", [".", "elsewhere"])
def test_model_of_gigabytes(tmp_path: Path, run_python, where: str) -> None:
    """2.3 GB of weights (a sparse file): under 10 s and 300 MB, as nothing reads them."""
    width, layers = 8192, 9
    rows = BIG // (4 * width * layers)
    body = "".join(
        f"m{i} = MatMul({'x' if i == 0 else f'z{i - 1}'}, w{i}) s{i} = Sigmoid(m{i}) "
        f"y{i} = Mul(m{i}, s{i}) z{i} = Slice(y{i}, start, stop, axis) "
        for i in range(layers)
    )
    model = parse(
        body + "y = Identity(y8)",
        f"float[1,{rows}] x",
        f"float[1,{width}] y",
        initializers=f"int64[1] start = {{0}}, int64[1] stop = {{{rows}}}, int64[1] axis = {{1}}",
    )
    length = 4 * width * rows
    for i in range(layers):
        tensor = model.graph.initializer.add(
            name=f"w{i}",
            data_type=TensorProto.FLOAT,
            dims=[rows, width],
            data_location=TensorProto.EXTERNAL,
        )
        for key, value in (("location", "big.data"), ("offset", i * length), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
    with (tmp_path / "big.data").open("wb") as handle:
        handle.truncate(length * layers)
    assert length * layers > 2.29e9
    source = save(tmp_path, model)
    output = tmp_path / where / "out.onnx"
    done = json.loads(run_python(BIG_JOB, source, output).stdout)
    print(done)
    assert done["rewritten"] == layers
    assert done["seconds"] < 10
    assert done["megabytes"] < 300
    assert any("1 GB" in note for note in done["notes"])
    data = (output.parent / "big.data").stat()
    assert data.st_size == length * layers
    assert data.st_blocks < 1000, "a sparse file stays one"
    result = onnx.load(output, load_external_data=False)
    assert ops(result).count("myops::Swish") == layers


def test_model_in_memory_needs_its_weights(tmp_path: Path) -> None:
    from myops.onnx import inject

    model = onnx.load(with_weights(tmp_path), load_external_data=False)
    with pytest.raises(UsageError, match="hold its weights"):
        inject(model)
    assert SHAPE
