# SPDX-License-Identifier: Apache-2.0
"""``myops tune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from myops.cli.common import Dims, Inputs, Json, Plugin, parse_dims, print_json, stderr, stdout


def tune(
    model: Annotated[Path, typer.Argument(help="An .onnx file.")],
    inputs: Inputs = None,
    dim: Dims = None,
    plugin: Plugin = None,
    threads: Annotated[
        str | None, typer.Option(help="Such as 1,2,4 or 1-4; 1, 2, 4, ... up to all cores if none.")
    ] = None,
    level: Annotated[
        list[str] | None, typer.Option(help="basic, extended, all if none. Repeatable.")
    ] = None,
    rounds: Annotated[int, typer.Option("--runs", "--rounds", help="Samples per row.")] = 30,
    as_json: Json = False,
) -> None:
    """Finds the fastest session settings for a model: threads, optimization level, plugin."""
    from rich.progress import Progress

    from myops import ort
    from myops.bench.threads import parse_threads
    from myops.ort.tune import LEVELS

    with Progress(console=stderr, transient=True) as progress:
        task = progress.add_task("Tune", total=None)
        found = ort.tune(
            model,
            inputs,
            dims=parse_dims(dim or []),
            threads=parse_threads(threads) if threads else None,
            levels=level or LEVELS,
            rounds=rounds,
            plugin=plugin,
            on_round=lambda total: progress.update(task, total=total, advance=1),
        )
    if as_json:
        print_json(found.to_dict())
    else:
        stdout.print(found.table())
