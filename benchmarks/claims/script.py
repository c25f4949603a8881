# SPDX-License-Identifier: Apache-2.0
"""The command line that all scripts share."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from myops._errors import MyopsError
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from claims.model import Row, Script, Settings
from claims.tables import terminal_table

MISSED = 3
"""Exit code of a run that went well and missed a target."""


def write_json(path: Path, data: object) -> None:
    """Through a temporary file, so that a reader never finds half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(data, indent=1) + "\n")
    temporary.replace(path)


def run(script: Script, settings: Settings, console: Console) -> list[Row]:
    """Measures with a bar."""
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(script.name, total=script.total_rounds(script, settings))
        return script.measure(script, settings, lambda: progress.advance(task))


def main(script: Script) -> None:
    """Runs one script: a table for people, ``--json`` for machines."""

    def command(
        quick: Annotated[
            bool, typer.Option("--quick", help="Proves that it works; no figures.")
        ] = False,
        rounds: Annotated[
            int | None, typer.Option(min=1, help="Samples per case; by size if not given.")
        ] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON, no table.")] = False,
        out: Annotated[Path | None, typer.Option(help="JSON file to write.")] = None,
    ) -> None:
        console = Console(stderr=as_json)
        settings = Settings.quick() if quick else Settings()
        if rounds is not None:
            settings = Settings(rounds, settings.largest)
        try:
            rows = run(script, settings, console)
        except MyopsError as error:
            Console(stderr=True).print(f"[bold red]error[/] {escape(str(error))}", soft_wrap=True)
            raise typer.Exit(1) from error
        data = [row.to_dict() for row in rows]
        if out is not None:
            write_json(out, data)
        if as_json:
            sys.stdout.write(json.dumps(data, indent=1) + os.linesep)
        else:
            console.print(terminal_table(rows, script.name))
        if not all(row.met for row in rows):
            raise typer.Exit(MISSED)

    typer.run(command)
