# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from myops._errors import UsageError
from myops.bench.report import BenchReport, Measurement, Missing, Spread, size_label
from myops.bench.threads import knee, parse_threads
from rich.console import Console

MACHINE = {"cpu": "abacus", "cores": 2}


def measurement(name, samples, **changes):
    fields = Measurement(
        op="Swish",
        framework="torch",
        name=name,
        kernels="",
        elements=1_000_000,
        dtype="float32",
        threads=1,
        moved=8_000_000,
        samples=samples,
    )
    return replace(fields, **changes)


def report(*measurements, copy_gbps=10.0, load=0.0, missing=()):
    copy = {m.threads: copy_gbps for m in measurements}
    return BenchReport.of(measurements, copy, 3, 1, MACHINE, load, missing)


def test_ratio_is_the_median_of_the_rounds_ratios():
    # The medians' ratio would be 4e-3 / 2e-3; what the rounds agree on is 3.
    rows = report(
        measurement("F.silu", (3e-3, 12e-3, 4e-3)), measurement("myops", (1e-3, 4e-3, 2e-3))
    ).rows
    assert rows[0].ratio == pytest.approx(3.0)
    assert rows[0].ratio_q1 == pytest.approx(2.5)
    assert (rows[1].ratio, rows[1].ratio_q1, rows[1].ratio_q3) == (1.0, 1.0, 1.0)


def test_ratios_stay_within_framework_size_dtype_and_threads():
    variants = [{}, {"framework": "onnxruntime"}, {"elements": 10}, {"dtype": "float16"}]
    variants.append({"threads": 2})
    measurements = []
    for factor, changes in enumerate(variants, start=2):
        measurements.append(measurement("rival", (factor * 1.0,) * 3, **changes))
        measurements.append(measurement("myops", (1.0,) * 3, **changes))
    rivals = [row for row in report(*measurements).rows if row.name == "rival"]
    assert [row.ratio for row in rivals] == [2, 3, 4, 5, 6]


def test_bandwidth_and_the_flag_above_copy():
    # 8 MB in 1 ms are 8 GB/s.
    slow, fast = report(
        measurement("F.silu", (1e-3,) * 3), measurement("myops", (0.5e-3,) * 3)
    ).rows
    assert slow.gbps == pytest.approx(8.0)
    assert slow.median_us == pytest.approx(1000.0)
    assert (slow.of_copy, fast.of_copy) == (pytest.approx(0.8), pytest.approx(1.6))
    assert not slow.above_copy
    assert fast.above_copy
    headers, lines = report(measurement("myops", (0.5e-3,) * 3)).cells()
    assert lines[0][headers.index("copy")] == "160%*"


@pytest.mark.parametrize(
    ("samples", "text"),
    [
        ([1, 2, 3, 4, 5], "3.00 (2.00)"),
        ([0.04, 0.05, 0.06], "0.0500 (0.0100)"),
        ([1234.4, 1234.4], "1234 (0)"),
        ([56.78, 56.78], "56.8 (0.0)"),
        ([0, 0], "0 (0)"),
    ],
)
def test_spread_as_text(samples, text):
    assert Spread.of([float(sample) for sample in samples]).with_range() == text


def test_notes_say_what_the_star_means():
    fast = report(measurement("myops", (0.5e-3,) * 3))
    assert any("cache" in note for note in fast.notes())
    assert not any("cache" in note for note in report(measurement("myops", (1.0,) * 3)).notes())


def test_notes_say_that_the_machine_was_busy():
    rows = [measurement("myops", (1.0,) * 3)]
    assert any("busy" in note for note in report(*rows, load=4.0).notes())
    assert not any("busy" in note for note in report(*rows, load=0.3).notes())


def test_dictionary_is_json():
    found = report(measurement("F.silu", (2.0,) * 3), measurement("myops", (1.0,) * 3))
    again = json.loads(json.dumps(found.to_dict()))
    assert again["rows"][0]["ratio"] == 2.0
    assert again["machine"] == MACHINE


def test_table_fits_80_columns():
    found = report(measurement("x*sigmoid(x)", (2e-3,) * 3), measurement("myops", (1e-3,) * 3))
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(found.table())
    text = console.export_text()
    assert "…" not in text
    assert "2.00 (2.00-2.00)" in text
    assert "Swish, float32, 1 thread" in text


def test_rows_that_are_missing_stand_in_the_table_with_their_reason():
    absent = Missing("Swish", "torch", "torch.compile", 1_000_000, "float32", 1, "no C++ compiler")
    found = report(measurement("myops", (1e-3,) * 3), missing=[absent])
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(found.table())
    lines = console.export_text().splitlines()
    (row,) = [line for line in lines if "torch.compile" in line and "none" in line]
    assert "1,000,000" in row
    assert any("No row torch.compile (torch): no C++ compiler" in line for line in lines)
    assert json.loads(json.dumps(found.to_dict()))["missing"][0]["why"] == "no C++ compiler"


def test_knee_of_our_rows():
    rows = [
        measurement("myops", (seconds,) * 3, threads=threads)
        for threads, seconds in ((1, 4.0), (2, 2.0), (4, 1.95))
    ]
    found = report(*rows)
    assert [entry["threads"] for entry in found.knees()] == [2]
    assert report(rows[0]).knees() == []
    assert "threads" in found.cells()[0]
    assert any("torch.set_num_threads 2 is enough" in note for note in found.notes())


@given(st.dictionaries(st.integers(1, 64), st.floats(1e-6, 1e3), min_size=1))
def test_knee_is_the_fewest_threads_near_the_best(seconds):
    found = knee(seconds)
    assert seconds[found] <= 1.05 * min(seconds.values())
    assert all(seconds[n] > 1.05 * min(seconds.values()) for n in seconds if n < found)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("1", (1,)), ("4,1,2", (1, 2, 4)), ("1-3", (1, 2, 3)), ("2,1-2, 8", (1, 2, 8))],
)
def test_threads_as_text(text, numbers):
    assert parse_threads(text) == numbers


@pytest.mark.parametrize("text", ["", "0", "2-1", "1,,2", "a", "-1", "1.5", "99999"])
def test_threads_as_wrong_text(text):
    with pytest.raises(UsageError, match="threads should be at least 1"):
        parse_threads(text)


def test_plot(tmp_path):
    measurements = []
    for elements in (10, 1000):
        for dtype in ("float32", "float16"):
            for name, seconds in (("F.silu", 2.0), ("myops", 1.0)):
                measurements.append(
                    measurement(name, (seconds,) * 3, elements=elements, dtype=dtype)
                )
    # A rival that one size lacks leaves a gap.
    report(*measurements[1:]).plot(tmp_path / "ratios.png")
    assert (tmp_path / "ratios.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("elements", "label"), [(65_536, "64 Ki"), (3_145_728, "3 Mi"), (1000, "1,000")]
)
def test_size_label(elements, label):
    assert size_label(elements) == label
