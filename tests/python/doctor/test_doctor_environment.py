# SPDX-License-Identifier: Apache-2.0
"""What is wrong with the machine. Broken things are built: distributions, drivers, compilers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from myops.doctor import Wanted, cuda, environment, probe, trial
from myops.doctor.cuda import Driver, Gpu, Nvcc

from .support import HEALTHY, build, facts, ids


def _check(wanted: Wanted | None = None, **changes: object) -> list[str]:
    return ids(environment.check(facts(**changes), wanted or Wanted()))


def test_healthy():
    assert _check() == []
    assert _check(Wanted(("CUDAExecutionProvider",), 4)) == []
    assert _check(Wanted(("CPUExecutionProvider",))) == []


def test_this_machine_is_healthy():
    """It has what the tests need: torch, onnx, onnxruntime."""
    found = list(environment.check(probe.gather(), Wanted()))
    assert not [finding for finding in found if finding.counts]
    assert not [finding for finding in found if finding.id == "package-missing"]


@pytest.mark.parametrize("name", ["torch", "onnx", "onnxruntime"])
def test_missing_package_is_a_note(name):
    packages = {**HEALTHY.packages, name: None}
    ort_packages = {} if name == "onnxruntime" else HEALTHY.ort_packages
    found = list(environment.check(facts(packages=packages, ort_packages=ort_packages), Wanted()))
    assert ids(found) == ["package-missing"]
    assert found[0].subject == name
    assert not found[0].counts


@pytest.mark.parametrize(
    ("built", "found", "expected"),
    [
        ("2.13.0", "2.13.1+cpu", []),
        ("2.13.0", "2.14.1", ["torch-version-mismatch"]),
        ("2.13.0", "2.12.0+cu130", ["torch-version-mismatch"]),
        ("", "2.14.1", []),
        ("2.13.0", "2.10.0", ["torch-too-old"]),
        ("", "1.13.1", ["torch-too-old"]),
    ],
)
def test_release_of_torch(built, found, expected):
    packages = {**HEALTHY.packages, "torch": found}
    assert _check(built_for_torch=built, packages=packages) == expected


def _distribution(folder: Path, name: str, version: str, *files: str) -> None:
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))


def test_two_packages_of_onnxruntime(tmp_path):
    capi = "onnxruntime/capi/_pybind_state.py"
    _distribution(tmp_path, "onnxruntime", "1.32.0", capi)
    _distribution(tmp_path, "onnxruntime-extensions", "0.14", "onnxruntime_extensions/__init__.py")
    alone = probe.onnxruntime_packages([str(tmp_path)])
    assert alone == {"onnxruntime": "1.32.0"}
    assert _check(ort_packages=alone) == []
    _distribution(tmp_path, "onnxruntime-gpu", "1.31.0", capi)
    both = probe.onnxruntime_packages([str(tmp_path)])
    assert both == {"onnxruntime": "1.32.0", "onnxruntime-gpu": "1.31.0"}
    assert _check(ort_packages=both) == ["onnxruntime-twice"]


@pytest.mark.parametrize(
    ("version", "expected"),
    [("1.15.1", ["onnxruntime-too-old"]), ("1.8.0", ["onnxruntime-too-old"]), ("1.16.0", [])],
)
def test_old_onnxruntime(version, expected):
    assert _check(ort_packages={"onnxruntime": version}) == expected


def test_onnxruntime_that_does_not_import(tmp_path, monkeypatch):
    (tmp_path / "onnxruntime").mkdir()
    (tmp_path / "onnxruntime" / "__init__.py").write_text("raise ImportError('DLL is lost')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    result = trial.runtime()
    assert "DLL is lost" in result.problem
    assert _check(ort_problem=result.problem, providers=None) == ["onnxruntime-does-not-import"]


def test_absent_provider():
    available = trial.runtime().providers
    assert "CPUExecutionProvider" in available
    wanted = Wanted(("CPUExecutionProvider", "QNNExecutionProvider"))
    found = list(environment.check(facts(providers=available), wanted))
    assert ids(found) == ["provider-absent"]
    assert found[0].subject == "QNNExecutionProvider"


FAKE_DRIVER = """
#include <string.h>
int cuInit(unsigned flags) { return %d; }
int cuDriverGetVersion(int* version) { *version = 12080; return 0; }
int cuDeviceGetCount(int* count) { *count = 2; return 0; }
int cuDeviceGet(int* device, int index) { *device = index + 40; return 0; }
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (device != 40 && device != 41) return 101;
  *value = attribute == 75 ? 8 : attribute == 76 ? device - 31 : -1;
  return 0;
}
int cuDeviceGetName(char* name, int length, int device) {
  strncpy(name, device == 40 ? "First" : "Second", length);
  return 0;
}
"""


def test_driver(tmp_path):
    found = cuda.driver(str(build(tmp_path, "libcuda.so.1", FAKE_DRIVER % 0)))
    assert found == Driver((12, 8), (Gpu("First", (8, 9)), Gpu("Second", (8, 10))))


@pytest.mark.parametrize("broken", ["absent", "status", "other"])
def test_missing_driver(tmp_path, broken):
    if broken == "absent":
        name = "libnone.so.1"
    else:
        source = FAKE_DRIVER % 100 if broken == "status" else "int other(void) { return 0; }"
        name = str(build(tmp_path, "libcuda.so.1", source))
    driver = cuda.driver(name)
    assert driver.problem
    quiet = {"driver": driver, "torch_cuda": None, "ort_packages": {"onnxruntime": "1.32.0"}}
    assert _check(nvidia_hardware=False, **quiet) == []
    assert _check(nvidia_hardware=True, **quiet) == ["driver-missing"]
    wanted = Wanted(("CUDAExecutionProvider",))
    assert _check(wanted, nvidia_hardware=False, **quiet) == ["driver-missing"]
    quiet["ort_packages"] = {"onnxruntime-gpu": "1.32.0"}
    assert _check(nvidia_hardware=False, **quiet) == ["driver-missing"]


def test_hardware(tmp_path):
    def device(name: str, vendor: str, kind: str) -> None:
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(f"{vendor}\n")
        (tmp_path / name / "class").write_text(f"{kind}\n")

    device("0000:00:01.0", "0x8086", "0x030000")
    device("0000:00:02.0", "0x10de", "0x040300")  # a GPU's sound
    assert not cuda.hardware(str(tmp_path))
    device("0000:00:03.0", "0x10de", "0x030200")
    assert cuda.hardware(str(tmp_path))


@pytest.mark.parametrize(
    ("torch", "driver", "expected"),
    [
        ("13.0", (12, 8), ["driver-too-old"]),
        ("12.9", (12, 4), []),
        ("12.6", (13, 0), []),
        (None, (11, 8), []),
    ],
)
def test_old_driver(torch, driver, expected):
    assert _check(torch_cuda=torch, driver=Driver(driver), nvcc=None) == expected


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("gcc", "torch", "expected"),
    [
        ("15.2.0", "13.0", []),
        ("16.1.0", "13.0", ["nvcc-host-compiler"]),
        ("12.2.0", "12.6", ["nvcc-torch-cuda"]),
        ("12.2.0", None, []),
    ],
)
def test_compilers(tmp_path, monkeypatch, gcc, torch, expected):
    header = tmp_path / "cuda" / "include" / "crt" / "host_config.h"
    header.parent.mkdir(parents=True)
    header.write_text("#if __GNUC__ > 15\n\n#error -- unsupported GNU version!\n#endif\n")
    _script(
        tmp_path / "nvcc",
        'case "$1" in --version) echo "Cuda compilation tools, release 13.0, V13.0.88";;'
        f' *) echo "#$ TOP={tmp_path}/cuda" >&2;; esac',
    )
    _script(
        tmp_path / "g++",
        f'case "$1" in --version) echo "Copyright Free Software Foundation";; *) echo {gcc};; esac',
    )
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin:/bin")
    monkeypatch.delenv("NVCC_CCBIN", raising=False)
    monkeypatch.delenv("CUDAHOSTCXX", raising=False)
    found = cuda.nvcc()
    assert found == Nvcc((13, 0), 15, tuple(map(int, gcc.split("."))))
    assert _check(nvcc=found, torch_cuda=torch) == expected
    _script(tmp_path / "clang++", 'echo "clang version 20"')
    monkeypatch.setenv("CUDAHOSTCXX", str(tmp_path / "clang++"))
    assert cuda.nvcc() == Nvcc((13, 0), 15, None)
    monkeypatch.setenv("PATH", str(tmp_path / "cuda"))
    assert cuda.nvcc() is None


@pytest.mark.parametrize(
    ("processors", "quota", "openmp", "threads", "expected"),
    [
        (8, None, None, None, False),
        (8, None, 8, None, False),
        (8, None, 16, None, True),
        (8, None, None, 9, True),
        (8, None, 4, 4, False),
        (8, None, 6, 4, True),
        (8, None, 1, 8, False),
        (64, 2.0, None, None, True),
        (64, 2.0, None, 2, False),
        (2, 16.0, None, None, False),
    ],
)
def test_threads(processors, quota, openmp, threads, expected):
    changes = {"processors": processors, "quota": quota, "omp_threads": openmp}
    found = list(environment.check(facts(**changes), Wanted(threads=threads)))
    assert ids(found) == ["threads-oversubscribed"] * expected
    for number in (openmp, threads) if found and not quota else ():
        assert number is None or str(number) in found[0].evidence


def test_quota(tmp_path):
    assert probe.quota(tmp_path) is None
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
    assert probe.quota(tmp_path) is None
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("250000\n")
    assert probe.quota(tmp_path) == 2.5
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert probe.quota(tmp_path) == 1.5


@pytest.mark.parametrize(("text", "expected"), [("4", 4), ("4,2", 4), ("", None), ("all", None)])
def test_openmp_variable(monkeypatch, text, expected):
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    assert probe.omp_threads() == expected


def test_facts_of_torch_without_importing_it(run_python):
    """The three values that are asked for first, from its files; torch itself says the same."""
    done = run_python(
        """
        import sys
        from myops.doctor import probe
        facts = probe.gather()
        assert "torch" not in sys.modules and "onnxruntime" not in sys.modules
        import torch
        assert facts.packages["torch"] == torch.__version__
        assert facts.torch_cuda == torch.version.cuda
        assert facts.torch_cxx11_abi == torch.compiled_with_cxx11_abi()
        print("same")
        """
    )
    assert done.stdout.strip() == "same"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("cuda: Optional[str] = '12.8'", "12.8"),
        ("cuda = '13.0'", "13.0"),
        ("cuda: Optional[str] = None", None),
    ],
)
def test_cuda_release_of_torch(tmp_path, line, expected):
    (tmp_path / "lib").mkdir()
    (tmp_path / "version.py").write_text(f"__version__ = '2.13.0'\n{line}\nhip = '6.0'\n")
    assert probe.torch_cuda(tmp_path / "lib") == expected
