# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import itertools

import pytest
from myops._errors import UsageError
from myops.bench import measure
from myops.bench.measure import Timing, copy_bandwidth, interleaved, orders, rotated


def test_orders_are_random_and_seeded():
    first = list(orders("abcd", 50, seed=1))
    assert first == list(orders("abcd", 50, seed=1))
    assert first != list(orders("abcd", 50, seed=2))
    assert all(sorted(order) == list("abcd") for order in first)
    assert len({tuple(order) for order in first}) > 10


def test_calls_follow_the_orders():
    calls: list[str] = []
    timings = interleaved(
        {name: lambda name=name: calls.append(name) for name in "abc"},
        rounds=8,
        warmup=0,
        seed=3,
        min_sample=0.0,
    )
    assert list(timings) == list("abc")
    # Per case one call to find the number of loops, then per turn an untimed and a timed one.
    expected = [name for order in orders("abc", 8, seed=3) for name in order]
    assert calls[3::2] == calls[4::2] == expected


def test_short_calls_are_repeated():
    timing = interleaved({"nothing": lambda: None}, rounds=3)["nothing"]
    assert timing.loops > 10
    assert len(timing.samples) == 3


def test_collector_comes_back():
    assert gc.isenabled()
    seen = []
    interleaved({"look": lambda: seen.append(gc.isenabled())}, rounds=1, min_sample=0.0)
    assert not any(seen)
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("samples", "expected"),
    [([2.0], (2.0, 2.0, 2.0)), ([1.0, 2.0, 3.0, 4.0, 5.0], (2.0, 3.0, 4.0))],
)
def test_quartiles(samples, expected):
    timing = Timing.of(samples)
    assert (timing.q1, timing.median, timing.q3) == expected


def test_wrong_use():
    with pytest.raises(UsageError, match="there should be a case"):
        interleaved({})
    with pytest.raises(UsageError, match="rounds should be at least 1"):
        interleaved({"a": lambda: None}, rounds=0)


def test_rotated_calls_take_turns():
    seen: list[str] = []
    call = rotated([lambda name=name: seen.append(name) for name in "abc"])
    for _ in range(5):
        call()
    assert seen == list("abcab")


def test_settle_waits_before_each_turn(monkeypatch):
    waits: list[int] = []
    monkeypatch.setattr(measure, "wait_for_idle_threads", lambda: waits.append(1))
    cases = {"a": lambda: None, "b": lambda: None}
    interleaved(cases, rounds=3, min_sample=0.0)
    assert len(waits) == 0
    interleaved(cases, rounds=3, min_sample=0.0, settle=True)
    assert len(waits) == 6


@pytest.mark.parametrize(
    ("used", "waits"),
    [([0.0, 0.0], 1), ([0.0, 0.01, 0.01, 0.012, 0.02, 0.0201], 3), ([0.0, 0.004, 0.01, 0.01], 2)],
)
def test_idle_is_when_no_time_is_used(monkeypatch, used, waits):
    times, sleeps = iter(used), []
    monkeypatch.setattr(measure, "process_time", lambda: next(times))
    monkeypatch.setattr(measure, "sleep", sleeps.append)
    measure.wait_for_idle_threads()
    assert sleeps == [0.01] * waits
    assert next(times, None) is None


def test_the_wait_for_idle_threads_ends(monkeypatch):
    used = itertools.count()
    monkeypatch.setattr(measure, "process_time", lambda: float(next(used)))
    monkeypatch.setattr(measure, "_LONGEST_WAIT", 0.05)
    measure.wait_for_idle_threads()
    assert next(used) >= 2


@pytest.mark.parametrize("threads", [1, 2])
def test_copy_bandwidth(threads):
    assert copy_bandwidth(2**20, threads=threads) > 0
