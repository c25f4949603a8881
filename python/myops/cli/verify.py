# SPDX-License-Identifier: Apache-2.0
"""``myops verify``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from myops.cli.common import (
    Dims,
    Json,
    Plugin,
    load_factory,
    parse_dims,
    print_json,
    stderr,
    stdout,
)


def verify(
    model: Annotated[
        Path | None, typer.Argument(help="An .onnx file; without one, all operators.")
    ] = None,
    torch_model: Annotated[
        str | None, typer.Option("--torch", help="package.module:factory it was exported from.")
    ] = None,
    inputs: Annotated[Path | None, typer.Option(help=".npz file with the model's inputs.")] = None,
    dim: Dims = None,
    plugin: Plugin = None,
    tolerance: Annotated[
        float | None, typer.Option(help="Largest error of a model, relative to its largest output.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every row with all figures; wants 150 columns.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Judges every layer against float64: torch, ONNX Runtime with and without the plugin, onnx."""
    from myops import verify as myops_verify

    with stderr.status("Verifying"):
        if model is None:
            report = myops_verify.verify_operators(plugin=plugin)
        else:
            report = myops_verify.verify_model(
                model,
                torch_model=load_factory(torch_model) if torch_model else None,
                inputs=inputs,
                dims=parse_dims(dim or []),
                plugin=plugin,
                tolerance=tolerance,
            )
    if as_json:
        print_json(report.to_dict())
    else:
        stdout.print(report.details() if every else report.table())
        if any(row.verdict == "off" for row in report.rows):
            stdout.print(
                "off: a runtime without our kernels differs from float64 by more than rounding. "
                "It is shown, not counted.",
                style="dim",
            )
        stdout.print("[green]All our layers agree.[/]" if report.ok else "[bold red]Not equal.[/]")
    if not report.ok:
        raise typer.Exit(1)
