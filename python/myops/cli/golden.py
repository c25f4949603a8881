# SPDX-License-Identifier: Apache-2.0
"""``myops golden make``; ``myops verify --golden`` is the other half."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from myops._errors import require
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

golden = typer.Typer(
    help="Results to check on the target, without torch: inputs, outputs, checksums.",
    no_args_is_help=True,
)


@golden.callback()
def _group() -> None:
    """Keeps ``make`` a command of its own though it is the only one."""


@golden.command()
def make(
    model: Annotated[Path, typer.Argument(help="An .onnx file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .npz file to write.")],
    torch_model: Annotated[
        str | None, typer.Option("--torch", help="package.module:factory it was exported from.")
    ] = None,
    inputs: Annotated[Path | None, typer.Option(help=".npz file with the model's inputs.")] = None,
    dim: Dims = None,
    plugin: Plugin = None,
    tolerance: Annotated[
        list[str] | None, typer.Option(help="As of myops verify; allowed on the target, too.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Writes a model's inputs, float64 outputs and checksums, if every layer agrees here."""
    require("myops.golden", "onnx", extra="ort")
    from myops.verify.golden import make_golden
    from myops.verify.tolerances import parse_tolerances

    with stderr.status("Verifying"):
        meta = make_golden(
            model,
            output,
            torch_model=load_factory(torch_model) if torch_model else None,
            inputs=inputs,
            dims=parse_dims(dim or []),
            plugin=plugin,
            tolerance=parse_tolerances(tolerance or [], "myops.golden"),
        )
    if as_json:
        print_json({"path": str(output), **meta})
        return
    plugin_name = meta["plugin"]["name"] if meta["plugin"] else "not needed"
    stdout.print(
        f"Wrote {escape(str(output))} ({output.stat().st_size:,} bytes): "
        f"{len(meta['outputs'])} outputs of {escape(meta['model']['name'])}, plugin "
        f"{escape(plugin_name)}, truth {escape(meta['truth'])}, allowed {meta['tolerance']:g}",
        soft_wrap=True,
    )
