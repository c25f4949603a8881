# SPDX-License-Identifier: Apache-2.0
"""The reader of embedded CUDA architectures against what nvcc was told."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from myops import _build_info, _fatbin, _library

SOURCE = """
__global__ void scale(float* x) { x[threadIdx.x] *= 1.5f; }
void f%d() { scale<<<1, 1>>>(0); }
"""


def _compile(folder: Path, *flags: str, files: int = 1) -> Path:
    sources = [folder / f"{index}.cu" for index in range(files)]
    for index, source in enumerate(sources):
        source.write_text(SOURCE.replace("scale", f"scale{index}") % index)
    target = folder / "l.so"
    command = ["nvcc", "-shared", "-Xcompiler", "-fPIC", *flags, "-o", target, *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
@pytest.mark.parametrize(
    ("flags", "codes", "expected"),
    [
        (
            ["--compress-mode=none"],
            ["arch=compute_80,code=sm_80", "arch=compute_90,code=[sm_90,compute_90]"],
            ["sm_80", "sm_90", "compute_90"],
        ),
        (
            ["--compress-mode=size"],
            ["arch=compute_90a,code=sm_90a", "arch=compute_100f,code=[sm_100f,compute_100f]"],
            ["sm_90a", "sm_100f", "compute_100f"],
        ),
        ([], ["arch=compute_75,code=compute_75"], ["compute_75"]),
    ],
)
def test_what_nvcc_was_told(tmp_path, flags, codes, expected):
    """Two translation units, so several fat binaries; with and without compressed payload."""
    told = [text for code in codes for text in ("-gencode", code)]
    library = _compile(tmp_path, *flags, *told, files=2)
    assert _fatbin.architectures(library) == expected


@pytest.mark.parametrize("library", [_library.ort_library, _library.torch_library])
def test_libraries_hold_what_the_build_was_asked_for(library):
    asked = set()
    for entry in _build_info.cuda_architectures.split():
        number, _, kind = entry.partition("-")
        asked |= {f"sm_{number}"} if kind != "virtual" else set()
        asked |= {f"compute_{number}"} if kind != "real" else set()
    assert set(_fatbin.architectures(library())) == asked


def test_file_without_cuda():
    assert _fatbin.architectures(_build_info.__file__) == []


@given(st.binary(max_size=300))
def test_any_bytes_end(data):
    """Damaged sections give nothing or something, but no exception and no endless loop."""
    for prefix in (b"", struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 2**63), b"\x50\xed\x55\xba"):
        for name in _fatbin._entries(prefix + data):
            assert name.startswith(("sm_", "compute_"))


@pytest.mark.parametrize(
    ("names", "capability", "expected"),
    [
        (["sm_80"], (8, 0), "native"),
        (["sm_80"], (8, 9), "native"),
        (["sm_86"], (8, 0), ""),
        (["sm_80"], (9, 0), ""),
        (["sm_80", "compute_80"], (9, 0), "jit"),
        (["compute_90"], (8, 9), ""),
        (["sm_90a", "compute_90a"], (9, 0), "native"),
        (["sm_90a", "compute_90a"], (10, 0), ""),
        (["compute_90a"], (9, 0), "jit"),
        (["sm_100a"], (10, 3), ""),
        (["sm_100f"], (10, 3), "native"),
        (["compute_100f"], (12, 0), ""),
        (["sm_120"], (12, 1), "native"),
        ([], (9, 0), ""),
    ],
)
def test_which_gpu_runs_what(names, capability, expected):
    assert _fatbin.runs_on(names, capability) == expected
