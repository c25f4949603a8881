# SPDX-License-Identifier: Apache-2.0
"""``myops profile``."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
import pytest

from . import control_flow


@pytest.fixture
def run(tmp_path: Path, myops_command):
    control_flow.saved(tmp_path)
    np.savez(tmp_path / "x.npz", **control_flow.inputs())

    return functools.partial(myops_command, "profile")


def test_tables(run, tmp_path: Path) -> None:
    done = run("flow.onnx", "--inputs", "x.npz", "--runs", "2", "--threads", "1")
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert "Kernels of myops: 4 myops::Swish on CPU" in text
    assert "Memcpy between devices: 0 a run." in text
    assert "Trace: flow.trace.json. Open https://ui.perfetto.dev" in text
    assert json.loads((tmp_path / "flow.trace.json").read_text())


def test_json(run, tmp_path: Path) -> None:
    arguments = ("flow.onnx", "--dim", "N=7", "--no-plugin", "--runs", "2", "--trace", "t.json")
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["inputs"]["x"] == "float32[7]"
    assert found["trace"] == "t.json" and (tmp_path / "t.json").is_file()
    assert found["plugin"] is False
    assert not any(node["ours"] for node in found["nodes"])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("none.onnx",), 1, "the model file should exist"),
        (("flow.onnx", "--dim", "M=2"), 2, "dims should name symbolic dims"),
        (("flow.onnx", "--runs", "0"), 2, "runs"),
        (("flow.onnx", "--plugin", "a.so", "--no-plugin"), 2, "exclude each other"),
        (("flow.onnx", "--plugin", "a.so"), 1, "the plugin should be a file"),
        (("flow.onnx", "--level", "most"), 2, "graph_optimization_level should be one of"),
        (("flow.onnx", "--provider", "NoSuchProvider"), 2, "providers should be among"),
    ],
)
def test_errors(run, tmp_path: Path, arguments, code: int, message: str) -> None:
    done = run(*arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("*.json"))
