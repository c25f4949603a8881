# SPDX-License-Identifier: Apache-2.0
"""The scripts in benchmarks/: their claims, their record, and what the README says of it."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from myops import functional
from myops._errors import MyopsError, UsageError

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks"
sys.path.insert(0, str(FOLDER))

import readme_table  # noqa: E402
import run_all  # noqa: E402
from claims import record as records  # noqa: E402
from claims.model import Claim, Goal, Row, Settings  # noqa: E402
from claims.script import write_json  # noqa: E402

assert functional  # the operators are registered

SCRIPTS = records.scripts()
# Those that take minutes however small their sizes are have tests of their own.
IN_PROCESS = [s for s in SCRIPTS if s.name not in ("vectorisation", "inject_models")]
TINY = 256


def test_every_script_is_listed() -> None:
    files = {path.stem for path in FOLDER.glob("*.py")} - {"run_all", "readme_table"}
    assert files == set(records.SCRIPTS)
    assert [script.name for script in SCRIPTS] == list(records.SCRIPTS)


def test_claims_are_unique_and_whole() -> None:
    claims = [claim for script in SCRIPTS for claim in script.claims]
    assert len({claim.name for claim in claims}) == len(claims)
    for claim in claims:
        assert claim.goals and claim.threads
        sizes = [goal.size for goal in claim.goals]
        assert sizes == sorted(set(sizes))
        for goal in claim.goals:
            assert goal.target > 0
            better = goal.aim is None or (goal.aim < goal.target) == claim.cost
            assert better, f"{claim.name} aims lower than its target"


@pytest.mark.parametrize("script", IN_PROCESS, ids=lambda script: script.name)
def test_script_measures_what_it_claims(script) -> None:
    size = 4096 if script.name == "torch_rms_norm" else TINY
    if script.name == "torch_rms_norm" and not hasattr(torch.ops.myops, "rms_norm"):
        with pytest.raises(MyopsError, match="rms_norm should be an operator"):
            script.measure(script, Settings(rounds=1), lambda: None)
        return
    tiny = replace(
        script,
        claims=tuple(
            claim
            if script.name == "torch_call"
            else replace(claim, goals=(replace(claim.goals[0], size=size),))
            for claim in script.claims
        ),
    )
    settings, rounds = Settings(rounds=2), []
    rows = tiny.measure(tiny, settings, lambda: rounds.append(1))
    assert len(rounds) == tiny.total_rounds(tiny, settings)
    found = {"missing": {}, "rows": [row.to_dict() for row in rows]}
    assert records.gaps(found, [tiny]) == []
    for row in rows:
        assert 0 < row.ratio_q1 <= row.ratio <= row.ratio_q3 < math.inf


def test_injected_models_are_measured() -> None:
    (script,) = (script for script in SCRIPTS if script.name == "inject_models")
    (smallest,) = (claim for claim in script.claims if claim.variant.startswith("ch_ppocr_mobile"))
    one = replace(script, claims=(replace(smallest, threads=(1,)),))
    settings, rounds = replace(Settings.quick(), rounds=2), []
    (row,) = one.measure(one, settings, lambda: rounds.append(1))
    assert len(rounds) == one.total_rounds(one, settings)
    assert row.ratio > 0 and row.kernels


def claim(name: str, *sizes: int, **changes: Any) -> Claim:
    goals = tuple(Goal(size, 1.5) for size in sizes)
    return replace(Claim(name, "Swish forward", "F.silu", "torch", goals), **changes)


def made(rows: list[Row], **changes: Any) -> dict[str, Any]:
    return {
        "date": "2026-01-02T03:04:05+00:00",
        "quick": False,
        "machine": {"cpu": "abacus", "cores": 2, "torch": "9.9"},
        "load": 0.0,
        "missing": {"some-claim": "no such operator"},
        "rows": [row.to_dict() for row in rows],
    } | changes


SPEED = claim("speed", 1024, 2048)
COST = claim("cost", 32, cost=True)
ROWS = [
    Row.of(SPEED, SPEED.goals[0], 1, ours=(1.0, 1.0, 1.0), rival=(2.0, 2.0, 9.0)),
    Row.of(SPEED, SPEED.goals[1], 1, ours=(1.0,), rival=(1.2,)),
    Row.of(COST, COST.goals[0], 2, ours=(1.0,), rival=(1.0,), detail="first"),
    Row.of(COST, COST.goals[0], 2, ours=(1.8,), rival=(1.0,), detail="second"),
]


def test_rows_judge_ratios_of_rounds() -> None:
    assert [row.met for row in ROWS] == [True, False, True, False]
    assert ROWS[0].ratio == 2.0
    assert ROWS[3].ratio == 1.8
    assert records.rows_of(made(ROWS)) == ROWS


def test_tables_show_the_worst_and_mark_what_is_missed(tmp_path: Path) -> None:
    write_json(tmp_path / "record.json", made(ROWS))
    text = readme_table.rendered(tmp_path / "record.json")
    assert "| torch: Swish forward, f32 | F.silu | 2.00 | 1.20 (target 1.5) |" in text
    assert "(slowest: second) | F.silu | 32 | 1.80 | at most 1.5, missed |" in text
    assert "abacus, 2 cores, torch 9.9" in text
    assert "Not measured: some-claim (no such operator)." in text


def test_gaps() -> None:
    script = replace(SCRIPTS[0], claims=(SPEED, claim("some-claim", 7)))
    assert records.gaps(made(ROWS[:2]), [script]) == []
    assert records.gaps(made(ROWS[:1]), [script]) == ["speed, 2048, 1"]
    assert records.gaps(made(ROWS[:3]), [script]) == ["cost, 32, 2"]


def test_readme_and_picture_are_written_from_the_record(tmp_path: Path) -> None:
    readme, picture = tmp_path / "README.md", tmp_path / "images" / "speed.svg"
    readme.write_text(f"before\n{readme_table.BEGIN}\nold\n{readme_table.END}\nafter\n")
    record = tmp_path / "record.json"
    write_json(record, made(ROWS))
    readme_table.update(record, readme, picture)
    text = readme.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    first = picture.read_bytes()
    readme_table.update(record, readme, picture)
    assert (readme.read_text(), picture.read_bytes()) == (text, first)
    write_json(record, made(ROWS, quick=True))
    with pytest.raises(UsageError, match="figures of a full run"):
        readme_table.update(record, readme, picture)
    record.write_text("{}")
    with pytest.raises(UsageError, match=r"a file that run_all\.py wrote"):
        readme_table.update(record, readme, picture)
    record.unlink()
    readme.write_text("no markers")
    with pytest.raises(UsageError, match="both markers"):
        readme_table.update(record, readme, picture)


def test_readme_says_what_is_recorded() -> None:
    """Fails after a change of the record or of the tables: run benchmarks/readme_table.py."""
    readme = readme_table.README.read_text()
    assert readme == readme_table.replaced(readme, readme_table.rendered(records.RECORD))


@pytest.mark.skipif(not records.RECORD.is_file(), reason="no figures are recorded")
def test_recorded_figures_are_whole() -> None:
    record = records.read(records.RECORD)
    assert records.gaps(record, SCRIPTS) == []
    assert not record["quick"]
    for row in records.rows_of(record):
        assert 0 < row.ratio_q1 <= row.ratio <= row.ratio_q3 < math.inf
        assert row.met == (row.ratio <= row.target if row.cost else row.ratio >= row.target)


def test_script_that_fails_says_why(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "broken.py").write_text("raise SystemExit('[here] all is lost')")
    monkeypatch.setattr(run_all, "FOLDER", tmp_path)
    rows, why = run_all.run_script("broken", [], tmp_path / "out.json")
    assert (rows, why) == ([], "[here] all is lost")
    (tmp_path / "fine.py").write_text(
        "import sys; open(sys.argv[2], 'w').write('[1]'); sys.exit(3)"
    )
    rows, why = run_all.run_script("fine", [], tmp_path / "out.json")
    assert json.dumps([rows, why]) == '[[1], ""]'
