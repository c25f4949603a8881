# SPDX-License-Identifier: Apache-2.0
"""``myops new``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from myops.cli.common import Json, print_json, stdout


def new(
    name: Annotated[str, typer.Argument(help="The operator's name in CamelCase, as in ONNX.")],
    kind: Annotated[str, typer.Option(help="activation, or gated for f(gate) * x.")] = "activation",
    attribute: Annotated[
        list[str] | None, typer.Option(help="Scalar attribute, alpha=1.5. Repeatable.")
    ] = None,
    torch_name: Annotated[
        str | None, typer.Option(help="Name in torch; the same letters in snake_case.")
    ] = None,
    activation: Annotated[
        str | None, typer.Option(help="For --kind gated: the operator to take for f.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Adds an operator to this checkout of myops: all but its formulas."""
    from myops import scaffold

    attributes = scaffold.parse_attributes(attribute or [])
    change = scaffold.new_operator(name, kind, attributes, torch_name, activation)
    commands = ["make dev", "make test"]
    if as_json:
        print_json(
            {
                "name": change.names.onnx,
                "torch_name": change.names.torch,
                "root": change.root,
                "files": change.files,
                "to_write": change.places,
                "commands": commands,
            }
        )
        return
    stdout.print(f"Added {change.names.onnx} to {', '.join(change.files)}.")
    if change.places:
        stdout.print("Write the formulas, and what TODO marks:")
        for place in change.places:
            stdout.print(f"  {escape(place)}", soft_wrap=True)
    stdout.print("Then run:")
    for command in commands:
        stdout.print(f"  {command}")
