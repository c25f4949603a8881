# SPDX-License-Identifier: Apache-2.0
"""Golden results: right files pass, each damaged one is named, wrong numbers are measured."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import myops.ort
import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from myops._errors import ModelError, UsageError
from myops.verify import check_golden, golden, golden_file, make_golden
from onnx import TensorProto, helper

from .networks import export, images, info, model_of, network, our_nodes, swish


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with model, plugin and golden file, as it is sent to the target."""
    folder = tmp_path_factory.mktemp("golden")
    export(network(), folder / "model.onnx")
    shutil.copy(myops.ort.library_path(), folder / "plugin.so")
    make_golden(folder / "model.onnx", folder / "golden.npz", network(), images())
    return folder


@pytest.fixture
def sent(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "sent"))


def check(folder: Path, **options) -> golden.Golden:
    files = (folder / "golden.npz", folder / "model.onnx", folder / "plugin.so")
    return check_golden(*files, **options)


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.unlink()  # a plugin stays loaded, and what is mapped must not change
    path.write_bytes(content)


def test_whole_files_and_right_numbers(sent: Path) -> None:
    result = check(sent)
    assert result.ok
    assert [(file.kind, file.ok) for file in result.files] == [
        ("golden", True),
        ("model", True),
        ("plugin", True),
    ]
    (row,) = result.report.rows
    assert row.layer == 3
    assert row.comparison is not None
    assert 0 < row.comparison.max_abs < 1e-6
    assert result.made == result.here == golden.machine()
    assert result.made["isa"]
    assert result.made["versions"]["onnxruntime"]
    json.dumps(result.to_dict())


def test_what_the_file_holds(made: Path) -> None:
    meta, arrays = golden_file.read(made / "golden.npz")
    assert set(arrays) == {"input:x", *(f"output:{name}" for name in meta["outputs"])}
    np.testing.assert_array_equal(arrays["input:x"], images()["x"])
    (expected,) = (array for name, array in arrays.items() if name.startswith("output:"))
    assert expected.dtype == np.float64
    np.testing.assert_allclose(expected.sum(-1), 1, rtol=1e-12)
    assert meta["model"]["sha256"] == golden_file.sha256(made / "model.onnx")
    assert meta["plugin"]["sha256"] == golden_file.sha256(Path(myops.ort.library_path()))
    assert meta["truth"] == "the file in float64"
    with np.load(made / "golden.npz") as plain:
        assert set(arrays) < set(plain)


@pytest.mark.parametrize("kind", ["model", "plugin"])
def test_one_byte_changed(sent: Path, kind: str, check_message) -> None:
    path = sent / {"model": "model.onnx", "plugin": "plugin.so"}[kind]
    flip(path, path.stat().st_size // 2)
    result = check(sent)
    assert not result.ok
    (bad,) = (file for file in result.files if not file.ok)
    assert (bad.kind, bad.path) == (kind, str(path))
    assert f"the {kind} was damaged in transfer" in check_message(bad.text)
    assert result.report.rows == [], "nothing damaged is run"


def test_cut_off_and_missing(sent: Path, check_message) -> None:
    model = sent / "model.onnx"
    model.write_bytes(model.read_bytes()[:-10])
    (sent / "plugin.so").unlink()
    bad = [file for file in check(sent).files if not file.ok]
    assert [file.kind for file in bad] == ["model", "plugin"]
    assert "the model was cut off in transfer" in check_message(bad[0].text)
    assert "the plugin file should exist" in check_message(bad[1].text)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_any_changed_byte_of_the_golden_file_is_noticed(made: Path, tmp_path, data) -> None:
    content = bytearray((made / "golden.npz").read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path / "golden.npz"
    path.write_bytes(content)
    (bad,) = check_golden(path, made / "model.onnx").files
    assert (bad.kind, bad.ok) == ("golden", False)
    assert "the golden file was damaged" in bad.text


@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_a_golden_file_that_was_cut_off(sent: Path, share: float, check_message) -> None:
    path = sent / "golden.npz"
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    (bad,) = check(sent).files
    assert "damaged or cut off" in check_message(bad.text)


def test_another_model_of_the_same_size_is_measured_against_nothing(sent: Path) -> None:
    model = onnx.load(sent / "model.onnx")
    our_nodes(model)[0].attribute[0].f = 1.0
    onnx.save(model, sent / "model.onnx")
    result = check(sent)
    assert not result.ok
    assert result.report.rows == []


def test_numbers_that_are_off(sent: Path) -> None:
    result = check(sent, tolerance=1e-12)
    assert not result.ok
    assert all(file.ok for file in result.files)
    (sentence,) = result.report.sentences()
    assert sentence.startswith("Off: ORT ")
    assert "largest difference" in sentence
    assert check(sent, tolerance={"float16": 1e-12}).ok, "another dtype's tolerance"


def test_the_installed_plugin_may_be_another_build(sent: Path, monkeypatch, tmp_path) -> None:
    meta, arrays = golden_file.read(sent / "golden.npz")
    meta["plugin"]["sha256"] = "0" * 64
    golden_file.write(sent / "golden.npz", meta, arrays)
    result = check_golden(sent / "golden.npz", sent / "model.onnx")
    assert result.ok
    assert result.files[-1].text == "another build than the results were made with"
    monkeypatch.setattr(golden, "_changed_since_installation", lambda path: True)
    result = check_golden(sent / "golden.npz", sent / "model.onnx")
    assert "the plugin was damaged or changed" in result.files[-1].text


def test_changed_since_installation(monkeypatch, tmp_path) -> None:
    """The wheel's own record of its files."""
    from importlib import metadata

    path = tmp_path / "libmyops_ort.so"
    path.write_bytes(b"plugin")

    class Hash:
        mode = "sha256"
        value = "6SiO_k4pdABEiMxTuX6GPrejr3oz_OjiGl-WqJxMSlI"

    class File:
        name, hash = path.name, Hash()

    class Distribution:
        files = (File(),)

    import base64
    import hashlib

    digest = base64.urlsafe_b64encode(hashlib.sha256(b"plugin").digest()).rstrip(b"=")
    Hash.value = digest.decode()
    monkeypatch.setattr(metadata, "distribution", lambda name: Distribution())
    assert not golden._changed_since_installation(path)
    path.write_bytes(b"plugim")
    assert golden._changed_since_installation(path)


def test_external_data_and_integers(tmp_path) -> None:
    """Weights beside the model have checksums, too; integer outputs must be equal."""
    weight = onnx.numpy_helper.from_array(np.arange(600, dtype=np.float32).reshape(200, 3), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        swish("a", "y", "s"),
        helper.make_node("ArgMax", ["y"], ["best"], axis=1, keepdims=0),
    ]
    outputs = [info("y", (2, 3)), info("best", (2,), TensorProto.INT64)]
    model = model_of(nodes, [info("x", (2, 200))], outputs, [weight])
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="m.data", size_threshold=100)
    make_golden(path, tmp_path / "g.npz")
    result = check_golden(tmp_path / "g.npz", path)
    assert result.ok
    assert [file.kind for file in result.files] == ["golden", "model", "weights", "plugin"]
    assert [str(row.tolerance) for row in result.report.rows][1] == "0.0e+00"
    flip(tmp_path / "m.data", 1000)
    bad = [file for file in check_golden(tmp_path / "g.npz", path).files if not file.ok]
    assert [file.kind for file in bad] == ["weights"]


def test_a_model_without_our_operators_needs_no_plugin(tmp_path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model_of([helper.make_node("Exp", ["x"], ["y"])], [info("x")], [info("y")]), path)
    assert make_golden(path, tmp_path / "g.npz")["plugin"] is None
    result = check_golden(tmp_path / "g.npz", path)
    assert result.ok
    assert [file.kind for file in result.files] == ["golden", "model"]


def test_no_golden_results_of_a_wrong_model(tmp_path, check_message) -> None:
    export(network((1.0, 1.0, 1.0)), tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="where every layer agrees") as error:
        make_golden(tmp_path / "m.onnx", tmp_path / "g.npz", network(), images())
    assert "the file in float64" in check_message(error.value)
    assert not (tmp_path / "g.npz").exists()


def test_usage(made: Path, tmp_path, check_message, monkeypatch) -> None:
    with pytest.raises(UsageError, match="the golden file should exist") as error:
        check_golden(tmp_path / "none.npz", made / "model.onnx")
    check_message(error.value)
    with monkeypatch.context() as newer:
        newer.setattr(golden_file, "FORMAT", 2)
        golden_file.write(tmp_path / "g.npz", {}, {})
    (bad,) = check_golden(tmp_path / "g.npz", made / "model.onnx").files
    assert "of format 2" in check_message(bad.text)
    assert {path.name for path in tmp_path.iterdir()} == {"g.npz"}


def test_neither_torch_nor_onnx_is_imported(made: Path, run_python_in) -> None:
    code = """
    import sys
    for name in ("torch", "onnx"):
        sys.modules[name] = None
    from myops.cli import app
    app(["verify", "--golden", *sys.argv[1:]])
    """
    files = [made / name for name in ("golden.npz", "model.onnx")]
    assert "ok golden" in run_python_in(made, code, *files).stdout


def test_command_line(sent: Path, run_myops) -> None:
    make = ("golden", "make", "model.onnx", "-o", "new.npz", "--dim", "batch=3")
    done = run_myops(sent, *make, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outputs"]
    assert "Wrote new.npz" in run_myops(sent, *make).stdout
    verify = ("verify", "--golden", "new.npz", "model.onnx", "--plugin", "plugin.so")
    assert run_myops(sent, *verify).returncode == 0
    flip(sent / "plugin.so", 4000)
    done = run_myops(sent, *verify)
    assert done.returncode == 1
    assert "DAMAGED plugin plugin.so" in done.stdout
    assert done.stderr.count("error") == 1
    assert json.loads(run_myops(sent, *verify, "--json").stdout)["files"][-1]["ok"] is False
    assert run_myops(sent, "verify", "--golden", "new.npz").returncode == 2
    assert run_myops(sent, *verify, "--bisect").returncode == 2
