# SPDX-License-Identifier: Apache-2.0
"""Where a bundle is written and what is not packed: nothing is lost, nothing is left half done."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from myops._errors import LibraryError, ModelError, UsageError
from myops.pack import bundle as bundle_module
from myops.pack import make_bundle
from onnx.external_data_helper import set_external_data

from .support import check, failed, network, plain, save


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return save(plain(), tmp_path / "in" / "net.onnx")


def _left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_replaces_a_bundle(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out" / "bundle"
    make_bundle(save(network(), tmp_path / "old.onnx"), target)
    (target / "__pycache__").mkdir()
    (target / "__pycache__" / "run.cpython-311.pyc").write_bytes(b"")
    make_bundle(source, target)
    assert json.loads((target / "manifest.json").read_text())["source"] == "net.onnx"
    assert not list(target.glob("*.so"))
    assert _left(target.parent) == {"bundle"}


def test_writes_into_an_empty_folder(source: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert make_bundle(source, tmp_path / "empty").path == tmp_path / "empty"
    assert check(tmp_path / "empty")[0] == 0


def _other_files(place: Path) -> None:
    place.mkdir()
    (place / "thesis.txt").write_text("mine")


def _another_manifest(place: Path) -> None:
    place.mkdir()
    (place / "manifest.json").write_text('{"name": "a web page"}')


def _bundle_with_a_note(place: Path) -> None:
    make_bundle(save(plain(), place.parent / "first.onnx"), place)
    (place / "thesis.txt").write_text("mine")


@pytest.mark.parametrize(
    ("occupy", "words"),
    [
        (lambda place: place.write_text("mine"), "is not a folder"),
        (lambda place: place.symlink_to(place.parent), "is not a folder"),
        (_other_files, "holds other files"),
        (_another_manifest, "holds other files"),
        (_bundle_with_a_note, "thesis.txt"),
    ],
    ids=["file", "link", "folder", "manifest", "addition"],
)
def test_refuses_what_is_no_bundle(source, tmp_path, check_message, occupy, words) -> None:
    place = tmp_path / "place"
    occupy(place)

    def content() -> set[tuple[str, bytes]]:
        files = [place] if place.is_file() else place.rglob("*")
        return {(str(path), path.read_bytes()) for path in files if path.is_file()}

    before = content()
    with pytest.raises(UsageError) as raised:
        make_bundle(source, place)
    assert words in check_message(raised.value)
    assert content() == before


def test_parent_that_is_a_file(source: Path, tmp_path: Path, check_message) -> None:
    with pytest.raises(UsageError) as raised:
        make_bundle(source, source / "bundle")
    assert "net.onnx" in check_message(raised.value)
    assert source.is_file()


def test_a_failure_leaves_the_old_bundle(source: Path, tmp_path: Path, monkeypatch) -> None:
    target = tmp_path / "out" / "bundle"
    made = make_bundle(source, target)
    # The script lacks a module: its own check finds out.
    monkeypatch.setattr(bundle_module, "_COPIED", bundle_module._COPIED[:-1])
    with pytest.raises(ModelError, match="its own check"):
        make_bundle(save(network(), tmp_path / "new.onnx"), target)
    assert _left(target.parent) == {"bundle"}
    assert json.loads((target / "manifest.json").read_text()) == made.manifest
    assert check(target)[0] == 0


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"plugin": "none.so"}, LibraryError, "none.so, which does not exist"),
        ({"inputs": {"z": np.zeros(3)}}, UsageError, "inputs should be named x"),
        ({"dims": {"rows": 2}}, UsageError, "batch"),
        ({"max_batch_size": 0}, UsageError, "at least 1"),
        ({"tolerance": 0.0}, ModelError, "float64"),
    ],
    ids=["plugin", "inputs", "dims", "batch size", "off"],
)
def test_refuses_and_leaves_nothing(tmp_path, check_message, options, error, words) -> None:
    path = save(network(), tmp_path / "in" / "net.onnx")
    with pytest.raises(error) as raised:
        make_bundle(path, tmp_path / "out" / "bundle", **options)
    text = check_message(raised.value)
    assert words in text
    assert "/.bundle." not in text  # nothing named that is gone by now
    assert not (tmp_path / "out").exists() or _left(tmp_path / "out") == set()


@pytest.mark.parametrize(
    ("content", "words"), [(None, "should exist"), (b"no model", "whole ONNX model")]
)
def test_no_model(tmp_path: Path, check_message, content, words) -> None:
    path = tmp_path / "net.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError) as raised:
        make_bundle(path, tmp_path / "bundle")
    assert words in check_message(raised.value)
    assert str(path) in str(raised.value)


def test_plugin_that_is_none(tmp_path: Path, check_message) -> None:
    wrong = tmp_path / "other.so"
    wrong.write_bytes(b"\x7fELF" + bytes(300))
    with pytest.raises((LibraryError, ModelError)) as raised:
        make_bundle(
            save(network(portable=False), tmp_path / "net.onnx"), tmp_path / "bundle", plugin=wrong
        )
    assert str(wrong) in check_message(raised.value)


def _with_external(folder: Path, locations: list[str]) -> Path:
    """A network whose weight, and its bias beside, lie in files of these names."""
    model = network()
    bias = onnx.numpy_helper.from_array(np.arange(4, dtype=np.float32), "b")
    model.graph.initializer.append(bias)
    model.graph.node[0].input.append("b")
    for tensor, location in zip(model.graph.initializer, locations, strict=True):
        path = folder / location
        path.parent.mkdir(parents=True, exist_ok=True)
        content = path.read_bytes() if path.is_file() else b""
        set_external_data(tensor, location, offset=len(content), length=len(tensor.raw_data))
        path.write_bytes(content + tensor.raw_data)
        tensor.ClearField("raw_data")
    (folder / "net.onnx").write_bytes(model.SerializeToString())
    return folder / "net.onnx"


@pytest.mark.parametrize("for_triton", [False, True])
@pytest.mark.parametrize(
    "locations", [["w.bin", "w.bin"], ["deep/er/w.bin", "b.bin"], ["model.onnx.data.1", "b.bin"]]
)
def test_external_data_travels_along(tmp_path: Path, locations, for_triton) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    source = _with_external(folder, locations)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    bundle = make_bundle(source, tmp_path / "bundle", for_triton=for_triton)
    assert {path: path.read_bytes() for path in before} == before
    shutil.rmtree(folder)
    moved = Path(shutil.move(bundle.path, tmp_path / "moved"))
    code, steps = check(moved)
    assert code == 0, failed(steps)
    model = moved / bundle.manifest["model"]["path"]
    loaded = onnx.load(str(model), load_external_data=False)
    named = {t.external_data[0].value for t in loaded.graph.initializer}
    assert len(named) == len(set(locations))
    data = {path.name for path in model.parent.iterdir() if ".data" in path.name}
    assert named == data
    (model.parent / min(data)).unlink()
    assert any(min(data) in text for _, text in failed(check(moved)[1]))


@pytest.mark.parametrize("location", ["/etc/hostname", "../secret.bin", "a/../../secret.bin"])
def test_external_data_elsewhere_is_not_packed(tmp_path: Path, location) -> None:
    (tmp_path / "in" / "a").mkdir(parents=True)
    (tmp_path / "secret.bin").write_bytes(bytes(1000))
    model = network()
    tensor = model.graph.initializer[0]
    set_external_data(tensor, location, length=len(tensor.raw_data))
    tensor.ClearField("raw_data")
    source = tmp_path / "in" / "net.onnx"
    source.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="in its folder") as raised:
        make_bundle(source, tmp_path / "bundle")
    assert location in str(raised.value)
    assert not (tmp_path / "bundle").exists()


def test_missing_external_data(tmp_path: Path, check_message) -> None:
    source = _with_external(tmp_path, ["w.bin", "b.bin"])
    (tmp_path / "b.bin").unlink()
    with pytest.raises(ModelError) as raised:
        make_bundle(source, tmp_path / "bundle")
    assert "b.bin" in check_message(raised.value)


def test_command_line(tmp_path: Path, myops_command) -> None:
    save(network(), tmp_path / "my net.onnx")
    done = myops_command("pack", "my net.onnx", "-o", "b", "--dim", "batch=3", "--triton", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["triton"]["name"] == "my_net"
    assert all(step["ok"] for step in report["steps"])
    assert report["manifest"] == json.loads((tmp_path / "b" / "manifest.json").read_text())
    done = myops_command("pack", "my net.onnx", "-o", "b")
    assert "runs without it, too" in done.stdout
    assert "python b/check.py" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("net.onnx", "-o", "here"), 2, "holds other files"),
        (("none.onnx", "-o", "b"), 1, "the model file should exist"),
        (("net.onnx",), 2, "--output"),
        (("net.onnx", "-o", "b", "--dim", "batch"), 2, "--dim has the form"),
        (("net.onnx", "-o", "b", "--tolerance", "-1"), 2, "--tolerance has the form"),
    ],
)
def test_command_line_errors(
    tmp_path: Path, myops_command, arguments, code: int, words: str
) -> None:
    save(plain(), tmp_path / "net.onnx")
    _other_files(tmp_path / "here")
    done = myops_command("pack", *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
