# SPDX-License-Identifier: Apache-2.0
"""The one file that holds the figures of all scripts."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

from myops._errors import UsageError

from claims.model import Row, Script

FOLDER = Path(__file__).resolve().parent.parent
RECORD = FOLDER / "results" / "recorded.json"

SCRIPTS = (
    "torch_swish",
    "torch_swish_half",
    "torch_swish_backward",
    "torch_swiglu",
    "torch_rms_norm",
    "torch_call",
    "torch_strides",
    "torch_threads",
    "ort_swish",
    "ort_activations",
    "ort_threads",
    "inject_models",
    "vectorisation",
)
"""In the order of the README's tables."""


def scripts() -> list[Script]:
    """All scripts, without running one."""
    found: list[Script] = [importlib.import_module(name).SCRIPT for name in SCRIPTS]
    return found


def read(path: Path) -> dict[str, Any]:
    """A record, as ``run_all.py`` wrote it.

    Raises:
        UsageError: it is no record.
    """
    try:
        record: dict[str, Any] = json.loads(path.read_text())
        rows_of(record)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            "benchmarks",
            "the record should be a file that run_all.py wrote",
            f"{path}: {type(error).__name__}: {error}",
            "Run: python benchmarks/run_all.py",
        ) from error
    return record


def rows_of(record: dict[str, Any]) -> list[Row]:
    """The rows of a record."""
    return [Row(**fields) for fields in record["rows"]]


def gaps(record: dict[str, Any], of: list[Script]) -> list[str]:
    """Goals that a record should have and does not, as "claim, size, threads", and rows that no
    claim asks for. Claims listed as missing are excused."""
    wanted = {
        (claim.name, goal.size, threads)
        for script in of
        for claim in script.claims
        for goal in claim.goals
        for threads in claim.threads
        if claim.name not in record["missing"]
    }
    found = {(row.claim, row.size, row.threads) for row in rows_of(record)}
    return [", ".join(map(str, key)) for key in sorted(wanted ^ found)]
