# SPDX-License-Identifier: Apache-2.0
"""Gathers the facts. Imports neither torch nor onnxruntime: both may be broken."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import re
from importlib import metadata
from pathlib import Path

from myops import __version__, _build_info
from myops.doctor import cuda, trial
from myops.doctor.environment import Facts

PACKAGES = ("numpy", "torch", "onnx", "onnxscript", "onnxruntime", "pyelftools")


def gather() -> Facts:
    """What there is on this machine."""
    ort_packages = onnxruntime_packages()
    runtime = trial.runtime() if ort_packages else trial.Result()
    folder = torch_folder()
    return Facts(
        myops=__version__,
        python=platform.python_version(),
        platform=platform.platform(),
        packages={name: _version(name) for name in PACKAGES},
        ort_packages=ort_packages,
        ort_problem=runtime.problem,
        providers=tuple(runtime.providers) or None,
        built_for_torch=_build_info.torch_version,
        torch_cuda=torch_cuda(folder),
        torch_cxx11_abi=torch_cxx11_abi(folder),
        torch_folder=None if folder is None else str(folder),
        driver=cuda.driver(),
        nvidia_hardware=cuda.hardware(),
        nvcc=cuda.nvcc(),
        processors=len(os.sched_getaffinity(0)),
        quota=quota(),
        omp_threads=omp_threads(),
        glibc=" ".join(platform.libc_ver()) if platform.libc_ver()[0] == "glibc" else "",
    )


def _version(name: str) -> str | None:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(name)
    return None


def onnxruntime_packages(path: list[str] | None = None) -> dict[str, str]:
    """The distributions that install the module ``onnxruntime``, with their versions.

    Args:
        path: where to look; ``sys.path`` if None.
    """
    found = {}
    for package in metadata.distributions() if path is None else metadata.distributions(path=path):
        name = (package.metadata["Name"] or "").lower().replace("_", "-")
        if name.startswith(("onnxruntime", "ort-")) and any(
            file.parts[:2] == ("onnxruntime", "capi") for file in package.files or ()
        ):
            found[name] = package.version
    return dict(sorted(found.items()))


def torch_folder() -> Path | None:
    """Folder of torch's libraries, or None where torch is not installed."""
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "lib"
    return folder if folder.is_dir() else None


def torch_cuda(folder: Path | None) -> str | None:
    """The CUDA release in ``torch/version.py``; None for a CPU build."""
    if folder is None:
        return None
    with contextlib.suppress(OSError):
        text = (folder.parent / "version.py").read_text()
        if found := re.search(r"^cuda\b[^=\n]*= *['\"]([\d.]+)", text, re.M):
            return found[1]
    return None


def torch_cxx11_abi(folder: Path | None) -> bool | None:
    """_GLIBCXX_USE_CXX11_ABI of torch, from the names that libc10.so exports."""
    if folder is None:
        return None
    try:
        from myops.doctor.elf import UNREADABLE, Elf
    except ImportError:
        return None
    with contextlib.suppress(*UNREADABLE), Elf(folder / "libc10.so") as library:
        return library.mentions_cxx11
    return None


def quota(root: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Processors that the control group's quota is worth (version 2, then 1)."""
    with contextlib.suppress(OSError, ValueError):
        limit, period = (root / "cpu.max").read_text().split()
        return int(limit) / int(period)
    with contextlib.suppress(OSError, ValueError):
        limit = (root / "cpu" / "cpu.cfs_quota_us").read_text()
        period = (root / "cpu" / "cpu.cfs_period_us").read_text()
        return int(limit) / int(period) if int(limit) > 0 else None
    return None


def omp_threads() -> int | None:
    """OMP_NUM_THREADS; of a list, the outermost level's."""
    text = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(text) if text.isdigit() else None
