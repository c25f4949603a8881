# SPDX-License-Identifier: Apache-2.0
"""The examples run, and find what they say they find."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_transformer_block() -> None:
    command = [sys.executable, str(EXAMPLES / "transformer_block.py"), "--steps", "30", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout)
    assert {run["dtype"] for run in report["runs"]} == {"float32", "float64"}
    for run in report["runs"]:
        assert run["worst_difference"] <= run["tolerance"]
        assert run["last_loss"] < 0.8 * run["first_loss"]
    ours = [node for node in report["nodes"] if node.startswith("myops::")]
    names = ["RMSNorm", "AddRMSNorm", "SwiGLU", "AddRMSNorm", "Swish"]
    assert ours == [f"myops::{name}" for name in names]
    assert report["verify"]["ok"]
