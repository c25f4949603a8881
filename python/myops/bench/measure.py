# SPDX-License-Identifier: Apache-2.0
"""Timing that survives a shared machine: rivals take turns, in random order, in one run."""

from __future__ import annotations

import contextlib
import gc
import itertools
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter, process_time, sleep

import numpy as np

from myops._errors import UsageError

WHERE = "myops.bench"

MIN_SAMPLE = 200e-6
"""Seconds one sample should last at least, so that the clock's own cost does not show."""

_PIECES = 8

# Linux counts a running thread's time at its timer ticks, 10 ms apart at most.
_WINDOW = 10e-3
_LONGEST_WAIT = 0.5


@dataclass(frozen=True)
class Timing:
    """Seconds per call.

    Attributes:
        median: of the samples.
        q1: lower quartile.
        q3: upper quartile.
        samples: one per round.
        loops: calls per sample.
    """

    median: float
    q1: float
    q3: float
    samples: tuple[float, ...]
    loops: int

    @classmethod
    def of(cls, samples: Sequence[float], loops: int = 1) -> Timing:
        """Median and quartiles of ``samples`` (seconds per call)."""
        if len(samples) == 1:
            q1 = median = q3 = samples[0]
        else:
            q1, median, q3 = statistics.quantiles(samples, n=4, method="inclusive")
        return cls(median, q1, q3, tuple(samples), loops)


def orders(names: Sequence[str], rounds: int, seed: int = 0) -> Iterator[list[str]]:
    """For each round the order in which the cases take their turns: random, the same per seed."""
    generator = random.Random(seed)
    for _ in range(rounds):
        order = list(names)
        generator.shuffle(order)
        yield order


def rotated(calls: Sequence[Callable[[], object]]) -> Callable[[], object]:
    """One call that makes the next of ``calls`` each time: the same work on other buffers, so that
    a call does not find in the caches what the one before it left there."""
    if len(calls) == 1:
        return calls[0]
    following = itertools.cycle(calls).__next__
    return lambda: following()()


def _sample(call: Callable[[], object], loops: int) -> float:
    turns = range(loops)
    start = perf_counter()
    for _ in turns:
        call()
    return perf_counter() - start


def _loops(call: Callable[[], object], min_sample: float) -> int:
    loops = 1
    while (seconds := _sample(call, loops)) < min_sample:
        # Aims a little high: a sample that falls short would cost another turn of this loop.
        wanted = 1.2 * min_sample * loops / max(seconds, 1e-9)
        loops = max(2 * loops, min(int(wanted), 16 * loops))
    return loops


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def wait_for_idle_threads() -> None:
    """Returns once this process uses no processor time, or after half a second: worker threads of
    ONNX Runtime and OpenMP spin for up to some 50 ms after their last work."""
    end = perf_counter() + _LONGEST_WAIT
    while perf_counter() < end:
        used = process_time()
        sleep(_WINDOW)
        if process_time() - used < 0.1 * _WINDOW:
            return


def interleaved(
    cases: Mapping[str, Callable[[], object]],
    rounds: int = 30,
    warmup: int = 10,
    *,
    seed: int = 0,
    min_sample: float = MIN_SAMPLE,
    settle: bool = False,
    on_round: Callable[[], object] | None = None,
) -> dict[str, Timing]:
    """Times the cases against each other.

    In every round each case is sampled once, in an order drawn anew: what disturbs the machine
    for a while hits all of them alike. One call before each sample is not timed: it finds the
    caches as another case left them, and would weigh more on slow cases, which need fewer calls
    per sample.

    Args:
        cases: name -> what to call.
        rounds: samples per case.
        warmup: calls of each case before the first sample.
        seed: of the orders.
        min_sample: seconds; short calls are repeated until one sample lasts this long.
        settle: whether to wait for idle threads before a case's turn. Worker threads of the case
            before it spin for a while after its last call and would take this one's cores: for
            cases with thread pools of their own.
        on_round: called after each round, for progress bars.

    Returns:
        name -> seconds per call, in the order of ``cases``.

    Raises:
        UsageError: no cases, or no rounds.
    """
    if not cases:
        raise UsageError(WHERE, "there should be a case to time", "none", "Pass at least one")
    if rounds < 1:
        raise UsageError(WHERE, "rounds should be at least 1", str(rounds), "Pass more")
    samples: dict[str, list[float]] = {name: [] for name in cases}
    with _without_collector():
        for call in cases.values():
            _sample(call, warmup)
        loops = {name: _loops(call, min_sample) for name, call in cases.items()}
        for order in orders(list(cases), rounds, seed):
            for name in order:
                if settle:
                    wait_for_idle_threads()
                cases[name]()
                samples[name].append(_sample(cases[name], loops[name]) / loops[name])
            if on_round is not None:
                on_round()
    return {name: Timing.of(values, loops[name]) for name, values in samples.items()}


def copy_bandwidth(size: int = 256 * 2**20, threads: int = 1, rounds: int = 12) -> float:
    """What this machine moves when it only copies memory, in GB/s (1e9 bytes per second).

    Args:
        size: bytes to copy. Far above the caches, so that memory is measured.
        threads: that copy at the same time, a slice each.
        rounds: passes over the memory. It is copied in pieces that take a few milliseconds, and
            the best of all is the result: this is a limit, not a rival, and a short piece has a
            chance to run undisturbed.

    Returns:
        Bytes read plus bytes written per second, the same count as in ``BenchRow.gbps``.
    """
    source = np.ones(size, np.uint8)
    target = np.zeros(size, np.uint8)
    pieces = [
        list(zip(np.array_split(to, threads), np.array_split(of, threads), strict=True))
        for to, of in zip(
            np.array_split(target, _PIECES), np.array_split(source, _PIECES), strict=True
        )
    ]
    best = 0.0
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(rounds):
            for piece in pieces:
                start = perf_counter()
                # numpy releases the interpreter's lock while it copies.
                list(pool.map(lambda pair: np.copyto(*pair), piece))
                moved = 2 * sum(to.nbytes for to, _ in piece)
                best = max(best, moved / (perf_counter() - start))
    return best / 1e9
