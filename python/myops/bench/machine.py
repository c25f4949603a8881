# SPDX-License-Identifier: Apache-2.0
"""Where a figure was measured: without it, it means nothing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

from myops import _build_info


def cpu_model() -> str:
    """The processor's name as the kernel knows it."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Model"):
                return value.strip()
    return platform.processor() or platform.machine()


def describe() -> dict[str, str | int]:
    """Processor, usable cores, system, and the versions of what takes part."""
    found: dict[str, str | int] = {
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "isa": _build_info.isa(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "myops": _build_info.version,
    }
    for package in ("torch", "onnx", "onnxruntime", "numpy"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
