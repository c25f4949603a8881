# SPDX-License-Identifier: Apache-2.0
"""What there is of CUDA: the driver and its GPUs, nvcc and the compiler it works with."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_DRIVER = "libcuda.so.1"
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76  # CUdevice_attribute
_NVIDIA_VENDOR = "0x10de"


@dataclass(frozen=True)
class Gpu:
    """A GPU that the driver sees, with its compute capability."""

    name: str
    capability: tuple[int, int]


@dataclass(frozen=True)
class Driver:
    """The NVIDIA driver.

    Attributes:
        cuda: the CUDA release it serves; None where there is no driver.
        gpus: what it drives.
        problem: why it cannot be used; empty where it can.
    """

    cuda: tuple[int, int] | None = None
    gpus: tuple[Gpu, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Nvcc:
    """The CUDA compiler.

    Attributes:
        release: its CUDA release.
        newest_gcc: the newest major version of GCC that it accepts; None where unknown.
        host: the version of the GCC it would call; None where that is another compiler or none.
    """

    release: tuple[int, int]
    newest_gcc: int | None
    host: tuple[int, ...] | None


def driver(name: str = _DRIVER) -> Driver:
    """Asks the driver library; starts nothing on a GPU.

    Args:
        name: what to load it by.
    """
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        return Driver(problem=str(error))
    try:
        return _ask(library)
    except AttributeError as error:
        return Driver(problem=f"{name} is no CUDA driver: {error}")


def _ask(library: ctypes.CDLL) -> Driver:
    version, count = ctypes.c_int(), ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(version))
    cuda = (version.value // 1000, version.value % 1000 // 10)
    status = library.cuInit(0)
    if status:
        return Driver(cuda, problem=f"cuInit failed with error {status}")
    library.cuDeviceGetCount(ctypes.byref(count))
    return Driver(cuda, tuple(_gpu(library, index) for index in range(count.value)))


def _gpu(library: ctypes.CDLL, index: int) -> Gpu:
    device, value = ctypes.c_int(), ctypes.c_int()
    library.cuDeviceGet(ctypes.byref(device), index)
    capability = []
    for attribute in (_CAPABILITY_MAJOR, _CAPABILITY_MINOR):
        library.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        capability.append(value.value)
    name = ctypes.create_string_buffer(128)
    library.cuDeviceGetName(name, len(name), device)
    return Gpu(name.value.decode(errors="replace"), (capability[0], capability[1]))


def hardware(root: str = "/sys/bus/pci/devices") -> bool:
    """Whether an NVIDIA display or 3D controller is on the bus, with or without a driver."""
    for device in Path(root).glob("*"):
        with contextlib.suppress(OSError):
            vendor = (device / "vendor").read_text().strip()
            if vendor == _NVIDIA_VENDOR and (device / "class").read_text().startswith("0x03"):
                return True
    return False


def nvcc() -> Nvcc | None:
    """The nvcc on PATH, or None."""
    path = shutil.which("nvcc")
    if path is None:
        return None
    release = re.search(r"release (\d+)\.(\d+)", _output(path, "--version"))
    if release is None:
        return None
    return Nvcc((int(release[1]), int(release[2])), _newest_gcc(path), _host_compiler())


def _newest_gcc(path: str) -> int | None:
    """nvcc's own header holds the limit it enforces."""
    top = re.search(
        r"^#\$ TOP=(.*)$", _output(path, "--dryrun", "-E", "-x", "cu", os.devnull), re.M
    )
    for folder in ("include", "targets/x86_64-linux/include", "targets/sbsa-linux/include"):
        header = Path(top[1].strip() if top else Path(path).parent.parent) / folder
        with contextlib.suppress(OSError):
            text = (header / "crt" / "host_config.h").read_text(errors="replace")
            if limit := re.search(r"^#if __GNUC__ > (\d+)", text, re.M):
                return int(limit[1])
    return None


def _host_compiler() -> tuple[int, ...] | None:
    names = (os.environ.get("NVCC_CCBIN"), os.environ.get("CUDAHOSTCXX"), "g++")
    compiler = shutil.which(next(name for name in names if name))
    if compiler is None or "Free Software Foundation" not in _output(compiler, "--version"):
        return None
    text = _output(compiler, "-dumpfullversion", "-dumpversion").strip()
    return tuple(int(part) for part in re.findall(r"\d+", text)) or None


def _output(*command: str) -> str:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        return done.stdout + done.stderr
    return ""
