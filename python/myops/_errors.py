# SPDX-License-Identifier: Apache-2.0
"""Errors that tell the user what to do. The command line prints them as one line."""

from __future__ import annotations

import importlib.util


class MyopsError(Exception):
    """``[where] what should hold. Received what was found. Do this.``"""

    def __init__(self, where: str, rule: str, received: str, remedy: str) -> None:
        # Texts of others that come in as `received` may end in a full stop of their own.
        parts = (part.rstrip(". ") for part in (rule, received, remedy))
        super().__init__("[{}] {}. Received {}. {}.".format(where, *parts))


class LibraryError(MyopsError, RuntimeError):
    """A native library is missing, damaged or built for something else."""


class ModelError(MyopsError, ValueError):
    """An ONNX model is not what the operation needs."""


class ExportError(MyopsError, RuntimeError):
    """An export did not deliver what was asked for."""


class UsageError(MyopsError, ValueError):
    """An argument is not usable."""


class MissingPackageError(MyopsError, ImportError):
    """An optional dependency is not installed."""


def require(where: str, *packages: str, extra: str = "all") -> None:
    """Raises ``MissingPackageError`` for the first package that is not installed: to be called
    before the work that needs it late. ``extra`` of ours brings them."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise MissingPackageError(
                where,
                f"{package} should be installed",
                f"an environment without {package}",
                f"Run: pip install 'myops[{extra}]'",
            )
