# SPDX-License-Identifier: Apache-2.0
"""``myops export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from myops._errors import UsageError
from myops.cli.common import Json, load_factory, print_json, stderr, stdout


def parse_input(text: str) -> tuple[str, Any]:
    """``x=float32[2,8]`` as a name and a random tensor.

    Raises:
        UsageError: the text has another form.
    """
    import torch

    name, _, rest = text.partition("=")
    dtype_name, _, shape_text = rest.removesuffix("]").partition("[")
    dtype = getattr(torch, dtype_name, None)
    try:
        shape = [int(size) for size in shape_text.split(",") if size.strip()]
    except ValueError:
        shape = [-1]
    if (
        not name.isidentifier()
        or not isinstance(dtype, torch.dtype)
        or min(shape, default=0) < 0
        or not rest.endswith("]")
    ):
        raise UsageError(
            "myops export", "--input has the form x=float32[2,8]", repr(text), "Correct it"
        )
    generator = torch.Generator().manual_seed(0)
    if dtype.is_floating_point:
        return name, torch.randn(shape, generator=generator).to(dtype)
    return name, torch.zeros(shape, dtype=dtype)


def parse_dynamic(texts: list[str]) -> dict[str, dict[int, str]]:
    """``x.0=batch`` as ``{"x": {0: "batch"}}``.

    Raises:
        UsageError: a text has another form.
    """
    result: dict[str, dict[int, str]] = {}
    for text in texts:
        place, _, symbol = text.partition("=")
        name, _, axis = place.rpartition(".")
        if not name or not axis.isdigit() or not symbol:
            raise UsageError(
                "myops export", "--dynamic has the form x.0=batch", repr(text), "Correct it"
            )
        result.setdefault(name, {})[int(axis)] = symbol
    return result


def export(
    model: Annotated[str, typer.Argument(help="package.module:factory")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .onnx file to write.")],
    inputs: Annotated[
        list[str], typer.Option("--input", help="Example input, x=float32[2,8]. Repeatable.")
    ],
    dynamic: Annotated[
        list[str] | None, typer.Option(help="Symbolic dim, x.0=batch. Repeatable.")
    ] = None,
    mode: Annotated[str, typer.Option(help="native, custom or portable.")] = "portable",
    opset: Annotated[int | None, typer.Option(help="Default opset of the file.")] = None,
    exporter: Annotated[str, typer.Option(help="auto, dynamo or torchscript.")] = "auto",
    as_json: Json = False,
) -> None:
    """Exports a torch model to a checked ONNX file."""
    from myops import onnx as myops_onnx

    module = load_factory(model)
    arguments = dict(parse_input(text) for text in inputs)
    with stderr.status("Exporting"):
        report = myops_onnx.export(
            module,
            (),
            output,
            mode=mode,
            opset=opset,
            dynamic=parse_dynamic(dynamic or []),
            exporter=exporter,
            kwargs=arguments,
        )
    if as_json:
        print_json(report.to_dict())
        return
    operators = ", ".join(f"{n} {name}" for name, n in report.operators.items()) or "none"
    stdout.print(
        f"Wrote {escape(str(report.path))} ({report.size:,} bytes): mode {report.mode}, "
        f"exporter {report.exporter}, opset {report.opset}, myops nodes: {operators}"
    )
    stdout.print(f"Nodes: {escape(', '.join(report.nodes))}", style="dim")
