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
"""

from __future__ import annotations

import importlib
from types import ModuleType

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

__all__ = ["__version__", *_SUBMODULES]


def __getattr__(name: str) -> ModuleType:
    if name in _SUBMODULES:
        return importlib.import_module(f"myops.{name}")
    raise AttributeError(f"module 'myops' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
