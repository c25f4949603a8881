# SPDX-License-Identifier: Apache-2.0
"""A bundle on a server that has numpy and onnxruntime of several releases, and not even us."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from environments import Venv, environment
from myops.pack import make_bundle
from myops.spec import ELEMENTWISE
from myops.verify.operators import one_node_model

RELEASES = ["1.16.3", "1.20.1", "1.32.0"]
DTYPES = ["float32", "float64", "float16"]
ABSENT = "myops onnx torch rich typer"


@pytest.fixture(scope="module", params=RELEASES)
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with numpy and onnxruntime only."""
    place = Venv(tmp_path_factory.mktemp(f"target-{request.param}") / "venv")
    numpy = "numpy<2" if request.param < "1.19" else "numpy"
    place.install("--no-deps", f"onnxruntime=={request.param}", numpy)
    found = place.check(
        "import importlib.util as u, sys\nprint([n for n in sys.argv[1:] if u.find_spec(n)])",
        *ABSENT.split(),
    )
    assert found.strip() == "[]"
    return place.python


@pytest.fixture(scope="module", params=DTYPES)
def packed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(f"pack-{request.param}")
    spec = ELEMENTWISE[0]
    onnx.save(one_node_model(spec, request.param, spec.defaults()), str(folder / "net.onnx"))
    x = np.random.default_rng(0).normal(0, 3, 4000).astype(request.param)
    inputs = dict.fromkeys(spec.inputs, x)
    return make_bundle(folder / "net.onnx", folder / "bundle", inputs=inputs).path


def run(python: Path, script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, script, *arguments],
        capture_output=True,
        text=True,
        cwd="/",
        env=environment(),
        check=False,
    )


def test_bundle_is_checked_after_being_moved(target: Path, packed: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(packed, tmp_path / "deep" / "er" / "b"))
    done = run(target, moved / "check.py")
    assert done.returncode == 0, done.stdout + done.stderr
    steps = [line.split()[:2] for line in done.stdout.splitlines()[:-1]]
    assert {mark for mark, _ in steps} == {"ok"}
    assert [name for _, name in steps][-4:] == ["packages", "plugin", "load", "numbers"]
    assert run(target, moved / "check.py", "--no-plugin").returncode == 0
    done = run(target, moved / "run.py", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outputs"]


def test_one_flipped_byte_is_named(target: Path, packed: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(packed, tmp_path / "b"))
    for name in ("model.onnx", "libmyops_ort.so", "golden.npz", "manifest.json", "run.py"):
        original = (moved / name).read_bytes()
        content = bytearray(original)
        content[len(content) // 3] ^= 0x10
        (moved / name).write_bytes(content)
        done = run(target, moved / "check.py")
        assert done.returncode == 1
        (line,) = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
        assert f"[bundle] {name} should" in line
        (moved / name).write_bytes(original)
    assert run(target, moved / "check.py").returncode == 0
