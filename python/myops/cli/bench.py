# SPDX-License-Identifier: Apache-2.0
"""``myops bench``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from myops._errors import UsageError, require
from myops.cli.common import Dims, Inputs, Json, Plugin, parse_dims, print_json, stderr, stdout

if TYPE_CHECKING:
    from rich.progress import Progress

SUFFIXES = (".png", ".svg", ".pdf")


def check_plot(plot: Path) -> None:
    """Raises before the work whose picture could not be written."""

    require("myops bench", "matplotlib")
    if plot.suffix not in SUFFIXES:
        raise UsageError(
            "myops bench",
            f"--plot should end in one of {', '.join(SUFFIXES)}",
            str(plot),
            "Rename it",
        )


def _exclude(what: str, options: dict[str, Any]) -> None:
    given = [name for name, value in options.items() if value]
    if given:
        raise UsageError(
            "myops bench",
            f"{what} should come without {', '.join(options)}",
            given[0],
            "Leave it out",
        )


def bench(
    models: Annotated[
        list[Path] | None, typer.Argument(help="Models to compare, without and with the plugin.")
    ] = None,
    op: Annotated[
        list[str] | None, typer.Option(help="Operator; all if none and no model. Repeatable.")
    ] = None,
    size: Annotated[
        list[int] | None, typer.Option(help="Elements per tensor; 65536 and 3145728. Repeatable.")
    ] = None,
    dtype: Annotated[
        list[str] | None, typer.Option(help="float32 (default), float64, ... Repeatable.")
    ] = None,
    threads: Annotated[
        str, typer.Option(help="Threads of each framework; several (1,2,4 or 1-4) are a sweep.")
    ] = "1",
    rounds: Annotated[int, typer.Option("--runs", "--rounds", help="Samples per row.")] = 100,
    warmup: Annotated[int, typer.Option(min=0, help="Calls before the first sample.")] = 10,
    compiled: Annotated[
        bool, typer.Option("--compile/--no-compile", help="torch.compile as a rival.")
    ] = True,
    inputs: Inputs = None,
    dim: Dims = None,
    plugin: Plugin = None,
    memory: Annotated[
        bool, typer.Option("--memory/--no-memory", help="Peak memory of models.")
    ] = True,
    plot: Annotated[
        Path | None, typer.Option(help="Picture with the copy bandwidth: .png, .svg or .pdf.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measures operators against torch's and ONNX Runtime's own, or models, in one run."""
    from rich.progress import Progress

    from myops import bench as myops_bench
    from myops.bench.threads import parse_threads

    swept = parse_threads(threads)
    if models:
        _exclude("a model", {"--op": op, "--size": size, "--dtype": dtype})
    else:
        _exclude("a benchmark of operators", {"--inputs": inputs, "--dim": dim, "--plugin": plugin})
    if plot is not None:
        check_plot(plot)

    def measure(progress: Progress) -> Any:
        if models:
            return myops_bench.run_models(
                models,
                inputs,
                dims=parse_dims(dim or []),
                threads=swept,
                rounds=rounds,
                warmup=warmup,
                plugin=plugin,
                memory=memory,
                progress=progress,
            )
        return myops_bench.run(
            op or None,
            size or (65_536, 3_145_728),
            dtype or ("float32",),
            swept,
            rounds,
            progress,
            warmup=warmup,
            torch_compile=compiled,
        )

    with Progress(console=stderr, transient=True) as progress:
        report = measure(progress)
    if plot is not None:
        plot.parent.mkdir(parents=True, exist_ok=True)
        temporary = plot.with_name(f".tmp.{plot.name}")
        report.plot(temporary)
        temporary.replace(plot)
    if as_json:
        print_json(report.to_dict())
    else:
        stdout.print(report.table())
