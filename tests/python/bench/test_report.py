# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from myops.bench.report import BenchReport, Measurement, size_label
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
        tensors=2,
        samples=samples,
    )
    return replace(fields, **changes)


def report(*measurements, copy_gbps=10.0, load=0.0):
    return BenchReport.of(list(measurements), copy_gbps, 3, MACHINE, load)


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
    # 2 tensors of 4 MB: 8 MB in 1 ms are 8 GB/s.
    slow, fast = report(
        measurement("F.silu", (1e-3,) * 3), measurement("myops", (0.5e-3,) * 3)
    ).rows
    assert slow.gbps == pytest.approx(8.0)
    assert slow.median_us == pytest.approx(1000.0)
    assert not slow.above_copy
    assert fast.above_copy


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


def test_plot(tmp_path):
    measurements = []
    for elements in (10, 1000):
        for dtype in ("float32", "float16"):
            for name, seconds in (("F.silu", 2.0), ("myops", 1.0)):
                measurements.append(
                    measurement(name, (seconds,) * 3, elements=elements, dtype=dtype)
                )
    report(*measurements).plot(tmp_path / "ratios.png")
    assert (tmp_path / "ratios.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("elements", "label"), [(65_536, "64 Ki"), (3_145_728, "3 Mi"), (1000, "1,000")]
)
def test_size_label(elements, label):
    assert size_label(elements) == label
