# SPDX-License-Identifier: Apache-2.0
"""``myops info``."""

from __future__ import annotations

import platform

from rich.markup import escape
from rich.table import Table

from myops import __version__, _build_info, _fatbin
from myops._errors import MyopsError
from myops.cli.common import Json, print_json, stdout


def versions() -> dict[str, str]:
    from importlib import metadata

    found = {}
    for name in ("torch", "onnx", "onnxscript", "onnxruntime", "onnxruntime-gpu", "numpy"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def info(as_json: Json = False) -> None:
    """What is installed: build, libraries, operators, versions of the neighbours."""
    from myops import _library

    libraries, architectures = {}, {}
    for name, find in (("torch", _library.torch_library), ("ort", _library.ort_library)):
        try:
            path = find()
        except MyopsError as error:
            libraries[name] = str(error)
        else:
            libraries[name] = str(path)
            architectures[name] = " ".join(_fatbin.architectures(path)) or None
    data = {
        "myops": __version__,
        "python": platform.python_version(),
        "compiler": _build_info.compiler,
        "built_for_torch": _build_info.torch_version or None,
        "ort_api_version": _build_info.ort_api_version or None,
        "cuda": _build_info.cuda_compiler or "built without CUDA",
        "cuda_architectures": architectures,
        "isa": _build_info.isa(),
        "isas": _build_info.isas(),
        "libraries": libraries,
        "versions": versions(),
        "operators": _build_info.ops(),
        "dtypes": _build_info.dtypes,
    }
    if as_json:
        print_json(data)
        return
    table = Table(show_header=False, box=None)
    for key, value in data.items():
        if key == "operators":
            value = ", ".join(
                f"{op['name']}({', '.join(f'{k}={v:g}' for k, v in op['attributes'].items())})"
                for op in _build_info.ops()
            )
        elif isinstance(value, dict):
            value = "\n".join(f"{k} {v}" for k, v in value.items())
        elif isinstance(value, list):
            value = ", ".join(map(str, value))
        table.add_row(f"[bold]{key.replace('_', ' ')}[/]", escape(str(value)))
    stdout.print(table)
