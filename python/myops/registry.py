# SPDX-License-Identifier: Apache-2.0
"""Operators of other packages, built with ``myops_add_operator_library``, beside our own."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from myops._after_import import call_after_import
from myops._errors import LibraryError, UsageError
from myops.opspec import DOMAIN, OpSpec, check_namespace
from myops.spec import SPECS

WHERE = "myops.register"

_folders: dict[str, Path] = {}


def torch_library(namespace: str) -> Path | None:
    """Path of ``lib<namespace>.so`` of a registered namespace; None in a build without torch."""
    path = _folders[namespace] / f"lib{namespace}.so"
    return path if path.is_file() else None


def in_torch(spec: OpSpec) -> bool:
    """Whether torch has the operator once ``myops.functional`` is imported: another package may
    have a plugin only."""
    return spec.namespace == DOMAIN or torch_library(spec.namespace) is not None


def plugins() -> Iterator[Path]:
    """The ONNX Runtime plugins of the registered namespaces."""
    for namespace, folder in _folders.items():
        path = folder / f"lib{namespace}_ort.so"
        if path.is_file():
            yield path


def plugins_of(namespaces: Iterable[str]) -> list[Path]:
    """Those of ``plugins`` that are for these namespaces."""
    files = {f"lib{namespace}_ort.so" for namespace in namespaces}
    return [path for path in plugins() if path.name in files]


def register(spec: OpSpec, folder: str | os.PathLike[str]) -> None:
    """Makes an operator of another package known to everything here: ``myops.functional`` and
    ``myops.nn`` get it under its names, exports write it, sessions load its plugin beside ours,
    ``verify``, ``inject`` and ``bench`` include it.

    Args:
        spec: the operator; ``spec.namespace`` is its package's own.
        folder: where ``lib<namespace>.so`` and ``lib<namespace>_ort.so`` are. One of the two may be
            missing.

    Registering the same operator again does nothing. Libraries are loaded when they are needed.

    Raises:
        UsageError: the namespace is reserved, or another operator has the name.
        LibraryError: the folder has none of the libraries.
    """
    check_namespace(spec.namespace, WHERE)
    path = Path(folder).resolve()
    namespace = spec.namespace
    if not any((path / f"lib{namespace}{end}.so").is_file() for end in ("", "_ort")):
        raise LibraryError(
            WHERE,
            f"the folder should hold lib{namespace}.so or lib{namespace}_ort.so",
            f"neither in {path}",
            "Build them with myops_add_operator_library, and pass their folder",
        )
    if _folders.get(namespace, path) != path:
        raise UsageError(
            WHERE,
            f"all operators of {namespace!r} should come from one folder",
            f"{_folders[namespace]} and {path}",
            "Give one of the packages another namespace",
        )
    for other in SPECS:
        if (other.namespace, other.name, other.torch_name) == (
            namespace,
            spec.name,
            spec.torch_name,
        ):
            return
        if spec.name == other.name or spec.torch_name == other.torch_name:
            raise UsageError(
                WHERE,
                "the name of an operator should be new",
                f"{namespace}::{spec.name}, beside {other.namespace}::{other.name}",
                "Rename the operator",
            )
    _folders[namespace] = path
    SPECS.add(spec)
    if torch_library(namespace) is not None:
        for module in ("myops.functional", "myops.nn"):
            call_after_import(module, lambda loaded: loaded.adopt(spec))


def register_installed() -> None:
    """Imports the installed packages that name themselves in the entry point group
    ``myops.operators``, which register their operators. For the command line.

    Raises:
        LibraryError: one cannot be imported; the others are.
    """
    failure: LibraryError | None = None
    for entry in importlib.metadata.entry_points(group="myops.operators"):
        try:
            entry.load()
        except Exception as error:
            failure = failure or LibraryError(
                WHERE,
                f"the installed package {entry.name!r} should register its operators",
                f"{type(error).__name__}: {error}",
                f"Repair it, or run: pip uninstall {entry.dist.name if entry.dist else entry.name}",
            )
    if failure is not None:
        raise failure


__all__ = [
    "DOMAIN",
    "in_torch",
    "plugins",
    "plugins_of",
    "register",
    "register_installed",
    "torch_library",
]
