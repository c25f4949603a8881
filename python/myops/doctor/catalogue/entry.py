# SPDX-License-Identifier: Apache-2.0
"""What the catalogue says of each finding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]
Area = Literal["library", "environment", "model", "session"]

REINSTALL = "Reinstall myops in this environment: pip install --force-reinstall --no-deps ."


@dataclass(frozen=True)
class Entry:
    """One kind of finding.

    Attributes:
        id: stable name, kebab-case.
        severity: "error": does not work; "warning": works otherwise than meant, or may not work;
            "note": worth knowing, does not count.
        area: what has to be looked at: a library, the environment, a model, or the running
            session.
        sentence: what is wrong.
        fix: what to do.
        apart: how to tell it from what looks alike; empty where nothing does.
    """

    id: str
    severity: Severity
    area: Area
    sentence: str
    fix: str
    apart: str = ""


def entries(area: Area, *rows: tuple[str, ...]) -> tuple[Entry, ...]:
    """Entries of one area from rows of id, severity, sentence, fix and, where needed, apart."""
    return tuple(Entry(row[0], row[1], area, *row[2:]) for row in rows)  # type: ignore[arg-type]
