# SPDX-License-Identifier: Apache-2.0
"""Writes the README's performance section and its picture from the recorded figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from claims.record import FOLDER, RECORD, read, rows_of
from claims.tables import section
from myops._errors import MyopsError, UsageError
from rich.console import Console
from rich.markup import escape

README = FOLDER.parent / "README.md"
PICTURE = FOLDER.parent / "docs" / "images" / "speed.svg"
BEGIN = "<!-- speed: written by benchmarks/readme_table.py -->"
END = "<!-- speed: end -->"


def replaced(readme: str, text: str) -> str:
    """The README with this text between the markers.

    Raises:
        UsageError: the markers are missing.
    """
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UsageError(
            "benchmarks",
            "the README should hold both markers",
            "one without them",
            f"Put {BEGIN} and {END} where the figures belong",
        )
    return f"{before}{BEGIN}\n\n{text}\n{END}{after}"


def rendered(record_path: Path) -> str:
    """The section that belongs to a record, or to none."""
    if not record_path.is_file():
        return section(None, [])
    record = read(record_path)
    return section(record, rows_of(record))


def update(record: Path, readme: Path, picture: Path) -> None:
    """Writes the section, and the picture where there is a record.

    Raises:
        UsageError: no markers, no record, or one of a quick run.
    """
    if record.is_file():
        data = read(record)
        if data["quick"]:
            raise UsageError(
                "benchmarks",
                "the README should show figures of a full run",
                f"{record}, which a quick run wrote",
                "Run: python benchmarks/run_all.py",
            )
        from claims.picture import draw

        draw(rows_of(data), picture)
    text = replaced(readme.read_text(), rendered(record))
    temporary = readme.with_name(f".{readme.name}.tmp")
    temporary.write_text(text)
    temporary.replace(readme)


def main(
    record: Annotated[Path, typer.Option(help="What run_all.py wrote.")] = RECORD,
    readme: Annotated[Path, typer.Option(help="File with the two markers.")] = README,
    picture: Annotated[Path, typer.Option(help="SVG file to write.")] = PICTURE,
) -> None:
    try:
        update(record, readme, picture)
    except MyopsError as error:
        Console(stderr=True).print(f"[bold red]error[/] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(1) from error


if __name__ == "__main__":
    typer.run(main)
