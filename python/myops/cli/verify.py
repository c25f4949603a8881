# SPDX-License-Identifier: Apache-2.0
"""``myops verify``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from myops._errors import UsageError, require
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

if TYPE_CHECKING:
    from myops.verify.finite import Finiteness
    from myops.verify.golden import Golden
    from myops.verify.report import Report

_WIDE = 130


def print_wide(table: Any) -> None:
    """A table that may be wider than 80 columns, unfolded where nobody's terminal is concerned."""
    console = stdout if stdout.is_terminal else Console(width=max(stdout.width, _WIDE))
    console.print(table)


def _print_report(report: Report, details: bool) -> None:
    if details:
        print_wide(report.details())
    else:
        stdout.print(report.table())
    for sentence in report.sentences():
        stdout.print(escape(sentence), soft_wrap=True)
    for hint in report.hints:
        stdout.print(f"[cyan]Hint[/] {escape(str(hint))}", soft_wrap=True)
    for bisection in report.bisections:
        stdout.print(f"[bold]Bisect[/] {escape(bisection.summary)}", soft_wrap=True)
        if bisection.saved is not None:
            stdout.print(f"Its inputs and results: {escape(str(bisection.saved))}", soft_wrap=True)
        for text in bisection.not_judged:
            stdout.print(f"Not judged: {escape(text)}", style="dim", soft_wrap=True)
    if any(row.verdict == "off" for row in report.rows):
        stdout.print(
            "off: a runtime without our kernels differs from float64 by more than rounding. "
            "It is shown, not counted.",
            style="dim",
        )


def print_golden(result: Golden) -> None:
    """Checksums, then the numbers."""
    for file in result.files:
        mark = "[green]ok[/]" if file.ok else "[bold red]DAMAGED[/]"
        text = f" [dim]{escape(file.text)}[/]" if file.ok and file.text else ""
        stdout.print(f"{mark} {file.kind} {escape(file.path)}{text}", soft_wrap=True)
    for file in result.files:
        if not file.ok:
            stderr.print(f"[bold red]error[/] {escape(file.text)}", soft_wrap=True)
    if result.report.rows:
        print_wide(result.report.details())
        for sentence in result.report.sentences():
            stdout.print(escape(sentence), soft_wrap=True)
    for name, about in (("made", result.made), ("here", result.here)):
        if about:
            versions = ", ".join(f"{k} {v}" for k, v in about["versions"].items())
            stdout.print(f"{name}: {versions}, ISA {about['isa']}", style="dim", soft_wrap=True)


def _finite(
    model: Path, inputs: Path | None, dims: dict[str, int], plugin: Path | None, on_step: Any
) -> Finiteness:
    from myops.onnx import model as onnx_model
    from myops.onnx.inputs import load_inputs
    from myops.verify.finite import check_finite
    from myops.verify.parties import onnxruntime_party

    proto = onnx_model.load(model)
    arrays = load_inputs(inputs, proto, dims)
    return check_finite(proto, arrays, onnxruntime_party(plugin), on_step)


def _check_usage(model: Path | None, golden: Path | None, for_models: dict[str, object]) -> None:
    given = [name for name, value in for_models.items() if value]
    if model is None and (given or golden is not None):
        raise UsageError(
            "myops.verify",
            f"{', '.join(given or ['--golden'])} should come with a model",
            "none",
            "Name an .onnx file",
        )
    if golden is not None and [name for name in given if name != "--tolerance"]:
        raise UsageError(
            "myops.verify",
            "--golden checks checksums and numbers only",
            ", ".join(given),
            "Leave one of the two out",
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
    golden: Annotated[
        Path | None,
        typer.Option(help="Check against this file of 'myops golden make'; needs no torch."),
    ] = None,
    tolerance: Annotated[
        list[str] | None,
        typer.Option(
            help="Largest error of a model, relative to its largest output: 1e-4, or "
            "float16=1e-2. Repeatable."
        ),
    ] = None,
    ulp: Annotated[
        list[str] | None,
        typer.Option(help="Largest error of an operator in ULP: 4, or float32=4. Repeatable."),
    ] = None,
    bisect: Annotated[
        bool, typer.Option("--bisect", help="Find the first node that is wrong.")
    ] = False,
    save: Annotated[
        Path | None, typer.Option(help="Where --bisect saves the node's inputs and results (.npz).")
    ] = None,
    check_finite: Annotated[
        bool, typer.Option("--check-finite", help="Find the first NaN or infinity instead.")
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Every row with all figures; wants 130 columns.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Judges every layer against float64: torch, ONNX Runtime with and without the plugin, onnx."""
    from myops.verify.tolerances import parse_tolerances

    for_models: dict[str, object] = {
        "--torch": torch_model,
        "--inputs": inputs,
        "--dim": dim,
        "--tolerance": tolerance,
        "--bisect": bisect,
        "--save": save,
        "--check-finite": check_finite,
    }
    _check_usage(model, golden, for_models)
    tolerances = parse_tolerances(tolerance or [])
    if golden is None:
        require("myops.verify", "onnx", extra="ort")
    result: Report | Golden | Finiteness
    with stderr.status("Verifying") as status:

        def on_step(text: str) -> None:
            status.update(f"Verifying: {escape(text)}")

        if golden is not None:
            from myops.verify.golden import check_golden

            assert model is not None
            result = check_golden(golden, model, plugin, tolerances)
            show: Callable[[Any], None] = print_golden
        elif model is not None and check_finite:
            result = _finite(model, inputs, parse_dims(dim or []), plugin, on_step)
            show = _print_finite
        elif model is not None:
            from myops.verify.model import verify_model

            result = verify_model(
                model,
                torch_model=load_factory(torch_model) if torch_model else None,
                inputs=inputs,
                dims=parse_dims(dim or []),
                plugin=plugin,
                tolerance=tolerances,
                find_node=bisect,
                save_to=(save or Path(f"{model.stem}.bisect.npz")) if bisect else None,
                on_step=on_step,
            )
            show = _print_model
        else:
            from myops.verify.operators import verify_operators

            limits = parse_tolerances(ulp or [], "myops.verify", "--ulp")
            result = verify_operators(plugin=plugin, max_ulp=limits, on_operator=on_step)
            show = _print_all if every else _print_operators
    if as_json:
        print_json(result.to_dict())
    else:
        show(result)
    if not result.ok:
        raise typer.Exit(1)


def _print_finite(result: Finiteness) -> None:
    stdout.print(escape(result.summary), soft_wrap=True)
    for text in result.not_reached:
        stdout.print(f"Not looked into: {escape(text)}", style="dim", soft_wrap=True)


def _print_verdict(report: Report) -> None:
    stdout.print("[green]All our layers agree.[/]" if report.ok else "[bold red]Not equal.[/]")


def _print_model(report: Report) -> None:
    _print_report(report, details=True)
    _print_verdict(report)


def _print_all(report: Report) -> None:
    _print_model(report)


def _print_operators(report: Report) -> None:
    _print_report(report, details=False)
    _print_verdict(report)
