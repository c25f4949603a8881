# SPDX-License-Identifier: Apache-2.0
"""The command line: what it prints, JSON, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from myops import _build_info

FACTORY = """
import torch, myops.nn

def make():
    torch.manual_seed(0)
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.act = torch.nn.Linear(8, 8), myops.nn.Swish(1.5)
        def forward(self, x):
            return self.act(self.inner(x))
    return Model()

def nothing():
    return 1
"""


@pytest.fixture
def run(tmp_path: Path, myops_command):
    (tmp_path / "factory.py").write_text(FACTORY)

    return myops_command


EXPORT = ("export", "factory:make", "--input", "x=float32[2,8]", "-o", "m.onnx")


def test_info(run) -> None:
    assert _build_info.compiler in run("info").stdout
    data = json.loads(run("info", "--json").stdout)
    assert data["operators"] == _build_info.ops()
    assert data["libraries"]["ort"].endswith("libmyops_ort.so")


def test_export_then_verify(run, tmp_path: Path) -> None:
    done = run(*EXPORT, "--dynamic", "x.0=batch", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["nodes"] == ["Gemm", "myops::Swish"]
    assert (tmp_path / "m.onnx").is_file()
    done = run("verify", "m.onnx", "--torch", "factory:make", "--dim", "batch=7", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ok"] is True
    assert "All our layers agree" in run("verify", "m.onnx", "--torch", "factory:make").stdout


def test_verify_that_fails_exits_with_1(run) -> None:
    assert run(*EXPORT).returncode == 0
    done = run("verify", "m.onnx", "--torch", "factory:make", "--tolerance", "1e-12")
    assert done.returncode == 1
    assert "Not equal" in done.stdout


BENCH = ("bench", "--op", "Swish", "--size", "64", "--rounds", "1", "--no-compile")


def test_bench(run, tmp_path: Path) -> None:
    done = run(*BENCH, "--plot", "speed.svg", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert {row["op"] for row in report["rows"]} == {"Swish"}
    assert {row["elements"] for row in report["rows"]} == {64}
    assert report["rounds"] == 1
    assert "<svg" in (tmp_path / "speed.svg").read_text()
    assert {path.name for path in tmp_path.iterdir() if "speed" in path.name} == {"speed.svg"}
    done = run(*BENCH)
    assert "Speed: Swish, float32, 1 thread" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((*EXPORT, "--opset", "30"), 1, "the opset should be one the exporter delivers"),
        ((*EXPORT, "--mode", "best"), 2, "mode should be one of native, custom, portable"),
        ((*EXPORT, "--dynamic", "x0"), 2, "--dynamic has the form x.0=batch"),
        (("export", "factory:make", "--input", "x=float33[2]", "-o", "m.onnx"), 2, "--input has"),
        (("export", "factory:none", "--input", "x=float32[2]", "-o", "m.onnx"), 2, "importable"),
        (("export", "factory:nothing", "--input", "x=float32[2]", "-o", "m.onnx"), 2, "Module"),
        (("verify", "none.onnx"), 1, "the model file should exist"),
        ((*BENCH, "--plot", "speed.txt"), 2, "--plot should end in one of"),
        ((*BENCH, "--dtype", "int8"), 2, "dtypes should be among"),
        ((*BENCH, "--threads", "0"), 2, "threads should be at least 1"),
        (("unheard-of",), 2, "No such command"),
    ],
)
def test_errors(run, tmp_path: Path, arguments, code: int, message: str) -> None:
    done = run(*arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "m.onnx").exists()


def test_package_that_does_not_import_is_no_end(run, tmp_path: Path) -> None:
    about = tmp_path / "broken-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[myops.operators]\nbroken = not_there_at_all\n")
    done = run("info", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["operators"]
    assert "not_there_at_all" in done.stderr
    assert "pip uninstall broken" in done.stderr
