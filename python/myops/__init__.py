# SPDX-License-Identifier: Apache-2.0
"""One operator, written once, from training to deployment.

``import myops`` needs numpy only. The submodules import what they need when they are used:

* ``myops.functional``, ``myops.nn``: the operators in PyTorch
* ``myops.swap``: ours in the place of torch's modules
* ``myops.onnx``: export to ONNX
* ``myops.ort``: ONNX Runtime sessions with the plugin
* ``myops.verify``: do all layers agree?
* ``myops.doctor``: why does it not work?
* ``myops.pack``: a model as a folder that runs without us

``myops.register`` adds operators of another package to all of them.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from myops._build_info import version as __version__

_SUBMODULES = (
    "bench",
    "demo",
    "doctor",
    "functional",
    "nn",
    "onnx",
    "ort",
    "pack",
    "spec",
    "swap",
    "verify",
)

__all__ = ["__version__", "cmake_dir", "register", *_SUBMODULES]


def __getattr__(name: str) -> Any:
    if name == "register":
        from myops.registry import register

        return register
    if name in _SUBMODULES:
        return importlib.import_module(f"myops.{name}")
    raise AttributeError(f"module 'myops' has no attribute {name!r}")


def cmake_dir() -> str:
    """The folder for CMake's ``find_package(myops)``, which gives ``myops_add_operator_library``.

    Raises:
        LibraryError: this installation is without it: it is in wheels and editable installations.
    """
    from myops import _build_info
    from myops._errors import LibraryError

    folder = Path(_build_info.__file__).parent / "share" / "cmake"
    if not folder.is_dir():
        raise LibraryError(
            "myops",
            "the package should be installed with the sources of its drivers",
            f"no folder {folder}",
            "Reinstall it: pip install --force-reinstall --no-deps .",
        )
    return str(folder)


def __dir__() -> list[str]:
    return sorted(__all__)
