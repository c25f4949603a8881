# SPDX-License-Identifier: Apache-2.0
"""The command line, a module per command. Each prints for people, or with ``--json`` for machines.
Exit codes: 0 done, 1 failed or refused, 2 wrong usage."""

from __future__ import annotations

import sys

import typer
from rich.markup import escape

from myops._errors import MyopsError, UsageError
from myops.cli.bench import bench
from myops.cli.check import check
from myops.cli.common import stderr
from myops.cli.demo import demo
from myops.cli.doctor import doctor
from myops.cli.export import export
from myops.cli.golden import golden
from myops.cli.info import info
from myops.cli.inject import inject
from myops.cli.new import new
from myops.cli.pack import pack
from myops.cli.profile import profile
from myops.cli.tune import tune
from myops.cli.verify import verify
from myops.registry import register_installed

app = typer.Typer(
    help="One operator, written once, from PyTorch training to ONNX Runtime.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (
    *(info, doctor, export, inject, verify, check, pack, profile, bench, tune),
    *(demo, new),
):
    app.command()(command)
app.add_typer(golden, name="golden")


def main() -> None:
    """Entry point: errors of ours as one line and exit code 1."""
    try:
        register_installed()
    except MyopsError as error:  # the commands, above all doctor, do without that package
        stderr.print(f"[bold yellow]warning[/] {escape(str(error))}", soft_wrap=True)
    try:
        app()
    except MyopsError as error:
        stderr.print(f"[bold red]error[/] {escape(str(error))}", soft_wrap=True)
        sys.exit(2 if isinstance(error, UsageError) else 1)
