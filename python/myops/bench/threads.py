# SPDX-License-Identifier: Apache-2.0
"""How many threads are worth it?"""

from __future__ import annotations

from collections.abc import Mapping

from myops._errors import UsageError
from myops.bench.measure import WHERE

TOLERANCE = 0.05
"""A gain below this share of the time is not worth another thread, and hardly above noise."""


def knee(seconds: Mapping[int, float], tolerance: float = TOLERANCE) -> int:
    """The fewest threads that are about as fast as any number of them.

    Args:
        seconds: number of threads -> time, in any unit.
        tolerance: how much longer than the shortest time still counts as equal to it, as a share.
    """
    limit = min(seconds.values()) * (1 + tolerance)
    return min(threads for threads, time in seconds.items() if time <= limit)


def parse_threads(text: str) -> tuple[int, ...]:
    """ "1,2,4" or "1-4", or both, as ascending numbers without repetitions.

    Raises:
        UsageError: it has another form, or a number is below 1.
    """
    numbers: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last) <= 4096):
            raise UsageError(
                WHERE,
                "threads should be at least 1, written like 2, 1,2,4 or 1-4",
                repr(text),
                "Correct it",
            )
        numbers.update(range(int(first), int(last) + 1))
    return tuple(sorted(numbers))
