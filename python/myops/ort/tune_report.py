# SPDX-License-Identifier: Apache-2.0
"""What ``tune`` measured: rows, the best of them, a table and JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

EQUAL = 0.03
"""Times that differ by less than this share count as equal."""

SAME = 1e-3
"""Outputs that differ by more than this, relative to their largest value, are pointed at."""

_ORDER = ("disable", "basic", "extended", "all")


@dataclass(frozen=True)
class Setting:
    """One combination of settings.

    Attributes:
        intra_op_num_threads: of the session.
        graph_optimization_level: "basic", "extended", "all" or "disable".
        plugin: whether the plugin is registered.
        median_ms: milliseconds a run.
        q1_ms: lower quartile.
        q3_ms: upper quartile.
        difference: the largest difference from the first row's outputs, relative to their largest
            value.
    """

    intra_op_num_threads: int
    graph_optimization_level: str
    plugin: bool
    median_ms: float
    q1_ms: float
    q3_ms: float
    difference: float

    def arguments(self) -> dict[str, Any]:
        """For ``myops.ort.session(model, **setting.arguments())``."""
        return {
            "intra_op_num_threads": self.intra_op_num_threads,
            "graph_optimization_level": self.graph_optimization_level,
            "plugin": None if self.plugin else False,
        }


@dataclass(frozen=True)
class Tuning:
    """What ``tune`` measured.

    Attributes:
        model: the file.
        rows: all combinations, in the order of threads, plugin and level.
        inputs: dtype and shape by name.
        rounds: samples per combination.
        machine: processor and versions.
        load: the system's load average when the run began.
    """

    model: str
    rows: list[Setting]
    inputs: Mapping[str, str]
    rounds: int
    machine: Mapping[str, str | int]
    load: float

    @property
    def best(self) -> Setting:
        """Of the combinations that are about as fast as the fastest, the one with the fewest
        threads, then the highest level, then without the plugin."""
        limit = min(row.median_ms for row in self.rows) * (1 + EQUAL)
        return min(
            (row for row in self.rows if row.median_ms <= limit),
            key=lambda row: (
                row.intra_op_num_threads,
                -_ORDER.index(row.graph_optimization_level),
                row.plugin,
            ),
        )

    def notes(self) -> list[str]:
        """What a reader has to know about the figures."""
        from myops.bench.report import busy_note

        best = self.best
        inputs = ", ".join(f"{name} {text}" for name, text in self.inputs.items())
        notes = [
            f"Best: intra_op_num_threads={best.intra_op_num_threads}, graph_optimization_level="
            f"{best.graph_optimization_level}, {'with' if best.plugin else 'without'} the plugin "
            f"(the simplest within {EQUAL:.0%} of the fastest).",
            f"Medians of {self.rounds} rounds in random order; {self.machine['cpu']}. Inputs: "
            f"{inputs}.",
        ]
        if not any(row.plugin for row in self.rows):
            notes.append("No row with the plugin: the model has no node of myops.")
        if any(row.difference > SAME for row in self.rows):
            notes.append(
                f"! Outputs differ from the first row's by more than {SAME:g} of their largest "
                "value: settings should not change results that much."
            )
        threads = max(row.intra_op_num_threads for row in self.rows)
        return notes + busy_note(self.load, threads, int(self.machine["cores"]))

    def table(self) -> Table:
        """For a terminal; the best row in bold."""
        from rich import box
        from rich.table import Table

        table = Table(
            title=f"Settings for {self.model}",
            caption="\n".join(self.notes()),
            title_justify="left",
            caption_justify="left",
            box=box.SIMPLE,
            pad_edge=False,
            padding=(0, 1, 0, 0),
        )
        table.add_column("threads", justify="right")
        for header in ("level", "plugin"):
            table.add_column(header)
        for header in ("ms", "quartiles", "of the best"):
            table.add_column(header, justify="right")
        best = self.best
        following = [row.intra_op_num_threads for row in self.rows[1:]]
        for row, then in zip(self.rows, [*following, None], strict=True):
            table.add_row(
                str(row.intra_op_num_threads),
                row.graph_optimization_level,
                "yes" if row.plugin else "no",
                f"{row.median_ms:.3g}" + " !" * (row.difference > SAME),
                f"{row.q1_ms:.3g}-{row.q3_ms:.3g}",
                f"{row.median_ms / best.median_ms:.2f}",
                style="bold" if row is best else None,
                end_section=row.intra_op_num_threads != then,
            )
        return table

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for json. A difference that is infinite is None."""
        data = asdict(self) | {"machine": dict(self.machine), "best": asdict(self.best)}
        for row in (*data["rows"], data["best"]):
            if math.isinf(row["difference"]):
                row["difference"] = None
        return data
