# SPDX-License-Identifier: Apache-2.0
"""Times the cases of one contest in turns and in random order, and judges the claims by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
from myops.bench import interleaved
from myops.bench.agreement import check_case
from myops.bench.rivals import Case
from myops.bench.torch_rows import torch_threads

from claims.model import Claim, Goal, Row, Script, Settings


@dataclass(frozen=True)
class Setup:
    """What the cases of one contest have in common."""

    variant: str
    dtype: str
    size: int
    threads: int


@dataclass(frozen=True)
class Contest:
    """The cases of one setup.

    Attributes:
        cases: they share their buffers, which were written before.
        expected: name of the case -> the float64 result that it is checked against.
    """

    cases: Sequence[Case]
    expected: Mapping[str, npt.NDArray[Any]]

    @classmethod
    def of(cls, cases: Sequence[Case], expected: npt.NDArray[Any]) -> Contest:
        """Where all cases compute the same."""
        return cls(cases, {case.name: expected for case in cases})


def contests(script: Script, settings: Settings) -> dict[Setup, list[tuple[Claim, Goal]]]:
    """The setups of a script and the goals that each of them judges."""
    found: dict[Setup, list[tuple[Claim, Goal]]] = {}
    for claim in script.claims:
        for goal in claim.goals:
            if settings.wants(goal.size):
                for threads in claim.threads:
                    setup = Setup(claim.variant, claim.dtype, goal.size, threads)
                    found.setdefault(setup, []).append((claim, goal))
    return found


def total_rounds(script: Script, settings: Settings) -> int:
    """Rounds of all contests of a script."""
    return sum(settings.rounds_for(setup.size) for setup in contests(script, settings))


def measure_with(make: Callable[[Setup], Contest]) -> Callable[..., list[Row]]:
    """The ``measure`` of a script whose contests ``make`` sets up."""

    def run(script: Script, settings: Settings, on_round: Callable[[], object]) -> list[Row]:
        rows = []
        for setup, goals in contests(script, settings).items():
            with ExitStack() as stack:
                if goals[0][0].framework == "torch":
                    stack.enter_context(torch_threads(setup.threads))
                contest = make(setup)
                for case in contest.cases:
                    check_case(case, contest.expected[case.name], setup.dtype, goals[0][0].work)
                timings = interleaved(
                    {case.name: case.call for case in contest.cases},
                    settings.rounds_for(setup.size),
                    warmup=2,
                    min_sample=1e-3,
                    on_round=on_round,
                )
            cases = {case.name: case for case in contest.cases}
            seconds = {
                name: tuple(s / cases[name].repeats for s in timing.samples)
                for name, timing in timings.items()
            }
            rows += [
                Row.of(
                    claim,
                    goal,
                    setup.threads,
                    ours=seconds[claim.ours],
                    rival=seconds[claim.rival],
                    kernels=cases[claim.rival].kernels,
                )
                for claim, goal in goals
            ]
        return rows

    return run


def contest_script(name: str, claims: Sequence[Claim], make: Callable[[Setup], Contest]) -> Script:
    """A script whose contests run in its own process."""
    return Script(name, tuple(claims), measure_with(make), total_rounds)
