# SPDX-License-Identifier: Apache-2.0
"""Seeded random models, damaged files and torch calls (``cases.py``), each kind in a process of its
own, so that a crash is seen, with the number of its case.

``MYOPS_FUZZ_CASES`` is the number of cases of each kind, ``MYOPS_FUZZ_FIRST`` the number of the
first, to go on where another run ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = int(os.environ.get("MYOPS_FUZZ_CASES", "500"))
FIRST = int(os.environ.get("MYOPS_FUZZ_FIRST", "0"))
BATCH = 2000
PROGRAM = Path(__file__).with_name("cases.py")

# What every kind has to come to, if it is to say anything.
OUTCOMES = {
    "models": {"right numbers", "refused at loading", "refused at running"},
    "damaged": {"ran", "refused at loading"},
    "torch": {"right numbers", "refused"},
}


def run_batch(kind: str, first: int, count: int) -> dict[str, int]:
    command = [sys.executable, str(PROGRAM), kind, str(first), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=540, check=False)
    lines = done.stdout.splitlines()
    last = lines[-1] if lines else "none"
    assert done.returncode == 0, (
        f"case {last} of {kind} ended with {done.returncode}; repeat it with\n"
        f"{sys.executable} {PROGRAM} {kind} {last} 1\n{done.stderr[-3000:]}"
    )
    outcomes: dict[str, int] = json.loads(last)
    return outcomes


@pytest.mark.parametrize("kind", OUTCOMES)
def test_exception_or_right_numbers(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    total: dict[str, int] = {}
    for first in range(FIRST, FIRST + CASES, BATCH):
        for outcome, count in run_batch(kind, first, min(BATCH, FIRST + CASES - first)).items():
            total[outcome] = total.get(outcome, 0) + count
    assert sum(total.values()) == CASES
    assert set(total) >= OUTCOMES[kind]
    with capsys.disabled():
        print(f"\n{CASES} cases of {kind}: {total}")


def test_crash_is_reported_with_its_case() -> None:
    """An unknown kind ends the process as an error of the program would."""
    with pytest.raises(AssertionError, match="case 0 of no_such_kind ended with 1"):
        run_batch("no_such_kind", 0, 1)
