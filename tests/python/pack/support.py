# SPDX-License-Identifier: Apache-2.0
"""Models to pack, and the scripts of a bundle run as a target runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from myops.onnx import add_functions
from myops.spec import ELEMENTWISE, OpSpec
from onnx import TensorProto, helper, numpy_helper

from ..ort.support import OURS, info, node

SPEC: OpSpec = next(spec for spec in ELEMENTWISE if len(spec.inputs) == 1 and spec.attributes)

# A target has neither us nor what we build with.
AS_ON_A_TARGET = """
import runpy, sys
for name in ("myops", "onnx", "torch", "onnxscript", "rich", "typer"):
    sys.modules[name] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def network(portable: bool = True, weight: np.ndarray | None = None) -> onnx.ModelProto:
    """A Gemm with one of our operators behind it: x of [batch, 8], y of [batch, 4]."""
    rng = np.random.default_rng(1)
    if weight is None:
        weight = rng.standard_normal((8, 4)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "w"], ["h"], "gemm"),
            node(SPEC, "h", "y", **SPEC.defaults()),
        ],
        "network",
        [info("x", shape=("batch", 8))],
        [info("y", shape=("batch", 4))],
        [numpy_helper.from_array(weight, "w")],
    )
    imports = [helper.make_opsetid("", 18), *(helper.make_opsetid(*entry) for entry in OURS)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    if portable:
        add_functions(model)
    return model


def plain() -> onnx.ModelProto:
    """A model of standard operators, with an integer output beside."""
    graph = helper.make_graph(
        [
            helper.make_node("Tanh", ["x"], ["y"], "tanh"),
            helper.make_node("ArgMax", ["x"], ["best"], "argmax", axis=1, keepdims=0),
        ],
        "plain",
        [info("x", shape=("batch", 3))],
        [info("y", shape=("batch", 3)), info("best", TensorProto.INT64, ("batch",))],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def save(model: onnx.ModelProto, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(path))
    return path


def script(path: Path, *arguments: object, before: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a bundle's script where myops cannot be imported."""
    command = [sys.executable, "-c", before + AS_ON_A_TARGET, str(path), *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, cwd="/", check=False
    )


def check(bundle: Path, *arguments: object, before: str = "") -> tuple[int, list[dict[str, Any]]]:
    """Exit code and steps of a bundle's check.py."""
    done = script(bundle / "check.py", "--json", *arguments, before=before)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert report["ok"] == (done.returncode == 0)
    return done.returncode, report["steps"]


def failed(steps: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(step["step"], step["text"]) for step in steps if not step["ok"]]


def flip(path: Path, offset: int = -1, bit: int = 1) -> None:
    """Flips one bit of a file, in its middle by default."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if offset < 0 else offset] ^= bit
    path.write_bytes(content)
