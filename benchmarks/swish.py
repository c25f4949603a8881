# SPDX-License-Identifier: Apache-2.0
"""Measures Swish against its rivals for the README, and writes the figures as JSON."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

import typer
from myops import bench
from rich.console import Console
from rich.progress import Progress

SIZES = (65_536, 3_145_728)


def main(
    out: Annotated[Path, typer.Option(help="JSON file to write.")] = Path("swish.json"),
    threads: Annotated[list[int] | None, typer.Option(help="May be repeated.")] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="May be repeated.")] = None,
    rounds: Annotated[int, typer.Option(help="Samples per row.")] = 100,
) -> None:
    console = Console()
    reports = []
    with Progress(console=console) as progress:
        for count in threads or [1]:
            report = bench.run(
                ["Swish"], SIZES, dtype or ["float32"], count, rounds, progress=progress
            )
            reports.append(report)
    for report in reports:
        console.print(report.table())
    result = {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "reports": [report.to_dict() for report in reports],
    }
    temporary = out.with_name(f".{out.name}.tmp")
    temporary.write_text(json.dumps(result, indent=2) + "\n")
    temporary.replace(out)
    console.print(f"Wrote {out}")


if __name__ == "__main__":
    typer.run(main)
