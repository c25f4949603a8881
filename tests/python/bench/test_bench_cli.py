# SPDX-License-Identifier: Apache-2.0
"""``myops bench`` with models and sweeps; ``test_cli.py`` has the rest."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

from .test_models import made


@pytest.fixture
def run(tmp_path: Path, myops_command):
    made(tmp_path / "a.onnx")
    made(tmp_path / "b.onnx")

    return functools.partial(myops_command, "bench")


def test_two_models(run, tmp_path: Path) -> None:
    arguments = ("a.onnx", "b.onnx", "--dim", "n=512", "--runs", "2", "--no-memory")
    done = run(*arguments, "--plot", "new/m.svg", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert [row["model"] for row in report["rows"]] == ["a.onnx"] * 3 + ["b.onnx"] * 3
    assert report["rounds"] == 2 and report["warmup"] == 10
    assert "<svg" in (tmp_path / "new" / "m.svg").read_text()
    assert not list(tmp_path.rglob(".tmp*"))
    done = run("a.onnx", "--runs", "2", "--warmup", "1")
    assert "Speed of models" in done.stdout and "peak MB" in done.stdout


def test_sweep_of_an_operator(run) -> None:
    arguments = ("--op", "RMSNorm", "--size", "2048", "--runs", "1", "--warmup", "1")
    done = run(*arguments, "--threads", "1,2", "--no-compile")
    assert done.returncode == 0, done.stderr
    assert "intra_op_num_threads" in done.stdout
    assert "F.rms_norm" in done.stdout
    assert "No row torch.compile" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("a.onnx", "--op", "Swish"), 2, "a model should come without --op"),
        (("--dim", "n=2"), 2, "a benchmark of operators should come without --inputs"),
        (("a.onnx", "--threads", "two"), 2, "threads should be at least 1"),
        (("a.onnx", "--dim", "m=2"), 2, "dims should name symbolic dims"),
        (("none.onnx",), 1, "the model file should exist"),
        (("a.onnx", "--runs", "0"), 2, "rounds and threads of at least 1"),
        (("a.onnx", "--plot", "m.txt"), 2, "--plot should end in one of"),
        (("a.onnx", "--plugin", "none.so"), 1, "the plugin should be a file"),
    ],
)
def test_errors(run, arguments, code: int, message: str) -> None:
    done = run(*arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
