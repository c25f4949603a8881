# SPDX-License-Identifier: Apache-2.0
"""``myops new``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from myops._errors import UsageError
from myops.cli.common import Json, print_json, stdout

if TYPE_CHECKING:
    from myops.scaffold.project import Project


def _print_project(written: Project, namespace: str, as_json: bool) -> None:
    commands = ["pip install --no-build-isolation .", "pytest"]
    if as_json:
        print_json(
            {
                "name": written.names.onnx,
                "torch_name": written.names.torch,
                "namespace": namespace,
                "root": written.folder,
                "files": written.files,
                "commands": commands,
            }
        )
        return
    stdout.print(f"Wrote {escape(str(written.folder))}: {len(written.files)} files.")
    stdout.print("Run in it, where torch, myops, scikit-build-core and pytest are installed:")
    for command in commands:
        stdout.print(f"  {command}")


def new(
    name: Annotated[str, typer.Argument(help="The operator's name in CamelCase, as in ONNX.")],
    kind: Annotated[
        str, typer.Option(help="activation, gated, norm; in a project activation, custom.")
    ] = "activation",
    attribute: Annotated[
        list[str] | None, typer.Option(help="Scalar attribute, alpha=1.5. Repeatable.")
    ] = None,
    torch_name: Annotated[
        str | None, typer.Option(help="Name in torch; the same letters in snake_case.")
    ] = None,
    activation: Annotated[
        str | None, typer.Option(help="For --kind gated: the operator to take for f.")
    ] = None,
    project: Annotated[
        Path | None, typer.Option(help="Folder of a new project of its own, with --namespace.")
    ] = None,
    namespace: Annotated[
        str | None, typer.Option(help="That project's torch namespace, ONNX domain and package.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Adds an operator: to this checkout of myops, all but its formulas; or in a new project."""
    from myops import scaffold

    if (project is None) != (namespace is None):
        raise UsageError(
            "myops.new",
            "--project and --namespace go together",
            "one of them",
            "Pass both, or none in a checkout of myops",
        )
    if project is not None and namespace is not None:
        if attribute or activation:
            raise UsageError(
                "myops.new",
                "a new project starts from an example with an attribute",
                "--attribute or --activation",
                "Leave them out, and change the example",
            )
        written = scaffold.new_project(name, kind, project, namespace, torch_name)
        _print_project(written, namespace, as_json)
        return
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
