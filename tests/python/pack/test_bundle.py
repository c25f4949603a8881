# SPDX-License-Identifier: Apache-2.0
"""What a bundle holds, that it runs elsewhere, and that its check finds what is wrong with it."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import myops.ort
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from myops.pack import Bundle, make_bundle, manifest
from myops.verify import check_golden, golden_file

from .support import check, failed, flip, network, plain, save, script

SCRIPTS = ("check.py", "compare.py", "run.py")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Packed from a folder that is gone since."""
    folder = tmp_path_factory.mktemp("packed")
    source = save(network(), folder / "origin" / "net.onnx")
    bundle = make_bundle(source, folder / "bundle", dims={"batch": 3})
    shutil.rmtree(source.parent)
    return bundle


@pytest.fixture
def moved(packed: Bundle, tmp_path: Path) -> Path:
    """A copy in a folder of another name, with a space and other letters."""
    return Path(shutil.copytree(packed.path, tmp_path / "anderswo Größe" / "b"))


def test_holds_what_a_target_needs_and_no_more(packed: Bundle) -> None:
    names = {path.relative_to(packed.path).as_posix() for path in packed.path.rglob("*")}
    plugin = Path(myops.ort.library_path()).name
    assert names == {*SCRIPTS, "golden.npz", "manifest.json", "model.onnx", plugin}
    about = packed.manifest
    assert {file["path"] for file in about["files"]} == names - {"manifest.json"}
    for file in about["files"]:
        content = (packed.path / file["path"]).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file["size"], file["sha256"])
    assert about == json.loads((packed.path / "manifest.json").read_text())
    assert about["source"] == "net.onnx"
    assert about["made_with"]["onnxruntime"]
    assert about["model"]["inputs"] == [{"name": "x", "dtype": "float32", "dims": ["batch", 8]}]
    assert sum(about["model"]["operators"].values()) == 1
    assert (packed.path.stat().st_mode & 0o777) == 0o777 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_moved_bundle_is_right_without_us(moved: Path) -> None:
    code, steps = check(moved)
    assert code == 0, failed(steps)
    assert [s["step"] for s in steps] == [
        *("manifest", *["file"] * 6, "packages", "plugin", "load", "numbers")
    ]
    assert "allowed" in steps[-1]["text"]
    done = script(moved / "check.py")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert len(lines) == len(steps) + 1
    assert all(line.startswith("ok") for line in lines[:-1])
    assert not list(moved.rglob("__pycache__"))


def test_golden_file_is_that_of_myops_verify(moved: Path) -> None:
    plugin = moved / Path(myops.ort.library_path()).name
    assert check_golden(moved / "golden.npz", moved / "model.onnx", plugin).ok


@pytest.mark.parametrize(
    "name", ["model.onnx", "golden.npz", "run.py", "compare.py", "libmyops_ort.so", "manifest.json"]
)
def test_flipped_byte_is_named(moved: Path, name: str) -> None:
    flip(moved / name)
    code, steps = check(moved)
    assert code == 1
    ((_, text),) = failed(steps)
    assert text.startswith(f"[bundle] {name} should")
    assert "damaged" in text
    assert steps[-1]["step"] in ("file", "manifest")  # nothing of the bundle was run
    done = script(moved / "check.py")
    assert done.returncode == 1
    assert any(line.startswith("FAILED") and name in line for line in done.stdout.splitlines())


def test_flipped_byte_of_the_check_itself_is_found(moved: Path) -> None:
    """By its own checksum, or because it does not run. What it blames then is anybody's guess."""
    path = moved / "check.py"
    original = path.read_bytes()
    for offset in (100, *range(700, len(original), len(original) // 6)):
        path.write_bytes(original)
        flip(path, offset)
        done = script(path)
        assert done.returncode != 0, offset
        assert "whole and right" not in done.stdout


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.unlink(), "no such file"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "cut off"),
        (lambda path: path.write_bytes(path.read_bytes() + b"\0"), "added to"),
    ],
    ids=["missing", "cut", "longer"],
)
def test_missing_and_cut_files_are_named(
    moved: Path, check_message, damage: Callable[[Path], object], words: str
) -> None:
    damage(moved / "model.onnx")
    code, steps = check(moved)
    ((step, text),) = failed(steps)
    assert (code, step) == (1, "file")
    assert words in check_message(text)


def _module(path: Path):
    spec = importlib.util.spec_from_file_location(f"of_{path.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_any_change_of_the_manifest_is_found(packed: Bundle, tmp_path_factory, data) -> None:
    module = _module(packed.path.parents[0] / packed.path.name / "check.py")
    content = bytearray((packed.path / "manifest.json").read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    module.FOLDER = tmp_path_factory.mktemp("manifest")
    (module.FOLDER / "manifest.json").write_bytes(content)
    with pytest.raises(module.Failed, match=r"manifest\.json"):
        module.read_manifest()


def test_manifest_of_another_format(moved: Path) -> None:
    about = json.loads((moved / "manifest.json").read_text())
    (moved / "manifest.json").unlink()
    written = manifest.write(
        moved, {k: v for k, v in about.items() if k not in ("format", "files")}
    )
    text = (moved / "manifest.json").read_text()
    zeroed = text.replace('"format": 1', '"format": 9').replace(
        written["manifest_sha256"], "0" * 64
    )
    number = hashlib.sha256(zeroed.encode()).hexdigest()
    (moved / "manifest.json").write_text(zeroed.replace("0" * 64, number))
    ((_, text),) = failed(check(moved)[1])
    assert "format 9" in text


def _sign_again(bundle: Path) -> None:
    about = json.loads((bundle / "manifest.json").read_text())
    (bundle / "manifest.json").unlink()
    manifest.write(bundle, {k: v for k, v in about.items() if k != "files"})


def test_wrong_numbers_are_found(moved: Path, check_message) -> None:
    meta, arrays = golden_file.read(moved / "golden.npz")
    arrays["output:y"][1, 2] += 1e-3
    golden_file.write(moved / "golden.npz", meta, arrays)
    _sign_again(moved)
    code, steps = check(moved)
    ((step, text),) = failed(steps)
    assert (code, step) == (1, "numbers")
    assert "1 of 12 elements" in check_message(text)
    assert "(1, 2)" in text


def test_target_without_onnxruntime(moved: Path, check_message) -> None:
    hidden = "import sys; sys.modules['onnxruntime'] = None\n"
    code, steps = check(moved, before=hidden)
    ((step, text),) = failed(steps)
    assert (code, step) == (1, "packages")
    assert "pip install onnxruntime" in check_message(text)
    done = script(moved / "run.py", before=hidden)
    assert (done.returncode, done.stdout) == (1, "")
    check_message(done.stderr.removeprefix("error ").strip())


def test_no_file_names_a_path_of_this_machine(tmp_path: Path) -> None:
    model = network()
    model.graph.node[0].doc_string = f"File {tmp_path}/net.py, line 3"
    model.graph.node[1].metadata_props.add(
        key="stack_trace", value=f'File "{tmp_path}/net.py", line 3'
    )
    model.graph.node[1].metadata_props.add(key="module", value="network/act")
    model.metadata_props.add(key="trained_in", value="/home/someone/runs/7")
    model.metadata_props.add(key="labels", value="cat/dog, 3/4")
    model.doc_string = "A network"
    bundle = make_bundle(save(model, tmp_path / "net.onnx"), tmp_path / "bundle")
    places = (str(tmp_path), str(Path.home()) + "/", str(Path.cwd()), sys.prefix, "/home/someone")
    for path in bundle.path.rglob("*"):
        content = path.read_bytes()
        assert [place for place in places if place.encode() in content] == [], path
    assert bundle.manifest["model"]["notes_with_paths_removed"] == 3
    kept = onnx.load(str(bundle.path / "model.onnx"))
    assert kept.doc_string == "A network"
    assert [p.value for p in kept.metadata_props] == ["cat/dog, 3/4"]
    assert [p.key for p in kept.graph.node[1].metadata_props] == ["module"]
    assert [n.op_type for n in kept.graph.node] == [n.op_type for n in model.graph.node]


def test_model_is_copied_byte_for_byte_where_nothing_has_to_change(tmp_path: Path) -> None:
    source = save(network(), tmp_path / "net.onnx")
    bundle = make_bundle(source, tmp_path / "bundle")
    assert (bundle.path / "model.onnx").read_bytes() == source.read_bytes()


def test_two_bundles_of_one_model_are_the_same(packed: Bundle, tmp_path: Path) -> None:
    source = save(network(), tmp_path / "net.onnx")
    again = make_bundle(source, tmp_path / "bundle", dims={"batch": 3})
    assert again.manifest == packed.manifest


def test_scripts_need_numpy_onnxruntime_and_python_3_8(packed: Bundle) -> None:
    allowed = {*sys.stdlib_module_names, "numpy", "onnxruntime", "run", "compare"}
    for name in SCRIPTS:
        tree = ast.parse((packed.path / name).read_text(), feature_version=(3, 8))
        for found in ast.walk(tree):
            if isinstance(found, ast.Import):
                names = [alias.name for alias in found.names]
            elif isinstance(found, ast.ImportFrom):
                names = [found.module]
            else:
                continue
            assert {n.split(".")[0] for n in names} <= allowed, (name, names)


def test_model_without_our_operators_needs_no_plugin(tmp_path: Path) -> None:
    bundle = make_bundle(save(plain(), tmp_path / "plain.onnx"), tmp_path / "bundle")
    assert bundle.manifest["plugin"] is None
    assert not list(bundle.path.glob("*.so"))
    code, steps = check(bundle.path)
    assert code == 0, failed(steps)
    assert [s["step"] for s in steps].count("numbers") == 2
    assert "plugin" not in [s["step"] for s in steps]


@pytest.mark.parametrize("portable", [True, False])
def test_without_the_plugin(tmp_path: Path, portable: bool, check_message) -> None:
    bundle = make_bundle(save(network(portable), tmp_path / "net.onnx"), tmp_path / "bundle")
    assert bundle.manifest["model"]["portable"] is portable
    code, steps = check(bundle.path, "--no-plugin")
    assert code == (0 if portable else 1)
    for step, text in failed(steps):
        assert step == "plugin"
        assert "portable" in check_message(text)


def test_plugin_that_does_not_load_here(moved: Path, check_message) -> None:
    """As built for another architecture: whole, and of no use."""
    (moved / "libmyops_ort.so").write_bytes(b"\x7fELF" + bytes(200))
    _sign_again(moved)
    ((step, text),) = failed(check(moved)[1])
    assert step == "plugin"
    assert "--no-plugin" in check_message(text)
    assert check(moved, "--no-plugin")[0] == 0


def test_provider_that_is_not_there(moved: Path, check_message) -> None:
    code, steps = check(moved, "--provider", "CUDAExecutionProvider")
    ((step, text),) = failed(steps)
    assert (code, step) == (1, "load")
    assert "CUDAExecutionProvider" in check_message(text)


def test_names_that_the_terminal_cannot_show(tmp_path: Path) -> None:
    model = network()
    model.graph.output[0].name = model.graph.node[1].output[0] = "größe"
    bundle = make_bundle(save(model, tmp_path / "nèt.onnx"), tmp_path / "bundle")
    ascii_only = "import sys; sys.stdout.reconfigure(encoding='ascii', errors='strict')\n"
    for name in ("check.py", "run.py"):
        done = script(bundle.path / name, before=ascii_only)
        assert done.returncode == 0, done.stderr
        assert "gr\\xf6\\xdfe" in done.stdout


def test_wrong_usage_of_the_scripts(moved: Path) -> None:
    for name in ("check.py", "run.py"):
        assert script(moved / name, "--unheard-of").returncode == 2


def test_run_gives_the_session_s_numbers(moved: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(4).standard_normal((5, 8)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    out = tmp_path / "out.npz"
    done = script(moved / "run.py", "--inputs", tmp_path / "x.npz", "-o", out, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["outputs"] == {"y": {"dtype": "float32", "shape": [5, 4]}}
    assert report["milliseconds"] > 0
    with np.load(out) as found:
        expected = myops.ort.session(moved / "model.onnx").run(["y"], {"x": x})
        assert np.array_equal(found["y"], expected[0])
    assert "float32[3, 4]" in script(moved / "run.py", "--repeat", 3).stdout


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"z": np.zeros((2, 8), np.float32)}, "inputs should be named x. Received z"),
        ({"x": np.zeros((2, 8))}, "float32 of shape ['batch', 8]. Received float64"),
        ({"x": np.zeros((2, 9), np.float32)}, "of shape [2, 9]"),
        (None, "should be an .npz file"),
    ],
    ids=["name", "dtype", "shape", "file"],
)
def test_run_refuses_other_inputs(
    moved: Path, tmp_path: Path, check_message, arrays, words
) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(b"not one") if arrays is None else np.savez(path, **arrays)
    done = script(moved / "run.py", "--inputs", path, "-o", tmp_path / "y.npz")
    assert done.returncode == 1
    assert words in check_message(done.stderr.removeprefix("error ").strip())
    assert not (tmp_path / "y.npz").exists()
