# SPDX-License-Identifier: Apache-2.0
"""``myops inject``."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from myops._errors import UsageError
from myops.cli.common import Dims, Json, Plugin, parse_dims, print_json, stderr, stdout


def _quiet() -> None:
    """ONNX Runtime warns of what was in the model before, for every session anew, and logs what we
    raise."""
    with contextlib.suppress(ImportError):
        import onnxruntime

        onnxruntime.set_default_logger_severity(4)


def inject(
    model: Annotated[Path, typer.Argument(help="An .onnx file. It is not changed.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The .onnx file to write.")
    ] = None,
    list_only: Annotated[
        bool, typer.Option("--list", help="Report what was found; run and write nothing.")
    ] = False,
    target: Annotated[
        str, typer.Option(help="auto: what is fastest here, or nothing; custom; native.")
    ] = "auto",
    op: Annotated[
        list[str] | None, typer.Option("--op", help="Look for this operator only. Repeatable.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="Threads to measure with; ONNX Runtime's default if none.")
    ] = None,
    inputs: Annotated[
        Path | None, typer.Option(help=".npz file to run the model on; made up if none.")
    ] = None,
    dim: Dims = None,
    measure: Annotated[
        bool | None,
        typer.Option(
            "--measure/--no-measure",
            help="Whether auto measures; if not, the table in docs/inject.md decides. By default "
            "models below 1 GB are measured.",
        ),
    ] = None,
    remeasure: Annotated[
        bool, typer.Option("--remeasure", help="Measure a model again that was measured here.")
    ] = False,
    seconds: Annotated[float, typer.Option(help="To spend on one contest.")] = 6.0,
    allow_numeric_change: Annotated[
        bool,
        typer.Option(
            "--allow-numeric-change",
            help="Replace nodes that round to a half type in between, too; shows what changes.",
        ),
    ] = False,
    ir_version: Annotated[
        int | None, typer.Option(help="Raise the IR version to this; it stays if none.")
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(help="Largest difference of an output, relative to its largest element."),
    ] = None,
    plugin: Plugin = None,
    every: Annotated[bool, typer.Option("--all", help="A line for every candidate.")] = False,
    as_json: Json = False,
) -> None:
    """Makes an existing model faster, where that pays, and checks that it computes the same."""
    from myops.onnx.inject import inject_file, list_candidates

    if list_only:
        report = list_candidates(model, operators=op, allow_numeric_change=allow_numeric_change)
    elif output is None:
        raise UsageError(
            "myops inject", "there should be a file to write", "no -o", "Pass -o, or --list"
        )
    else:
        _quiet()
        with stderr.status("Reading") as status:
            report = inject_file(
                model,
                output,
                target=target,
                operators=op,
                threads=threads,
                inputs=inputs,
                dims=parse_dims(dim or []),
                measure=measure,
                remeasure=remeasure,
                seconds=seconds,
                allow_numeric_change=allow_numeric_change,
                ir_version=ir_version,
                tolerance=tolerance,
                plugin=plugin,
                on_step=lambda text: status.update(text.capitalize()),
            )
    if as_json:
        print_json(report.to_dict())
        return
    for table in report.tables(every):
        if table.row_count:
            stdout.print(table)
    for note in report.notes:
        stdout.print(f"[yellow]note[/] {escape(note)}", soft_wrap=True)
    if list_only:
        counts = ", ".join(f"{n} {name}" for name, n in report.counts.items()) or "nothing"
        stdout.print(f"Found: {counts}")
    else:
        what = f"{report.rewritten} rewritten" if report.rewritten else "unchanged"
        stdout.print(f"Wrote {escape(str(output))}: {what}", soft_wrap=True)
