# SPDX-License-Identifier: Apache-2.0
"""These tests need a GPU, a torch with CUDA, and a build with MYOPS_CUDA=ON: ``make test-gpu``."""

from __future__ import annotations

import json

import pytest
import torch
from myops import _build_info

if not torch.cuda.is_available():
    raise RuntimeError(
        "[test-gpu] torch should see a CUDA device. Received none. Run this on a GPU machine."
    )
if _build_info.cuda_message():
    raise RuntimeError(_build_info.cuda_message())


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Writes what was run, and on what, to ``out/test-gpu.json``."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    counts = {
        outcome: [report.nodeid for report in reporter.stats.get(outcome, [])]
        for outcome in ("passed", "failed", "error", "skipped")
    }
    data = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "myops": {
            "cuda": _build_info.cuda_compiler,
            "architectures": _build_info.cuda_architectures,
        },
        "counts": {outcome: len(names) for outcome, names in counts.items()},
        "not_passed": {k: names for k, names in counts.items() if k != "passed" and names},
        "exit_status": int(exitstatus),
    }
    output = session.config.rootpath / "out" / "test-gpu.json"
    output.parent.mkdir(exist_ok=True)
    output.write_text(json.dumps(data, indent=1) + "\n")
