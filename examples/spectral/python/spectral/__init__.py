# SPDX-License-Identifier: Apache-2.0
"""Operators for PyTorch, ONNX and ONNX Runtime: importing this makes myops know them."""

from __future__ import annotations

from pathlib import Path

import myops

from spectral.spec import SPECS

# An editable installation has two folders: the sources', and that of the libraries.
_folders = [Path(folder) / "lib" for folder in __path__]
for _spec in SPECS:
    myops.register(_spec, next(filter(Path.is_dir, _folders), _folders[0]))

__all__ = ["SPECS"]
