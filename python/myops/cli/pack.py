# SPDX-License-Identifier: Apache-2.0
"""``myops pack``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

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


def pack(
    model: Annotated[Path, typer.Argument(help="An .onnx file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write.")],
    inputs: Annotated[Path | None, typer.Option(help=".npz file with the model's inputs.")] = None,
    dim: Dims = None,
    plugin: Plugin = None,
    torch_model: Annotated[
        str | None, typer.Option("--torch", help="package.module:factory it was exported from.")
    ] = None,
    tolerance: Annotated[
        list[str] | None, typer.Option(help="As of myops verify; allowed on the target, too.")
    ] = None,
    triton: Annotated[
        bool, typer.Option("--triton", help="As a model repository for NVIDIA Triton, too.")
    ] = False,
    max_batch_size: Annotated[
        int, typer.Option(help="The most requests Triton shall put together.")
    ] = 32,
    as_json: Json = False,
) -> None:
    """A folder to copy to the target: model, plugin, golden results, and the check of all that."""
    from myops.pack import make_bundle
    from myops.verify.tolerances import parse_tolerances

    with stderr.status("Packing") as status:
        bundle = make_bundle(
            model,
            output,
            torch_model=load_factory(torch_model) if torch_model else None,
            inputs=inputs,
            dims=parse_dims(dim or []),
            plugin=plugin,
            tolerance=parse_tolerances(tolerance or [], "myops pack"),
            for_triton=triton,
            max_batch_size=max_batch_size,
            on_step=lambda text: status.update(f"Packing: {escape(text)}"),
        )
    if as_json:
        print_json(bundle.to_dict())
        return
    about = bundle.manifest
    parts = [f"{len(about['files']) + 1} files, {bundle.size:,} bytes"]
    parts.append("with the plugin" if about["plugin"] else "no plugin needed")
    if about["plugin"]:
        parts.append("runs without it, too" if about["model"]["portable"] else "needs it")
    stdout.print(f"Wrote {escape(str(output))}: {', '.join(parts)}", soft_wrap=True)
    if bundle.triton is not None:
        why = bundle.triton.why_no_batching
        batching = f"no batching, {why}" if why else f"up to {bundle.triton.max_batch_size} rows"
        stdout.print(
            f"Triton model {escape(bundle.triton.name)}: {escape(batching)}", soft_wrap=True
        )
    check = escape(str(output / "check.py"))
    stdout.print(
        f"Checked, {len(bundle.steps)} steps. On the target: python {check}", soft_wrap=True
    )
