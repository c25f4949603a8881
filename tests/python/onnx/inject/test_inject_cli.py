# SPDX-License-Identifier: Apache-2.0
"""``myops inject`` as a user types it."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from .graphs import parse

BODY = "s = Sigmoid(x) y = Mul(x, s) n = Neg(y) h = HardSigmoid<alpha=0.16666667>(x) z = Mul(n, h)"


@pytest.fixture
def run(tmp_path: Path, myops_command):
    model = parse(BODY, "float[n,3] x", "float[n,3] z")
    for number, node in enumerate(model.graph.node):
        node.name = f"node{number}"
    onnx.save(model, tmp_path / "in.onnx")

    return functools.partial(myops_command, "inject")


def test_list(run, tmp_path: Path) -> None:
    done = run("in.onnx", "--list")
    assert done.returncode == 0, done.stderr
    assert "Found: 1 Swish" in done.stdout
    assert "node1" in done.stdout and "gate" in done.stdout
    data = json.loads(run("in.onnx", "--list", "--json").stdout)
    assert [c["decision"] for c in data["candidates"]] == ["found", "skipped"]
    assert [p.name for p in tmp_path.iterdir()] == ["in.onnx"]


def test_custom(run, tmp_path: Path) -> None:
    done = run("in.onnx", "-o", "out/o.onnx", "--target", "custom", "--dim", "n=4")
    assert done.returncode == 0, done.stderr
    assert "Wrote out/o.onnx: 1 rewritten" in done.stdout
    assert "rewritten to myops::Swish" in done.stdout
    assert "skipped because" in done.stdout
    data = json.loads(run("in.onnx", "-o", "o.onnx", "--target", "custom", "--json").stdout)
    assert data["rewritten"] == 1
    assert data["candidates"][0]["fate"] == "rewritten to myops::Swish"
    assert data["outputs"][0]["ok"] and data["pieces"][0]["ok"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.onnx", "o.onnx", "out"]


def test_auto_prints_what_was_tried(run) -> None:
    done = run("in.onnx", "-o", "o.onnx", "--threads", "1", "--seconds", "0.1", "--dim", "n=1")
    assert done.returncode == 0, done.stderr
    assert "original again" in done.stdout and "all custom" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("in.onnx",), 2, "there should be a file to write"),
        (("in.onnx", "-o", "in.onnx"), 2, "another file than the input"),
        (("in.onnx", "-o", "o.onnx", "--target", "best"), 2, "target should be one of"),
        (("in.onnx", "-o", "o.onnx", "--dim", "m=2"), 2, "dims should name"),
        (("none.onnx", "-o", "o.onnx"), 1, "the model file should exist"),
        (("in.onnx", "-o", "o.onnx", "--inputs", "no.npz"), 2, "inputs should be an .npz file"),
        (("in.onnx", "-o", "o.onnx", "--plugin", "no.so", "--target", "custom"), 1, "plugin"),
    ],
)
def test_errors(run, tmp_path: Path, arguments, code: int, message: str) -> None:
    done = run(*arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert message in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "o.onnx").exists()


def test_without_torch(run, tmp_path: Path) -> None:
    """A server has no torch."""
    code = (
        "import sys; sys.modules['torch'] = None; from myops.cli import main; "
        "sys.argv = ['myops', 'inject', 'in.onnx', '-o', 'o.onnx', '--target', 'custom']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "o.onnx").is_file()
