# SPDX-License-Identifier: Apache-2.0
"""Where the native libraries are, and loading the torch one.

They lie beside ``_build_info`` in every kind of installation (wheel, editable, sdist), so that
module's own place is the one thing to ask.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

from myops import _build_info
from myops._errors import LibraryError, MissingPackageError

_FOLDER = Path(_build_info.__file__).parent / "lib"

REBUILD = "Reinstall myops in this environment: pip install --force-reinstall --no-deps ."


def ort_library() -> Path:
    """Path of ``libmyops_ort.so``.

    Raises:
        LibraryError: this build does not have it.
    """
    path = _FOLDER / "libmyops_ort.so"
    if not path.is_file():
        raise LibraryError(
            "myops.ort",
            "the plugin should be installed beside the package",
            f"no file {path}",
            "Install myops with MYOPS_BUILD_ORT=ON",
        )
    return path


def torch_library() -> Path:
    """Path of ``libmyops.so``.

    Raises:
        LibraryError: this build was made without torch.
    """
    path = _FOLDER / "libmyops.so"
    if not path.is_file():
        raise LibraryError(
            "myops.torch",
            "the torch operators need a build made where torch is installed",
            f"a build without the torch library ({path} does not exist)",
            "Install torch, then " + REBUILD[0].lower() + REBUILD[1:],
        )
    return path


@functools.cache
def load_torch_library() -> Path:
    """Registers the operators with torch, once per process.

    Raises:
        MissingPackageError: torch is not installed.
        LibraryError: the library is missing, was built for another torch, or another copy is
            already loaded.
    """
    _torch()  # its absence before that of our library
    path = torch_library()
    _load(path, f"torch {_build_info.torch_version}", REBUILD)
    return path


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingPackageError(
            "myops.torch",
            "torch should be installed",
            f"{type(error).__name__}: {error}",
            "Run: pip install 'myops[train]'",
        ) from error
    return torch


@functools.cache
def load_operators(path: Path) -> None:
    """Registers another package's operators with torch, once per process.

    Raises:
        MissingPackageError: torch is not installed.
        LibraryError: as for ``load_torch_library``.
    """
    _load(path, "the torch", "Reinstall the package that it belongs to in this environment")


def _load(path: Path, built_for: str, rebuild: str) -> None:
    torch = _torch()
    try:
        torch.ops.load_library(str(path))
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise LibraryError(
            "myops.torch",
            f"{path.name} should load into {built_for}, for which it was built",
            f"torch {torch.__version__}: {error}",
            rebuild,
        ) from error
    library.myops_torch_conflict.restype = ctypes.c_char_p
    conflict = library.myops_torch_conflict().decode()
    if conflict:
        raise _Conflict(conflict)


class _Conflict(LibraryError):
    def __init__(self, message: str) -> None:
        Exception.__init__(self, " ".join(message.split()))
