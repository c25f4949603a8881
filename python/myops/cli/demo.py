# SPDX-License-Identifier: Apache-2.0
"""``myops demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from myops.cli.common import Json, print_json, stderr, stdout


def demo(
    out: Annotated[Path, typer.Option(help="Folder for model, report and pictures.")],
    quick: Annotated[bool, typer.Option(help="Fewer benchmark rounds.")] = False,
    as_json: Json = False,
) -> None:
    """Trains a network, exports it in every way, runs, verifies and measures it."""
    from myops.demo import run_demo

    result = run_demo(out, quick=quick, console=stderr if as_json else stdout)
    if as_json:
        print_json(result.to_dict())
    if not result.ok:
        raise typer.Exit(1)
