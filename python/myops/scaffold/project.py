# SPDX-License-Identifier: Apache-2.0
"""Operators in a project of their own, which uses the installed package only."""

from __future__ import annotations

import importlib.util
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import myops
from myops._errors import LibraryError, UsageError
from myops.opspec import check_namespace
from myops.scaffold.names import WHERE, Names, check_free, native_names
from myops.spec import SPECS

TEMPLATES = {"activation": "elementwise", "custom": "custom"}


@dataclass(frozen=True)
class Project:
    """What was written.

    Attributes:
        folder: of the project.
        files: relative to it.
        names: of its operator.
    """

    folder: Path
    files: tuple[str, ...]
    names: Names


def _filled_in(text: str, values: dict[str, str]) -> str:
    return re.sub(r"@(\w+)@", lambda found: values[found[1]], text)


def _files(folder: Path) -> dict[str, str]:
    """The templates by the path they are written to."""
    return {
        str(path.relative_to(folder)).removesuffix(".in").replace("gitignore", ".gitignore"): (
            path.read_text(encoding="utf-8")
        )
        for path in sorted(folder.rglob("*.in"))
    }


def _native_root() -> Path:
    """Where the drivers' sources are: in the installation, or in the checkout it runs from."""
    try:
        return Path(myops.cmake_dir()).parent
    except LibraryError:
        return Path(__file__).parents[3]


def _check_namespace(namespace: str) -> None:
    check_namespace(namespace, WHERE)
    module = importlib.util.find_spec(namespace)
    if namespace in sys.stdlib_module_names or (module is not None and module.origin is not None):
        raise UsageError(
            WHERE,
            "a namespace should not be the name of a module that is there",
            repr(namespace),
            "Choose another one, or uninstall that module",
        )
    if namespace in SPECS.namespaces():
        raise UsageError(WHERE, "a namespace should be new", repr(namespace), "Choose another one")


def new_project(
    name: str, kind: str, folder: Path, namespace: str, torch_name: str | None = None
) -> Project:
    """Writes a project that builds an operator of its own: an example of a formula, which runs and
    passes the project's tests as it is, to be replaced.

    Args:
        name: of the operator, in CamelCase.
        kind: "activation", or "custom" for a C++ function over whole tensors.
        folder: of the project; made, and empty if it exists.
        namespace: of the project's operators in torch, their domain in ONNX, and the name of its
            Python package.
        torch_name: snake_case; derived from ``name`` if None.

    Raises:
        UsageError: a name is reserved, taken or has another form; the folder holds something.
    """
    names = Names.parse(name, torch_name)
    _check_namespace(namespace)
    taken = native_names(_native_root())
    for spec in SPECS:
        taken |= dict.fromkeys((spec.name, spec.torch_name), f"an operator of {spec.namespace}")
    check_free(names, taken)
    if kind not in TEMPLATES:
        raise UsageError(
            WHERE, f"--project is for --kind {' or '.join(TEMPLATES)}", kind, "Choose one of these"
        )
    folder = folder.resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            WHERE, "the project's folder should be new, or empty", str(folder), "Name another one"
        )
    version = ".".join(myops.__version__.split(".")[:2])
    values = {
        "Name": names.onnx,
        "torch_name": names.torch,
        "CONSTANT": names.constant,
        "namespace": namespace,
        "version": version,
    }
    templates = Path(__file__).parent / "templates" / TEMPLATES[kind]
    texts = {
        _filled_in(path, values): _filled_in(text, values)
        for path, text in _files(templates).items()
    }
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
        staged = Path(temporary) / "project"
        for path, text in texts.items():
            (staged / path).parent.mkdir(parents=True, exist_ok=True)
            (staged / path).write_text(text, encoding="utf-8")
        staged.replace(folder)
    return Project(folder, tuple(texts), names)
