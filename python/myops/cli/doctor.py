# SPDX-License-Identifier: Apache-2.0
"""``myops doctor``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from myops._errors import UsageError
from myops.cli.common import Json, print_json, stderr, stdout

if TYPE_CHECKING:
    from myops.doctor import Explanation, Finding, Report

_STYLES = {
    "error": "bold red",
    "warning": "yellow",
    "note": "dim",
    "confirmed": "bold red",
    "possible": "yellow",
    "ruled out": "dim",
}


def doctor(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[MODEL.onnx] [LIBRARY.so]", help="A model, a plugin, or both."),
    ] = None,
    torch_library: Annotated[
        Path | None, typer.Option(help="Another libmyops.so than the installed one.")
    ] = None,
    provider: Annotated[
        list[str] | None,
        typer.Option(help="Execution provider that is wanted, like CUDAExecutionProvider."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="intra_op_num_threads that is wanted.")
    ] = None,
    explain: Annotated[
        str | None, typer.Option(help="An error text, to be told its causes; - reads it.")
    ] = None,
    load: Annotated[
        bool, typer.Option(help="Load libraries and the model for trial, in other processes.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Why a set-up, a library or a model does not work. Exit code 1 where something is found."""
    from myops import doctor as myops_doctor

    model, library = _sort(files or [])
    wanted = myops_doctor.Wanted(tuple(provider or ()), threads)
    if explain is not None:
        text = sys.stdin.read() if explain == "-" else explain
        with stderr.status("Examining"):
            causes = myops_doctor.explain_with(text, model, library, wanted)
        _print_causes(causes, as_json)
        raise typer.Exit(1 if causes else 0)
    with stderr.status("Examining"):
        report = myops_doctor.examine(model, library, torch_library, wanted, load)
    if as_json:
        print_json(report.to_dict())
    else:
        _print_report(report)
    raise typer.Exit(0 if report.ok else 1)


def _sort(files: list[Path]) -> tuple[Path | None, Path | None]:
    model: Path | None = None
    library: Path | None = None
    for path in files:
        is_library = ".so" in path.suffixes or path.suffix in (".dll", ".dylib")
        if path.suffix == ".onnx" and model is None:
            model = path
        elif is_library and library is None:
            library = path
        else:
            raise UsageError(
                "myops doctor",
                "files should be at most one model (.onnx) and one library (.so)",
                " ".join(map(str, files)),
                "Name one of each",
            )
    return model, library


def _print_report(report: Report) -> None:
    facts = report.facts
    versions = {name: text or "not installed" for name, text in facts.packages.items()}
    if facts.ort_packages:
        names = facts.ort_packages.items()
        versions["onnxruntime"] = ", ".join(f"{version} ({name})" for name, version in names)
    abi = {True: "1", False: "0", None: "unknown"}[facts.torch_cxx11_abi]
    rows = {
        "myops": f"{facts.myops}, built for torch {facts.built_for_torch or 'none'}",
        "torch": f"{versions.pop('torch')}, CUDA {facts.torch_cuda or 'none'}, CXX11 ABI {abi}",
        **versions,
        "providers": ", ".join(facts.providers or ()) or "unknown",
        "system": f"Python {facts.python}, {facts.platform}, {facts.glibc or 'no glibc'}",
        "GPUs": ", ".join(f"{gpu.name} sm_{gpu.capability[0]}{gpu.capability[1]}"
                          for gpu in facts.driver.gpus) or "none",
        "nvcc": ".".join(map(str, facts.nvcc.release)) if facts.nvcc else "none",
        "processors": str(facts.processors),
    }  # fmt: skip
    table = Table(show_header=False, box=None)
    for name, value in rows.items():
        table.add_row(f"[bold]{name}[/]", escape(value))
    stdout.print(table)
    for finding in report.findings:
        _print_finding(finding, finding.entry.severity)
    counted = sum(finding.counts for finding in report.findings)
    if counted:
        stdout.print(f"\n[bold red]{counted} finding{'s' if counted > 1 else ''}.[/]")
    else:
        stdout.print("\n[green]Nothing found.[/]")


def _print_finding(finding: Finding, label: str) -> None:
    subject = f"  [dim]{escape(finding.subject)}[/]" if finding.subject else ""
    stdout.print(f"\n[{_STYLES[label]}]{label}[/] [bold]{finding.id}[/]{subject}", soft_wrap=True)
    rows = {"": finding.entry.sentence}
    if label != "ruled out":
        rows |= {"seen": finding.evidence, "fix": finding.fix}
    if label == "possible":
        rows["apart"] = finding.entry.apart
    table = Table(show_header=False, box=None, padding=(0, 1, 0, 0))
    for name, text in rows.items():
        if text:
            table.add_row(f"[bold]{name}[/]", escape(text))
    stdout.print(Padding(table, (0, 0, 0, 2)))


def _print_causes(causes: list[Explanation], as_json: bool) -> None:
    if as_json:
        rows = [
            {**cause.finding.to_dict(), "status": cause.status, "excerpt": cause.excerpt}
            for cause in causes
        ]
        print_json({"causes": rows})
        return
    for cause in causes:
        _print_finding(cause.finding, cause.status)
    if not causes:
        stdout.print(
            "Nothing in this text is known. Run myops doctor MODEL.onnx LIBRARY.so on the files."
        )
