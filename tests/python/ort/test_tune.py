# SPDX-License-Identifier: Apache-2.0
"""The tuning of session settings: rows, choice, command. No times."""

from __future__ import annotations

import functools
import io
import json
from dataclasses import replace
from pathlib import Path

import myops.ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from myops._errors import ModelError, UsageError
from myops.ort.tune_report import Setting, Tuning
from rich.console import Console

from . import control_flow


@pytest.fixture(scope="module")
def flow(tmp_path_factory) -> Path:
    return control_flow.saved(tmp_path_factory.mktemp("flow"))


def test_every_combination_is_measured(flow: Path) -> None:
    totals: list[int] = []
    found = myops.ort.tune(
        flow, control_flow.inputs(), threads=(1, 2), rounds=2, warmup=1, on_round=totals.append
    )
    assert totals == [2, 2]
    rows = [(r.intra_op_num_threads, r.plugin, r.graph_optimization_level) for r in found.rows]
    levels = ("basic", "extended", "all")
    assert rows == [(n, p, level) for n in (1, 2) for p in (False, True) for level in levels]
    assert all(row.difference < 1e-4 for row in found.rows)
    assert all(row.q1_ms <= row.median_ms <= row.q3_ms for row in found.rows)
    assert found.best in found.rows
    session = myops.ort.session(flow, **found.best.arguments())
    assert session.get_session_options().intra_op_num_threads == found.best.intra_op_num_threads
    data = json.loads(json.dumps(found.to_dict()))
    assert data["best"] in data["rows"]


def setting(threads: int, milliseconds: float, level: str = "all", plugin: bool = False) -> Setting:
    return Setting(threads, level, plugin, milliseconds, milliseconds, milliseconds, 0.0)


def tuning(*rows: Setting) -> Tuning:
    return Tuning("m.onnx", list(rows), {"x": "float32[2]"}, 3, {"cpu": "abacus", "cores": 4}, 0.0)


@pytest.mark.parametrize(
    ("rows", "best"),
    [
        ([setting(1, 10.0), setting(2, 5.0), setting(4, 4.9)], 1),
        ([setting(1, 10.0), setting(2, 5.0), setting(4, 4.0)], 2),
        ([setting(1, 5.0, "basic"), setting(1, 5.1, "all"), setting(1, 5.1, "extended")], 1),
        ([setting(1, 5.0, plugin=True), setting(1, 5.1)], 1),
        ([setting(1, 5.0, plugin=True), setting(1, 5.3)], 0),
    ],
)
def test_best_is_the_simplest_of_the_fastest(rows, best: int) -> None:
    assert tuning(*rows).best is rows[best]


@given(
    st.lists(
        st.builds(
            setting,
            st.integers(1, 8),
            st.floats(0.01, 1e4),
            st.sampled_from(["basic", "extended", "all"]),
            st.booleans(),
        ),
        min_size=1,
    )
)
def test_best_is_never_slow(rows: list[Setting]) -> None:
    best = tuning(*rows).best
    assert best.median_ms <= 1.03 * min(row.median_ms for row in rows)


def test_arguments() -> None:
    assert setting(3, 1.0, "basic", plugin=False).arguments() == {
        "intra_op_num_threads": 3,
        "graph_optimization_level": "basic",
        "plugin": False,
    }
    assert setting(3, 1.0, plugin=True).arguments()["plugin"] is None


def test_table_and_notes() -> None:
    rows = [setting(1, 10.0), replace(setting(2, 5.0), difference=0.5)]
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(tuning(*rows).table())
    text = " ".join(console.export_text().split())
    assert "Best: intra_op_num_threads=2, graph_optimization_level=all, without the plugin" in text
    assert "5 !" in text and "! Outputs differ" in text
    assert "2.00" in text  # the slow row, relative to the best


def test_infinite_difference_is_json(tmp_path: Path) -> None:
    data = tuning(replace(setting(1, 1.0), difference=float("inf"))).to_dict()
    assert json.loads(json.dumps(data, allow_nan=False))["best"]["difference"] is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threads": (0,)}, "threads and rounds should be at least 1"),
        ({"threads": ()}, "threads and rounds should be at least 1"),
        ({"rounds": 0}, "threads and rounds should be at least 1"),
        ({"levels": ("most",)}, "levels should be among"),
        ({"levels": ()}, "levels should be among"),
        ({"dims": {"M": 3}}, "dims should name symbolic dims"),
    ],
)
def test_wrong_use(flow: Path, options, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        myops.ort.tune(flow, **options)


def test_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="the model file should exist"):
        myops.ort.tune(tmp_path / "none.onnx")


def test_command(flow: Path, myops_command) -> None:
    run = functools.partial(myops_command, "tune", flow)
    few = ("--dim", "N=64", "--threads", "1", "--runs", "2")
    done = run(*few, "--level", "all", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [row["plugin"] for row in found["rows"]] == [False, True]
    assert found["inputs"]["x"] == "float32[64]"
    done = run(*few)
    assert "Best: intra_op_num_threads=1" in done.stdout
    done = run("--threads", "0")
    assert done.returncode == 2 and "threads should be at least 1" in done.stderr
