# SPDX-License-Identifier: Apache-2.0
"""Golden results made where torch is, checked on a server with another release of ONNX Runtime and
without torch or onnx."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import myops.nn
import myops.onnx
import myops.ort
import onnxruntime
import pytest
import torch
from environments import Venv, environment
from myops.verify import make_golden

RELEASE = "1.20.1"
FILES = {"golden": "golden.npz", "model": "model.onnx", "plugin": "plugin.so"}


@pytest.fixture(scope="module")
def server(torch_free: Callable[[str], Venv]) -> Venv:
    venv = torch_free(RELEASE)
    venv.install("rich", "typer")  # which our wheel depends on
    return venv


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What goes to the server."""
    folder = tmp_path_factory.mktemp("sent")
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 32), myops.nn.Swish(1.702), torch.nn.Linear(32, 4), myops.nn.Mish()
    )
    x = torch.randn(2, 8)
    path = folder / FILES["model"]
    myops.onnx.export(model, (x,), path, dynamic={"input": {0: "batch"}})
    shutil.copy(myops.ort.library_path(), folder / FILES["plugin"])
    make_golden(path, folder / FILES["golden"], model, dims={"batch": 64})
    return folder


def verify(venv: Venv, folder: Path) -> subprocess.CompletedProcess[str]:
    names = ("--golden", FILES["golden"], FILES["model"], "--plugin", FILES["plugin"], "--json")
    return subprocess.run(
        [venv.python.with_name("myops"), "verify", *names],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )


def test_all_is_well(server: Venv, sent: Path) -> None:
    server.check(
        "import importlib.util\n"
        "assert not any(map(importlib.util.find_spec, ('torch', 'onnx', 'onnxscript')))"
    )
    done = verify(server, sent)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["ok"]
    assert report["made"]["versions"]["onnxruntime"] == onnxruntime.__version__
    assert report["here"]["versions"]["onnxruntime"] == RELEASE
    assert "torch" in report["made"]["versions"]
    assert "torch" not in report["here"]["versions"]
    assert report["made"]["isa"] == report["here"]["isa"]
    (row,) = report["report"]["rows"]
    assert row["party"] == f"ORT {RELEASE} + plugin"
    assert 0 < row["comparison"]["max_abs"] < 1e-5


@pytest.mark.parametrize("kind", FILES)
def test_one_byte_changed(server: Venv, sent: Path, tmp_path: Path, kind: str) -> None:
    folder = Path(shutil.copytree(sent, tmp_path / "sent"))
    path = folder / FILES[kind]
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 4
    path.write_bytes(content)
    done = verify(server, folder)
    assert done.returncode == 1
    files = json.loads(done.stdout)["files"]
    (bad,) = (file for file in files if not file["ok"])
    assert (bad["kind"], bad["path"]) == (kind, FILES[kind])
    assert "damaged" in bad["text"]


def test_the_installed_plugin(server: Venv, sent: Path, tmp_path: Path) -> None:
    """Another build than the one sent may be used, and a damaged one may not."""
    files = ("--golden", FILES["golden"], FILES["model"])
    command = [server.python.with_name("myops"), "verify", *files]

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=sent, env=environment(), capture_output=True, text=True, check=False
        )

    assert run().returncode == 0
    plugin = Path(server.check("import myops.ort; print(myops.ort.library_path())").strip())
    content = plugin.read_bytes()
    try:
        plugin.write_bytes(content[:5000] + bytes([content[5000] ^ 1]) + content[5001:])
        done = run()
    finally:
        plugin.write_bytes(content)
    assert done.returncode == 1
    assert "the plugin was damaged or changed" in done.stderr


def test_what_needs_onnx_says_so(server: Venv, sent: Path) -> None:
    for arguments in (["verify", FILES["model"]], ["check"]):
        done = subprocess.run(
            [server.python.with_name("myops"), *arguments],
            cwd=sent,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        assert "onnx should be installed" in done.stderr
        assert "Traceback" not in done.stderr
