# SPDX-License-Identifier: Apache-2.0
"""Claims about speed, and the rows that judge them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from myops.bench import Timing
from myops.bench.rivals import OURS

LARGE = 2**22
"""Elements from which on a contest needs hundreds of megabytes and seconds; ``--quick`` stops
there."""


@dataclass(frozen=True)
class Goal:
    """What a claim says about one size.

    Attributes:
        size: elements of one tensor.
        target: the ratio to reach; for a cost, the ratio not to exceed.
        aim: the ratio hoped for, where it differs.
    """

    size: int
    target: float
    aim: float | None = None


@dataclass(frozen=True)
class Claim:
    """One sentence of the performance section.

    Attributes:
        name: unique among all scripts.
        work: what is computed, for readers.
        rival: the case it is compared with.
        framework: "torch", "onnxruntime" or "native".
        goals: one per size.
        dtype: of all tensors.
        threads: numbers of threads to measure with.
        variant: of the script's cases; claims of one variant, dtype, size and number of threads
            are measured in one contest.
        ours: the case that is ours.
        cost: the ratio is our time / the rival's and should stay below its target; otherwise it is
            the rival's time / ours and should reach it.
    """

    name: str
    work: str
    rival: str
    framework: str
    goals: tuple[Goal, ...]
    dtype: str = "float32"
    threads: tuple[int, ...] = (1,)
    variant: str = ""
    ours: str = OURS
    cost: bool = False


@dataclass(frozen=True)
class Row:
    """A goal, measured.

    Attributes:
        claim: name of the claim.
        work: of the claim.
        rival: of the claim.
        framework: of the claim.
        detail: which of several rows of one claim and size; mostly empty.
        size: elements of one tensor.
        dtype: of all tensors.
        threads: threads the framework may use.
        cost: as in ``Claim``.
        ratio: median over the rounds of the ratio within a round.
        ratio_q1: lower quartile.
        ratio_q3: upper quartile.
        ours_us: median microseconds of ours, per application of the operator.
        rival_us: the same of the rival.
        kernels: what ONNX Runtime ran for the rival.
        rounds: samples per case.
        target: as in ``Goal``.
        aim: as in ``Goal``.
        met: whether ``ratio`` satisfies ``target``.
    """

    claim: str
    work: str
    rival: str
    framework: str
    detail: str
    size: int
    dtype: str
    threads: int
    cost: bool
    ratio: float
    ratio_q1: float
    ratio_q3: float
    ours_us: float
    rival_us: float
    kernels: str
    rounds: int
    target: float
    aim: float | None
    met: bool

    @classmethod
    def of(
        cls,
        claim: Claim,
        goal: Goal,
        threads: int,
        ours: tuple[float, ...],
        rival: tuple[float, ...],
        kernels: str = "",
        detail: str = "",
    ) -> Row:
        """From seconds per application, one value per round."""
        above, below = (ours, rival) if claim.cost else (rival, ours)
        ratio = Timing.of([a / b for a, b in zip(above, below, strict=True)])
        return cls(
            claim=claim.name,
            work=claim.work,
            rival=claim.rival,
            framework=claim.framework,
            detail=detail,
            size=goal.size,
            dtype=claim.dtype,
            threads=threads,
            cost=claim.cost,
            ratio=ratio.median,
            ratio_q1=ratio.q1,
            ratio_q3=ratio.q3,
            ours_us=Timing.of(ours).median * 1e6,
            rival_us=Timing.of(rival).median * 1e6,
            kernels=kernels,
            rounds=len(ours),
            target=goal.target,
            aim=goal.aim,
            met=satisfies(ratio.median, goal.target, claim.cost),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for json."""
        return asdict(self)


def satisfies(ratio: float, target: float, cost: bool) -> bool:
    """Whether a ratio is on the right side of its target."""
    return ratio <= target if cost else ratio >= target


@dataclass(frozen=True)
class Settings:
    """How long to measure.

    Attributes:
        rounds: samples per case; by size if None.
        largest: sizes above are left out; none if None.
    """

    rounds: int | None = None
    largest: int | None = None

    @classmethod
    def quick(cls) -> Settings:
        """Proves that a script works; the figures mean nothing."""
        return cls(rounds=3, largest=LARGE)

    def rounds_for(self, size: int) -> int:
        """Small sizes are cheap and noisy, large ones slow and steady."""
        if self.rounds is not None:
            return self.rounds
        return 100 if size <= 2**17 else 40 if size <= LARGE else 20

    def wants(self, size: int) -> bool:
        """Whether this size is to be measured."""
        return self.largest is None or size <= self.largest


Measure = Callable[["Script", Settings, Callable[[], object]], list[Row]]
"""``measure(script, settings, on_round)``."""


@dataclass(frozen=True)
class Script:
    """One script of this folder.

    Attributes:
        name: its file without the suffix.
        claims: what it measures.
        measure: gives a row per goal and number of threads, or several with details.
        total_rounds: calls of ``on_round`` to expect.
    """

    name: str
    claims: tuple[Claim, ...]
    measure: Measure
    total_rounds: Callable[[Script, Settings], int]
