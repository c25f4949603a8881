# SPDX-License-Identifier: Apache-2.0
"""``myops check``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from myops._errors import UsageError, require
from myops.cli.common import (
    Dims,
    Json,
    load_factory,
    parse_dims,
    print_json,
    stderr,
    stdout,
)
from myops.cli.export import parse_dynamic, parse_input

WHERE = "myops.check"


def check(
    target: Annotated[
        str | None,
        typer.Argument(
            help="package.module:factory or an .onnx file; without one, the installed operators."
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", help="Of a module: example input, x=float32[2,8]. Repeatable."),
    ] = None,
    dynamic: Annotated[
        list[str] | None, typer.Option(help="Of a module: symbolic dim, x.0=batch. Repeatable.")
    ] = None,
    mode: Annotated[
        str, typer.Option(help="Of a module: native, custom or portable.")
    ] = "portable",
    opset: Annotated[int | None, typer.Option(help="Of a module: opset of the file.")] = None,
    dim: Dims = None,
    as_json: Json = False,
) -> None:
    """For your own CI: forward and gradient, exported structure, ONNX Runtime alignment."""
    is_file = target is not None and ":" not in target
    if target is not None and not is_file and not inputs:
        raise UsageError(
            WHERE, "a module needs example inputs", "none", "Add --input 'x=float32[2,8]'"
        )
    if (target is None or is_file) and (inputs or dynamic):
        raise UsageError(
            WHERE,
            "--input and --dynamic are for package.module:factory",
            target or "no module",
            "Leave them out, or use --dim for a file",
        )
    require(WHERE, "onnx", extra="ort")
    with stderr.status("Checking") as status:

        def on_step(text: str) -> None:
            status.update(f"Checking: {escape(text)}")

        from myops.verify import selfcheck

        if target is None:
            result = selfcheck.check_operators(on_step)
        elif is_file:
            result = selfcheck.check_file(Path(target), dims=parse_dims(dim or []), on_step=on_step)
        else:
            result = selfcheck.check_module(
                load_factory(target),
                dict(parse_input(text) for text in inputs or []),
                subject=target,
                on_step=on_step,
                dynamic=parse_dynamic(dynamic or []),
                mode=mode,
                opset=opset,
            )
    if as_json:
        print_json(result.to_dict())
    else:
        for line in result.lines:
            mark = "[green]ok[/]    " if line.ok else "[bold red]FAILED[/]"
            text = line.text if line.ok else " | ".join(line.problems[:3])
            stdout.print(f"{mark} {line.name:<22} {escape(text)}", soft_wrap=True)
    if not result.ok:
        raise typer.Exit(1)
