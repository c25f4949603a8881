# SPDX-License-Identifier: Apache-2.0
"""Broken things, really built: shared libraries, and the facts of a healthy machine."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from myops.doctor import Facts, Finding
from myops.doctor.cuda import Driver, Gpu, Nvcc

ENTRY = "void* RegisterCustomOps(void* options, const void* base) { return 0; }\n"

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")

HEALTHY = Facts(
    packages={"torch": "2.13.0+cu130", "onnx": "1.23.2", "onnxruntime": None, "pyelftools": "0.33"},
    ort_packages={"onnxruntime-gpu": "1.32.0"},
    providers=("CUDAExecutionProvider", "CPUExecutionProvider"),
    built_for_torch="2.13.0",
    torch_cuda="13.0",
    torch_cxx11_abi=True,
    driver=Driver((13, 0), (Gpu("H200", (9, 0)),)),
    nvidia_hardware=True,
    nvcc=Nvcc((13, 0), 15, (12, 2, 0)),
    processors=8,
    omp_threads=4,
)


def facts(**changes: object) -> Facts:
    """The healthy machine with something else."""
    return replace(HEALTHY, **changes)


def ids(findings: Iterable[Finding]) -> list[str]:
    return [finding.id for finding in findings]


def build(folder: Path, name: str, source: str, *flags: object, suffix: str = "c") -> Path:
    """A shared library, with the system's compiler."""
    file, target = folder / f"{Path(name).stem}.{suffix}", folder / name
    file.write_text(source)
    compiler = "c++" if suffix == "cc" else "cc"
    command = [compiler, "-shared", "-fPIC", "-o", target, file, *flags]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target
