# SPDX-License-Identifier: Apache-2.0
"""What verification found, as rows, a table and JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from myops.verify.compare import Comparison, Tolerance

if TYPE_CHECKING:
    from rich.table import Table

    from myops.verify.bisect import Bisection
    from myops.verify.hints import Hint


@dataclass(frozen=True)
class Row:
    """One party's result for one subject.

    Attributes:
        layer: 1 an operator in isolation, 2 a whole model, 3 golden results.
        subject: operator or model output.
        detail: attribute values.
        party: who computed it.
        dtype: the dtype it was computed in.
        comparison: distances from the truth; None if the party could not run.
        tolerance: what counts as right.
        ours: whether the kernels are ours. Only then a difference fails the verification.
        same_bits: whether the result equals the torch library's bit for bit; None if not compared.
        note: why the party did not run, or what its difference is known to come from.
    """

    layer: int
    subject: str
    detail: str
    party: str
    dtype: str
    comparison: Comparison | None
    tolerance: Tolerance
    ours: bool
    same_bits: bool | None = None
    note: str = ""

    @property
    def ok(self) -> bool:
        if self.comparison is None:
            return not self.ours
        return self.comparison.ok and self.same_bits is not False

    @property
    def verdict(self) -> str:
        if self.comparison is None:
            return "not run"
        if self.ok:
            return "ok"
        return "WRONG" if self.ours else "off"

    def to_dict(self) -> dict[str, Any]:
        return {
            "layer": self.layer,
            "subject": self.subject,
            "detail": self.detail,
            "party": self.party,
            "dtype": self.dtype,
            "tolerance": str(self.tolerance),
            "ours": self.ours,
            "same_bits_as_torch": self.same_bits,
            "verdict": self.verdict,
            "note": self.note,
            "comparison": self.comparison.to_dict() if self.comparison else None,
        }


@dataclass
class Report:
    """All rows of a verification. ``ok`` is False when one of our layers, or one of its nodes, is
    wrong.

    Attributes:
        rows: in the order of the layers.
        truth: what the results were held against.
        hints: what experiments say about the cause of a difference.
        bisections: which nodes are to blame, where that was asked for.
    """

    rows: list[Row] = field(default_factory=list)
    truth: str = ""
    hints: list[Hint] = field(default_factory=list)
    bisections: list[Bisection] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        right = all(found.ok for found in self.bisections if found.ours)
        return right and bool(self.rows) and all(row.ok for row in self.rows if row.ours)

    def to_dict(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "truth": self.truth,
            "off": self.off(),
            "rows": [row.to_dict() for row in self.rows],
            "hints": [hint.to_dict() for hint in self.hints],
            "bisections": [bisection.to_dict() for bisection in self.bisections],
        }

    def off(self) -> list[str]:
        """The parties that differ from float64, ours first."""
        rows = sorted(self.rows, key=lambda row: not row.ours)
        return list(dict.fromkeys(row.party for row in rows if row.verdict in ("WRONG", "off")))

    def sentences(self) -> list[str]:
        """Who is off, where and by how much: one sentence per party, its first row."""
        found = []
        for party in self.off():
            row = next(r for r in self.rows if r.party == party and r.verdict in ("WRONG", "off"))
            where = f"{row.subject}({row.detail})" if row.detail else row.subject
            found.append(f"Off: {party} at {where}, {row.dtype}: {_difference(row)}.")
        return found

    def worst(self) -> Report:
        """One row per layer, subject, party and dtype: the worst over all attribute values."""
        order = ["ok", "not run", "off", "WRONG"]
        chosen: dict[tuple[int, str, str, str], Row] = {}
        for row in self.rows:
            key = (row.layer, row.subject, row.party, row.dtype)
            before = chosen.get(key)
            if before is None or _badness(row, order) > _badness(before, order):
                chosen[key] = row
        return Report(list(chosen.values()))

    def table(self) -> Table:
        """A row per subject and dtype, a column per party with its worst error: in units in the
        last place for operators, absolute for model outputs. For 80 columns."""
        from rich.table import Table

        worst = self.worst().rows
        parties = list(dict.fromkeys(row.party for row in worst))
        in_ulp = any(row.tolerance.ulp for row in worst)
        unit = "max error in ulp" if in_ulp else "max absolute error"
        table = Table(title=f"Every layer against float64, {unit}", title_justify="left")
        table.add_column("", no_wrap=True)
        table.add_column("dtype", no_wrap=True)
        for party in parties:
            table.add_column(party, justify="right", overflow="fold")
        table.add_column("allowed", justify="right", overflow="fold")
        cells = {(row.subject, row.dtype, row.party): row for row in worst}
        for subject, dtype in dict.fromkeys((row.subject, row.dtype) for row in worst):
            found = [cells.get((subject, dtype, party)) for party in parties]
            allowed = next((str(row.tolerance) for row in found if row and row.ours), "")
            table.add_row(subject, dtype, *(_cell(row, in_ulp) for row in found), allowed)
        return table

    def details(self) -> Table:
        """A row per subject, attribute values, dtype and party. For 120 columns."""
        from rich import box
        from rich.table import Table

        bits = any(row.same_bits is not None for row in self.rows)
        title = f"Against {self.truth or 'float64'}"
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column("", justify="right")
        for name in ("subject", "party"):
            table.add_column(name, overflow="fold")
        table.add_column("dtype", no_wrap=True)
        for name in (*_NUMBERS, "first off"):
            table.add_column(name, justify="right")
        table.add_column("allowed")
        if bits:
            table.add_column("bits")
        table.add_column("verdict")
        for row in self.rows:
            table.add_row(
                str(row.layer),
                f"{row.subject}({row.detail})" if row.detail else row.subject,
                row.party,
                row.dtype,
                *_numbers(row.comparison),
                str(row.tolerance),
                *([_BITS[row.same_bits]] if bits else []),
                f"[{_COLOURS[row.verdict]}]{row.verdict}[/]" + _explain(row),
            )
        return table


_NUMBERS = ("max abs", "max rel", "max ulp", "p99 ulp")
_BITS = {None: "", True: "= torch", False: "differ"}
_COLOURS = {"ok": "green", "WRONG": "bold red", "off": "yellow", "not run": "dim"}


def _badness(row: Row, order: list[str]) -> tuple[int, float]:
    return order.index(row.verdict), row.comparison.max_ulp if row.comparison else 0.0


def _numbers(c: Comparison | None) -> tuple[str, ...]:
    if c is None:
        return ("",) * (len(_NUMBERS) + 1)
    first = "" if c.first_wrong is None else ",".join(map(str, c.first_wrong)) or "()"
    figures = (f"{c.max_abs:.2e}", f"{c.max_rel:.1e}", f"{c.max_ulp:.3g}", f"{c.p99_ulp:.3g}")
    return (*figures, first)


def _cell(row: Row | None, in_ulp: bool) -> str:
    if row is None:
        return ""
    if row.comparison is None:
        return f"[{_COLOURS[row.verdict]}]{row.verdict}[/]"
    value = f"{row.comparison.max_ulp:.3g}" if in_ulp else f"{row.comparison.max_abs:.1e}"
    suffix = "" if row.verdict == "ok" else f" {row.verdict}"
    return f"[{_COLOURS[row.verdict]}]{value}{suffix}[/]"


def _explain(row: Row) -> str:
    parts = [row.note] if row.note else []
    c = row.comparison
    if c is not None and c.first_wrong is not None:
        parts.append(f"{c.wrong} of {c.count}")
    return f" [dim]{'; '.join(parts)}[/]" if parts else ""


def _difference(row: Row) -> str:
    c = row.comparison
    if row.same_bits is False and (c is None or c.ok):
        return "other bits than torch's"
    if c is None:
        return row.note
    special = f", {c.special} of them NaN or infinite on one side" if c.special else ""
    return (
        f"{c.wrong} of {c.count} elements{special}, first at {list(c.first_wrong or ())} with "
        f"{c.received:.9g} instead of {c.expected:.9g}, largest difference {c.max_abs:.2e}, "
        f"allowed {row.tolerance}"
    )
