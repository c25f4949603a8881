# SPDX-License-Identifier: Apache-2.0
"""``myops bench``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from myops._errors import UsageError
from myops.cli.common import Json, print_json, stderr, stdout


def bench(
    op: Annotated[list[str] | None, typer.Option(help="Operator; all if none. Repeatable.")] = None,
    size: Annotated[
        list[int] | None, typer.Option(help="Elements per tensor; 65536 and 3145728. Repeatable.")
    ] = None,
    dtype: Annotated[
        list[str] | None, typer.Option(help="float32 (default), float64, ... Repeatable.")
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads of each framework.")] = 1,
    rounds: Annotated[int, typer.Option(help="Samples per row.")] = 30,
    plot: Annotated[
        Path | None, typer.Option(help="Picture of the ratios: .png, .svg or .pdf.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measures the operators against torch's and ONNX Runtime's own, in one run."""
    from rich.progress import Progress

    from myops import bench as myops_bench
    from myops.bench import machine

    suffixes = (".png", ".svg", ".pdf")
    if plot is not None:
        machine.require("myops bench", "matplotlib")
        if plot.suffix not in suffixes:
            raise UsageError(
                "myops bench",
                f"--plot should end in one of {', '.join(suffixes)}",
                str(plot),
                "Rename it",
            )
    with Progress(console=stderr, transient=True) as progress:
        report = myops_bench.run(
            op or None,
            size or (65_536, 3_145_728),
            dtype or ("float32",),
            threads,
            rounds,
            progress=progress,
        )
    if plot is not None:
        temporary = plot.with_name(f".tmp.{plot.name}")
        report.plot(temporary)
        temporary.replace(plot)
    if as_json:
        print_json(report.to_dict())
    else:
        stdout.print(report.table())
