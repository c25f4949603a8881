# SPDX-License-Identifier: Apache-2.0
"""What the commands share: consoles, options of the same name and meaning, readers of arguments."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from myops._errors import UsageError, require

stdout = Console()
stderr = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Plugin = Annotated[
    Path | None, typer.Option(help="Another libmyops_ort.so than the installed one.")
]
Dims = Annotated[
    list[str] | None,
    typer.Option("--dim", help="Size of an open dim: symbol=size, or input.axis=size. Repeatable."),
]

Inputs = Annotated[Path | None, typer.Option(help=".npz file with the model's inputs.")]


def print_json(data: Any) -> None:
    """Writes data to standard output, where a machine reads it."""
    sys.stdout.write(json.dumps(data, indent=2, default=str) + "\n")


def load_factory(target: str) -> Any:
    """The torch module that ``package.module:factory`` names: a module or a callable that makes
    one.

    Raises:
        UsageError: it cannot be imported, or is neither.
        MissingPackageError: torch is not installed.
    """
    where = "myops"
    require(where, "torch", extra="train")
    import torch

    module_name, separator, attribute = target.partition(":")
    if not separator or not attribute:
        raise UsageError(where, "a model is named package.module:factory", target, "Name one")
    sys.path.insert(0, str(Path.cwd()))
    try:
        value = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise UsageError(
            where,
            "package.module:factory should be importable",
            f"{target}: {error}",
            "Run in the folder that holds it, or install it",
        ) from error
    model = value if isinstance(value, torch.nn.Module) else value()
    if not isinstance(model, torch.nn.Module):
        raise UsageError(
            where,
            f"{target} should give a torch.nn.Module",
            type(model).__name__,
            "Return the module",
        )
    return model


def parse_dims(texts: list[str]) -> dict[str, int]:
    """``batch=4`` as ``{"batch": 4}``.

    Raises:
        UsageError: a text has another form.
    """
    result = {}
    for text in texts:
        name, _, size = text.partition("=")
        if not name or not size.isdigit():
            raise UsageError("myops", "--dim has the form batch=4", repr(text), "Correct it")
        result[name] = int(size)
    return result
