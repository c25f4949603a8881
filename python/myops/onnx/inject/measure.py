# SPDX-License-Identifier: Apache-2.0
"""Which replacements pay, on this machine, in the installed ONNX Runtime.

Whole models take turns in random order; what counts is the ratio within a round, original / trial.
The original also runs against a second session of itself: how far that ratio is from 1 is the
noise, which a trial has to beat.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from myops.bench.measure import Timing, interleaved, wait_for_idle_threads
from myops.ort.session import session

ORIGINAL = "original"
AGAIN = "original again"
ALIKE = "all alike"
BEST = "best so far"

# Less is not worth a changed file.
LEAST_GAIN = 0.01
# Median of n ratios +- this times their interquartile range / sqrt(n): its 95 % interval.
_NOTCH = 1.57
_FEWEST, _MOST = 9, 101
_SECONDS = 6.0
_REPEATS = 4

Choices = Mapping[str, str]
"""Group -> target, empty for leaving it alone."""


@dataclass(frozen=True)
class Trial:
    """One candidate model, measured.

    Attributes:
        name: for people.
        stage: the contest it took part in; figures of one stage compare.
        milliseconds: median time of a run.
        ratio: median of original / this within a round; above 1 is faster.
        low, high: the 95 % interval of the ratio.
        noise: the same contest's distance of the original from itself.
        gain: lower end of the 95 % interval of best so far / this.
    """

    name: str
    stage: str
    milliseconds: float
    ratio: float
    low: float
    high: float
    noise: float
    gain: float

    @property
    def threshold(self) -> float:
        """The ratio that counts as faster."""
        return 1.0 + max(self.noise, LEAST_GAIN)

    @property
    def settled(self) -> bool:
        """Whether more rounds would hardly change the verdict."""
        return self.low > self.threshold or self.high < self.threshold

    @property
    def wins(self) -> bool:
        """Whether it is faster beyond noise."""
        return self.low > self.threshold

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"wins": self.wins}


@dataclass
class Contest:
    """Measures variants of one model against its original.

    Attributes:
        build: writes the model with given choices and returns its path.
        feeds: the inputs.
        threads: of each session; ONNX Runtime's default if None.
        plugin: another plugin than the installed one; False for none.
        on_round: called after each round with a text.
        trials: all that was measured.
    """

    build: Callable[[Choices], Path]
    feeds: Mapping[str, Any]
    threads: int | None
    plugin: str | bool | None
    on_round: Callable[[str], object]
    seconds: float = _SECONDS
    trials: list[Trial] = field(default_factory=list)
    _sessions: dict[tuple[tuple[str, str], ...], Any] = field(default_factory=dict)
    _again: Any = None

    def _open(self, choices: Choices) -> Any:
        return session(self.build(choices), intra_op_num_threads=self.threads, plugin=self.plugin)

    def _session(self, choices: Choices) -> Any:
        key = tuple(sorted((k, v) for k, v in choices.items() if v))
        if key not in self._sessions:
            self._sessions[key] = self._open(choices)
        return self._sessions[key]

    def measure(
        self,
        stage: str,
        variants: Mapping[str, Choices],
        seconds: float,
        base: str = ORIGINAL,
        repeats: int = 1,
    ) -> dict[str, Trial]:
        """Times variants and the original.

        Args:
            stage: name of the contest.
            variants: name -> choices.
            seconds: to spend.
            base: the case that ``gain`` of the trials refers to.
            repeats: how often to go on where it is open whether a variant wins.

        Returns:
            name -> trial, without the original.
        """
        if self._again is None:
            self._again = self._open({})
        feeds = dict(self.feeds)

        def call(opened: Any) -> Callable[[], object]:
            return lambda: opened.run(None, feeds)

        cases = {ORIGINAL: call(self._session({})), AGAIN: call(self._again)}
        cases |= {name: call(self._session(choices)) for name, choices in variants.items()}
        cases[ORIGINAL]()
        start = perf_counter()
        cases[ORIGINAL]()
        turn = 2 * max(perf_counter() - start, 2e-4)  # one run is not timed
        settle = self.threads is None or self.threads > 1
        if settle:
            start = perf_counter()
            wait_for_idle_threads()
            turn += perf_counter() - start
        rounds = int(seconds / (len(cases) * turn))
        rounds = min(max(rounds, _FEWEST), _MOST)
        samples: dict[str, list[float]] = {name: [] for name in cases}
        for repeat in range(repeats):
            timings = interleaved(
                cases,
                rounds,
                warmup=2,
                seed=repeat,
                settle=settle,
                on_round=lambda: self.on_round(f"measuring: {stage}"),
            )
            for name, timing in timings.items():
                samples[name] += timing.samples
            found = _trials(stage, samples, base)
            if all(found[name].settled for name in variants):
                break
        self.trials += found.values()
        found.pop(AGAIN)
        return found


def _ratio(original: Sequence[float], other: Sequence[float]) -> tuple[float, float, float]:
    ratios = [a / b for a, b in zip(original, other, strict=True)]
    spread = Timing.of(ratios)
    notch = _NOTCH * (spread.q3 - spread.q1) / math.sqrt(len(ratios))
    return spread.median, spread.median - notch, spread.median + notch


def _trials(stage: str, samples: Mapping[str, Sequence[float]], base: str) -> dict[str, Trial]:
    original = samples[ORIGINAL]
    again, low, high = _ratio(original, samples[AGAIN])
    # Half of what lies between the median and 1 may be chance; all of it where 1 is excluded.
    noise = abs(again - 1.0) if low > 1.0 or high < 1.0 else abs(again - 1.0) / 2
    found = {}
    for name, times in samples.items():
        if name != ORIGINAL:
            ratio, low, high = _ratio(original, times)
            gain = _ratio(samples[base], times)[1]
            milliseconds = Timing.of(times).median * 1e3
            found[name] = Trial(name, stage, milliseconds, ratio, low, high, noise, gain)
    return found


def _text(choices: Choices) -> str:
    return ", ".join(f"{group}: {target or 'as it is'}" for group, target in choices.items())


def decide(contest: Contest, options: Mapping[str, Sequence[str]]) -> tuple[Choices, Trial | None]:
    """The fastest choices, one per group, and the trial that shows it.

    First each target for all groups at once; from the best of these, one group after the other is
    tried otherwise. What comes out is measured anew against the original and has to win.

    Args:
        contest: to measure with.
        options: group -> targets it can have, the group with most places first.

    Returns:
        The choices, and the last trial; all empty if nothing wins.
    """
    nothing: Choices = dict.fromkeys(options, "")
    targets = list(dict.fromkeys(target for allowed in options.values() for target in allowed))
    variants: dict[str, Choices] = {}
    for target in targets:
        choices = {g: target if target in allowed else "" for g, allowed in options.items()}
        variants[f"all {target}"] = choices
    if not variants:
        return nothing, None
    trials = contest.measure(ALIKE, variants, contest.seconds)
    name = max(trials, key=lambda n: trials[n].ratio)
    best: Choices = variants[name] if trials[name].ratio > 1.0 else nothing
    for group, allowed in options.items() if len(options) > 1 else ():
        others: dict[str, Choices] = {
            f"{group}: {target or 'as it is'}": {**best, group: target}
            for target in ("", *allowed)
            if target != best[group]
        }
        others[BEST] = best
        trials = contest.measure(group, others, contest.seconds / 2, base=BEST)
        name = max(others, key=lambda n: trials[n].ratio)
        if name != BEST and trials[name].gain > 1.0:
            best = others[name]
    if not any(best.values()):
        return nothing, None
    name = _text(best)
    final = contest.measure("the result", {name: best}, contest.seconds, repeats=_REPEATS)[name]
    return (best, final) if final.wins else (nothing, final)
