# SPDX-License-Identifier: Apache-2.0
"""The command line without a process of its own, which imports torch each time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from myops.cli import main


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run_myops(monkeypatch, capsys) -> Callable[..., Done]:
    """``run_myops(folder, *arguments)`` in that folder."""

    def run(folder: Path, *arguments: object) -> Done:
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", ["myops", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "200")
        capsys.readouterr()
        code: object = 0
        try:
            main()
        except SystemExit as end:
            code = end.code
        return Done(int(code or 0), *capsys.readouterr())

    return run
