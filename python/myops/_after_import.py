# SPDX-License-Identifier: Apache-2.0
"""Doing something when, and if, somebody else imports a module: for registrations with packages
that take long to import and that most users of the operators never need."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


class _Hook(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one module the ordinary way and calls a function right after it has been executed."""

    def __init__(self, module_name: str, function: Callable[[ModuleType], None]) -> None:
        self._name = module_name
        self._function = function
        self._loader: Any = None

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._function(module)


def call_after_import(module_name: str, function: Callable[[ModuleType], None]) -> None:
    """Calls ``function(module)`` after ``module_name`` is imported; now if it already is."""
    module = sys.modules.get(module_name)
    if module is not None:
        function(module)
    else:
        sys.meta_path.insert(0, _Hook(module_name, function))
