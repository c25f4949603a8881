# SPDX-License-Identifier: Apache-2.0
"""Running commands in environments that know nothing of the one the tests run in."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

PYTHON = Path(sys.executable)
ROOT = Path(__file__).parents[2]


def run(
    command: Sequence[str | Path],
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    errors_too: bool = False,
) -> str:
    """Runs a command and returns its standard output, with ``errors_too`` what it wrote to standard
    error as well. Shows everything when the command fails."""
    parts = [str(part) for part in command]
    done = subprocess.run(parts, capture_output=True, text=True, cwd=cwd, env=env, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout + (done.stderr if errors_too else "")


def environment(**changes: str) -> dict[str, str]:
    """The environment of a shell that knows nothing of the one the tests run in."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return kept | changes


class Venv:
    """A virtual environment of its own, without pip. ``beside``: folders of packages it sees."""

    def __init__(self, folder: Path, beside: Sequence[Path] = ()) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        self.python = folder / "bin" / "python"
        if beside:
            (site_packages,) = folder.glob("lib/python*/site-packages")
            lines = "".join(f"{path}\n" for path in beside)
            (site_packages / "beside.pth").write_text(lines)

    def install(self, *packages: str | Path) -> None:
        """With the pip of the environment the tests run in."""
        pip = [PYTHON, "-m", "pip", "--python", self.python]
        run([*pip, "install", "--quiet", *packages], env=environment())

    def check(self, code: str, *arguments: str | Path, cwd: Path | None = None) -> str:
        """Runs Python code in the environment, away from the source tree."""
        return run(
            [self.python, "-c", code, *arguments],
            cwd=cwd or self.python.parent,
            env=environment(),
        )


class NoWheelError(Exception):
    """The package index has no wheel of that release for this Python."""


def install_folder(folder: Path, *packages: str | Path) -> Path:
    """A folder with the packages and none of what they depend on, for ``Venv(beside=...)``.

    Raises:
        NoWheelError: there is none.
    """
    command = [
        *(PYTHON, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"),
        *("--no-compile", "--target", folder, *packages),
    ]
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    if "No matching distribution found" in done.stderr:
        raise NoWheelError(f"no wheel of {' '.join(map(str, packages))} for this Python")
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return folder
