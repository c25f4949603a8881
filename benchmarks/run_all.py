# SPDX-License-Identifier: Apache-2.0
"""Runs every script, each in a process of its own, and records all rows in one JSON file.

One process per script keeps the thread pools of two frameworks apart. A script that cannot run does
not cost the others their rows: its claims are listed as missing with the reason, and the exit code
is 1. A missed target is a figure, not an error.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

import typer
from claims.record import FOLDER, RECORD, scripts
from claims.script import MISSED, write_json
from myops.bench import machine
from rich.console import Console
from rich.markup import escape

QUICK_RECORD = Path("out/bench/quick.json")
"""Where a quick run goes: its figures should not take the place of recorded ones."""


def run_script(name: str, arguments: list[str], out: Path) -> tuple[list[Any], str]:
    """The rows of one script, and why there are none."""
    command = [sys.executable, str(FOLDER / f"{name}.py"), "--out", str(out), *arguments]
    # Its bar and table go to this terminal; only its errors are kept.
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, MISSED) or not out.is_file():
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        return [], last[0].removeprefix("error ")
    rows: list[Any] = json.loads(out.read_text())
    return rows, ""


def main(
    out: Annotated[Path | None, typer.Option(help=f"JSON file; {RECORD.name} if none.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Proves that all work; no figures.")
    ] = False,
    rounds: Annotated[int | None, typer.Option(min=1, help="Samples per case.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Names of scripts; repeatable.")] = None,
) -> None:
    console = Console()
    path = out or (QUICK_RECORD if quick else RECORD)
    arguments = ["--quick"] * quick + (["--rounds", str(rounds)] if rounds else [])
    chosen = [script for script in scripts() if not only or script.name in only]
    known = [script.name for script in scripts()]
    unknown = set(only or ()) - set(known)
    if unknown:
        raise typer.BadParameter(
            f"--only should name scripts among {', '.join(known)}. "
            f"Received {', '.join(sorted(unknown))}. Correct it."
        )
    load = os.getloadavg()[0]
    record: dict[str, Any] = {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "quick": quick,
        "machine": machine.describe(),
        "load": load,
        "missing": {},
        "rows": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        for number, script in enumerate(chosen, start=1):
            console.rule(f"{script.name} ({number} of {len(chosen)})")
            rows, why = run_script(script.name, arguments, Path(folder) / f"{script.name}.json")
            record["rows"] += rows
            if why:
                console.print(f"[bold red]not measured[/] {escape(why)}", soft_wrap=True)
                record["missing"] |= {claim.name: why for claim in script.claims}
    write_json(path, record)
    met = sum(row["met"] for row in record["rows"])
    console.print(f"Wrote {path}: {met} of {len(record['rows'])} targets met.")
    if load > 0.5:
        console.print(f"The machine was busy at the start (load {load:.1f}): measure again.")
    if record["missing"]:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
