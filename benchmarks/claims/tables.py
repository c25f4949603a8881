# SPDX-License-Identifier: Apache-2.0
"""Rows as tables: for a terminal, and in Markdown for the README."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myops.bench.report import FRAMEWORK_LABELS, size_label
from rich import box
from rich.table import Table

from claims.model import Row, satisfies

DTYPES = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16"}


def label(row: Row) -> str:
    """What is computed, where, of which dtype, on how many threads."""
    where = f"{FRAMEWORK_LABELS[row.framework]}: " if row.framework in FRAMEWORK_LABELS else ""
    threads = f", {row.threads} threads" if row.threads > 1 else ""
    return f"{where}{row.work}, {DTYPES[row.dtype]}{threads}"


def rival_label(row: Row) -> str:
    """The rival, and what ONNX Runtime's fusion made of it."""
    return f"fused ({row.kernels})" if row.rival == "fused" else row.rival


def _grouped(rows: Sequence[Row]) -> dict[tuple[str, int, int], list[Row]]:
    found: dict[tuple[str, int, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row.claim, row.threads, row.size), []).append(row)
    return found


def _worst(rows: Sequence[Row]) -> Row:
    """Of several rows for one size the one that a reader has to reckon with."""
    return max(rows, key=lambda r: r.ratio) if rows[0].cost else min(rows, key=lambda r: r.ratio)


def terminal_table(rows: Sequence[Row], title: str) -> Table:
    """Rows with quartiles, missed targets in red. Of several rows of one claim and size the worst,
    and those that miss."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE, pad_edge=False, padding=(0, 1))
    for header in ("work", "against", "size", "ratio (quartiles)", "target"):
        numbers = header not in ("work", "against")
        table.add_column(header, justify="right" if numbers else "left", no_wrap=numbers)
    worst = [_worst(group) for group in _grouped(rows).values()]
    for row in (row for row in rows if row in worst or not row.met):
        target = f"{'<=' if row.cost else '>='} {row.target:g}"
        table.add_row(
            label(row) + (f": {row.detail}" if row.detail else ""),
            rival_label(row),
            size_label(row.size),
            f"{row.ratio:.2f} ({row.ratio_q1:.2f}-{row.ratio_q3:.2f})",
            target + (f" ({row.aim:g})" if row.aim else ""),
            style=None if row.met else "red",
        )
    return table


Found = dict[tuple[str, int], list[Row]]


def _by_claim(rows: Sequence[Row]) -> Found:
    found: Found = {}
    for row in rows:
        found.setdefault((row.claim, row.threads), []).append(row)
    return found


def _cell(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    row = _worst(rows)
    if satisfies(row.ratio, row.target, row.cost):
        return f"{row.ratio:.2f}"
    return f"{row.ratio:.2f} (target {row.target:g})"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def split(rows: Sequence[Row]) -> tuple[Found, Found]:
    """Speeds over several sizes, and the rest: what costs something, or has one size only."""
    several: Found = {}
    single: Found = {}
    for key, group in _by_claim(rows).items():
        wide = not group[0].cost and len({row.size for row in group}) > 1
        (several if wide else single)[key] = group
    return several, single


def _speeds(found: Found) -> list[str]:
    sizes = sorted({row.size for rows in found.values() for row in rows})
    lines = [
        _line(["", "against", *map(size_label, sizes)]),
        _line(["---", "---", *["---:"] * len(sizes)]),
    ]
    for rows in found.values():
        by_size = [_cell([row for row in rows if row.size == size]) for size in sizes]
        lines.append(_line([label(rows[0]), rival_label(rows[0]), *by_size]))
    return lines


def _singles(found: Found) -> list[str]:
    lines = [
        _line(["", "against", "elements", "ratio", "should be"]),
        _line(["---", "---", "---:", "---:", "---"]),
    ]
    for rows in found.values():
        for size in sorted({row.size for row in rows}):
            row = _worst([row for row in rows if row.size == size])
            mark = "" if row.met else ", missed"
            bound = f"{'at most' if row.cost else 'at least'} {row.target:g}{mark}"
            work = label(row) + (f" (slowest: {row.detail})" if row.detail else "")
            cells = [work, rival_label(row), size_label(size), f"{row.ratio:.2f}", bound]
            lines.append(_line(cells))
    return lines


def section(record: dict[str, Any] | None, rows: Sequence[Row]) -> str:
    """The README's figures, in Markdown."""
    if record is None:
        return "No figures are recorded for this version yet: `make bench` measures them.\n"
    machine = record["machine"]
    versions = ", ".join(
        f"{name} {machine[name]}" for name in ("torch", "onnxruntime") if name in machine
    )
    several, single = split(rows)
    parts = [
        f"Measured on {record['date'][:10]}: {machine['cpu']}, {machine['cores']} cores, "
        f"{versions}. One thread unless it says otherwise. Ratios are the median over the rounds "
        "of one run in random order.",
        "",
        "![How many times as fast myops is](docs/images/speed.svg)",
    ]
    costs = {key: rows for key, rows in single.items() if rows[0].cost}
    if several:
        parts += ["", "The rival's time / the time of myops, by elements:", "", *_speeds(several)]
    other = {key: rows for key, rows in single.items() if not rows[0].cost}
    if other:
        parts += ["", "The same at one size:", "", *_singles(other)]
    if costs:
        parts += ["", "The time of myops / that of what it is held against:", "", *_singles(costs)]
    missed = sum(not row.met for row in rows)
    if missed:
        parts += ["", f"Below target: {missed} of {len(rows)} figures."]
    for claim, why in record["missing"].items():
        parts += ["", f"Not measured: {claim} ({why})."]
    return "\n".join(parts) + "\n"
