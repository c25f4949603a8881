# SPDX-License-Identifier: Apache-2.0
"""What a benchmark of models found: as a table, a dictionary and a picture."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from myops.bench.report import Spread, busy_note
from myops.bench.threads import TOLERANCE, knee
from myops.ort.tune_report import SAME

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class ModelRow:
    """One way to run one model.

    Attributes:
        model: the file.
        runtime: "ORT", or "ORT + plugin".
        level: graph optimization level: "basic" runs the operators as they are in the file, "all"
            is ONNX Runtime's default with its own fusions.
        threads: ``intra_op_num_threads``.
        baseline: whether ``ratio`` and ``difference`` of the others refer to this row.
        milliseconds: of a run.
        ratio: the baseline's time / this one's within a round; above 1 this row is faster.
        difference: the largest difference from the baseline's outputs, relative to their largest
            value.
        peak_bytes: what the session takes at most (``myops.bench.memory``); None if not measured.
    """

    model: str
    runtime: str
    level: str
    threads: int
    baseline: bool
    milliseconds: Spread
    ratio: Spread
    difference: float
    peak_bytes: int | None


@dataclass(frozen=True)
class Point:
    """An elementwise node of a row, from its profile: ``bytes`` per call, median ``us``."""

    model: str
    runtime: str
    level: str
    node: str
    op: str
    ours: bool
    bytes: int
    us: float
    gbps: float


@dataclass(frozen=True)
class ModelReport:
    """What ``run_models`` measured.

    Attributes:
        rows: by threads, model and way to run it.
        points: what the elementwise nodes reach, with the first number of threads.
        inputs: dtype and shape by name.
        copy_gbps: threads -> the machine's copy bandwidth in GB/s, read plus written.
        rounds: samples per row.
        warmup: runs before them.
        machine: processor and versions.
        load: the system's load average when the run began.
    """

    rows: list[ModelRow]
    points: list[Point]
    inputs: Mapping[str, str]
    copy_gbps: Mapping[int, float]
    rounds: int
    warmup: int
    machine: Mapping[str, str | int]
    load: float

    @property
    def threads(self) -> list[int]:
        """The numbers of threads that were swept."""
        return list(dict.fromkeys(row.threads for row in self.rows))

    def knees(self) -> list[dict[str, Any]]:
        """Per model and way to run it: the threads that are worth it. Empty without a sweep."""
        found = []
        if len(self.threads) < 2:
            return []
        ways = dict.fromkeys((row.model, row.runtime, row.level) for row in self.rows)
        for model, runtime, level in ways:
            times = {
                row.threads: row.milliseconds.median
                for row in self.rows
                if (row.model, row.runtime, row.level) == (model, runtime, level)
            }
            found.append(
                {"model": model, "runtime": runtime, "level": level, "threads": knee(times)}
            )
        return found

    def notes(self) -> list[str]:
        """What a reader has to know about the figures."""
        inputs = ", ".join(f"{name} {text}" for name, text in self.inputs.items())
        notes = [
            f"Medians (interquartile range) of {self.rounds} rounds in random order after "
            f"{self.warmup} warm-up runs; {self.machine['cpu']}. Inputs: {inputs}.",
            "Ratio: the baseline's time / the row's in the same round. Above 1, the row is faster.",
        ]
        if any(row.peak_bytes is not None for row in self.rows):
            notes.append(
                "Peak: resident memory of the session alone (weights, arena, outputs, loading), "
                "without Python, the libraries and the inputs."
            )
        worst = max(self.rows, key=lambda row: row.difference)
        if worst.difference > SAME:
            notes.append(
                f"The outputs of {Path(worst.model).name} with {worst.runtime}, {worst.level}, "
                f"differ from the baseline's by {worst.difference:.2g} of their largest value: is "
                "that the same model?"
            )
        if not any("plugin" in row.runtime for row in self.rows):
            notes.append("No row with the plugin: no model has a node of myops.")
        for found in self.knees():
            notes.append(
                f"{Path(found['model']).name}, {found['runtime']}, {found['level']}: "
                f"intra_op_num_threads={found['threads']} is enough (within {TOLERANCE:.0%} of the "
                "fastest)."
            )
        return notes + busy_note(self.load, max(self.threads), int(self.machine["cores"]))

    def table(self) -> Table:
        """For a terminal; rows with the plugin in bold, a line between numbers of threads."""
        from rich import box
        from rich.table import Table

        table = Table(
            title="Speed of models",
            caption="\n".join(self.notes()),
            title_justify="left",
            caption_justify="left",
            box=box.SIMPLE,
            pad_edge=False,
            padding=(0, 1, 0, 0),
        )
        table.add_column("model", overflow="fold", min_width=10)
        table.add_column("runtime, level", no_wrap=True)
        for header in ("threads", "ms (IQR)", "ratio (quartiles)", "peak MB"):
            table.add_column(header, justify="right", no_wrap=True)
        following = [row.threads for row in self.rows[1:]]
        for row, then in zip(self.rows, [*following, None], strict=True):
            ratio = "baseline" if row.baseline else row.ratio.with_quartiles()
            table.add_row(
                Path(row.model).name,
                f"{row.runtime}, {row.level}",
                str(row.threads),
                row.milliseconds.with_range(),
                ratio,
                "" if row.peak_bytes is None else f"{row.peak_bytes / 1e6:.1f}",
                style="bold" if "plugin" in row.runtime else None,
                end_section=row.threads != then,
            )
        return table

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for json. A difference that is infinite is None."""
        data = asdict(self) | {"machine": dict(self.machine), "knees": self.knees()}
        for row in data["rows"]:
            if math.isinf(row["difference"]):
                row["difference"] = None
        return data

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Writes a picture: times of the rows, and what their elementwise nodes reach of the copy
        bandwidth.

        Args:
            path: the file; its suffix says the format (.png, .svg, .pdf).
        """
        from myops.bench import roofline

        roofline.write_models(self, path)
