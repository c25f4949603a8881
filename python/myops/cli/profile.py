# SPDX-License-Identifier: Apache-2.0
"""``myops profile``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from myops._errors import UsageError
from myops.cli.common import Dims, Inputs, Json, Plugin, parse_dims, print_json, stderr, stdout


def plugin_choice(plugin: Path | None, no_plugin: bool) -> Path | bool | None:
    """What ``plugin=`` of ``myops.ort.session`` takes.

    Raises:
        UsageError: both options are given.
    """
    if plugin is not None and no_plugin:
        raise UsageError(
            "myops", "--plugin and --no-plugin exclude each other", "both", "Leave one out"
        )
    return False if no_plugin else plugin


def profile(
    model: Annotated[Path, typer.Argument(help="An .onnx file.")],
    inputs: Inputs = None,
    dim: Dims = None,
    plugin: Plugin = None,
    no_plugin: Annotated[
        bool, typer.Option("--no-plugin", help="ONNX Runtime alone, on the model's functions.")
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="intra_op_num_threads; else ONNX Runtime's default."),
    ] = None,
    level: Annotated[
        str | None, typer.Option(help="Optimization: disable, basic, extended, all (default).")
    ] = None,
    provider: Annotated[
        list[str] | None, typer.Option(help="Execution provider, in order. Repeatable.")
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Runs that count; 5 more warm up.")] = 20,
    top: Annotated[int, typer.Option(min=1, help="Nodes to show; JSON has all.")] = 20,
    trace: Annotated[
        Path | None, typer.Option(help="Where to keep the Chrome trace; MODEL.trace.json here.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Where a model's time goes: per operator and per node, with bandwidths, and a trace."""
    from rich.progress import Progress

    from myops import ort

    warmup = 5
    with Progress(console=stderr, transient=True) as progress:
        task = progress.add_task("Profile", total=2 * (warmup + runs))
        found = ort.profile(
            model,
            inputs,
            dims=parse_dims(dim or []),
            runs=runs,
            warmup=warmup,
            threads=threads,
            level=level,
            plugin=plugin_choice(plugin, no_plugin),
            providers=provider or None,
            trace=trace or Path(f"{model.stem}.trace.json"),
            on_step=lambda: progress.advance(task),
        )
    if as_json:
        print_json(found.to_dict())
        return
    stdout.print(found.op_table())
    stdout.print(found.node_table(top))
    if found.memory_bound():
        stdout.print(found.memory_table(top))
    for line in (*found.summary(), found.how_to_open()):
        stdout.print(line, highlight=False, markup=False)
