# SPDX-License-Identifier: Apache-2.0
"""Rows of a benchmark of operators: as a table, a dictionary and a picture."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich import box
from rich.table import Table

from myops.bench.measure import Timing
from myops.bench.rivals import OURS
from myops.bench.threads import TOLERANCE, knee
from myops.ort.profile_report import ABOVE_COPY

FRAMEWORK_LABELS = {"torch": "torch", "onnxruntime": "ORT"}


def size_label(elements: int) -> str:
    """``elements`` in short: 65536 is "64 Ki"."""
    for unit, name in ((2**20, "Mi"), (2**10, "Ki")):
        if elements % unit == 0:
            return f"{elements // unit} {name}"
    return f"{elements:,}"


def _short(value: float) -> str:
    """Three digits, never in powers of ten."""
    if value >= 100 or value <= 0:
        return f"{value:.0f}"
    return f"{value:.{2 - math.floor(math.log10(value))}f}"


def busy_note(load: float, threads: int, cores: int) -> list[str]:
    """A sentence where other programs took the cores; else nothing."""
    if load + threads <= cores + 0.5:
        return []
    return [
        f"The machine was busy at the start (load average {load:.1f} on {cores} cores): other "
        "programs disturbed these figures."
    ]


@dataclass(frozen=True)
class Spread:
    """Median and quartiles."""

    median: float
    q1: float
    q3: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        timing = Timing.of(samples)
        return cls(timing.median, timing.q1, timing.q3)

    def with_range(self) -> str:
        """The median and, in brackets, the interquartile range with as many decimals."""
        text = _short(self.median)
        decimals = len(text.partition(".")[2])
        return f"{text} ({self.q3 - self.q1:.{decimals}f})"

    def with_quartiles(self) -> str:
        """The median and, in brackets, both quartiles: for ratios."""
        return f"{self.median:.2f} ({self.q1:.2f}-{self.q3:.2f})"


@dataclass(frozen=True)
class Missing:
    """A row that could not be measured, and why."""

    op: str
    framework: str
    name: str
    elements: int
    dtype: str
    threads: int
    why: str

    @property
    def group(self) -> tuple[str, str, int, str, int]:
        """As in ``Measurement``."""
        return (self.op, self.framework, self.elements, self.dtype, self.threads)


@dataclass(frozen=True)
class Measurement:
    """One case as timed: ``moved`` bytes have to be read and written; ``samples`` holds the seconds
    per application of the operator, one value per round, in the order of the rounds."""

    op: str
    framework: str
    name: str
    kernels: str
    elements: int
    dtype: str
    threads: int
    moved: int
    samples: tuple[float, ...]

    @property
    def group(self) -> tuple[str, str, int, str, int]:
        """Measurements of one group ran against each other."""
        return (self.op, self.framework, self.elements, self.dtype, self.threads)


@dataclass(frozen=True)
class BenchRow:
    """One row.

    Attributes:
        op: ONNX name of the operator.
        framework: "torch" or "onnxruntime".
        name: "myops" or a rival's.
        kernels: what ONNX Runtime's profile says ran; empty for torch.
        elements: of one tensor.
        dtype: of all tensors.
        threads: the framework may use.
        median_us: microseconds per application of the operator.
        q1_us: lower quartile.
        q3_us: upper quartile.
        ratio: this row's time / ours in the same framework and the same round, median over the
            rounds; above 1 we are faster. What slows the machine down for a while cancels out.
        ratio_q1: lower quartile.
        ratio_q3: upper quartile.
        gbps: bytes of the inputs and the output / median, in 1e9 bytes per second. A rival in
            several passes moves more than that; it is charged for what the operator needs.
        of_copy: ``gbps`` / what this machine reaches copying memory with as many threads.
        above_copy: ``gbps`` is above what the machine reaches copying memory: a buffer was in a
            cache.
    """

    op: str
    framework: str
    name: str
    kernels: str
    elements: int
    dtype: str
    threads: int
    median_us: float
    q1_us: float
    q3_us: float
    ratio: float
    ratio_q1: float
    ratio_q3: float
    gbps: float
    of_copy: float
    above_copy: bool

    @property
    def group(self) -> tuple[str, str, int, str, int]:
        """As in ``Measurement``."""
        return (self.op, self.framework, self.elements, self.dtype, self.threads)


@dataclass(frozen=True)
class BenchReport:
    """What ``run`` measured.

    Attributes:
        rows: the operators and their rivals.
        copy_gbps: threads -> the machine's measured copy bandwidth, read plus written.
        rounds: samples per row.
        warmup: calls of each row before its first sample.
        machine: processor and versions.
        load: the system's load average when the run began.
        missing: rows that could not be measured.
    """

    rows: list[BenchRow]
    copy_gbps: Mapping[int, float]
    rounds: int
    warmup: int
    machine: Mapping[str, str | int]
    load: float
    missing: Sequence[Missing] = ()

    @classmethod
    def of(
        cls,
        measurements: Sequence[Measurement],
        copy_gbps: Mapping[int, float],
        rounds: int,
        warmup: int,
        machine: Mapping[str, str | int],
        load: float,
        missing: Sequence[Missing] = (),
    ) -> BenchReport:
        """Ratios and bandwidths from times. Each group holds a measurement named "myops"."""
        ours = {m.group: m.samples for m in measurements if m.name == OURS}
        rows = []
        for m in measurements:
            time = Timing.of(m.samples)
            ratio = Timing.of([s / o for s, o in zip(m.samples, ours[m.group], strict=True)])
            gbps = m.moved / time.median / 1e9
            of_copy = gbps / copy_gbps[m.threads]
            rows.append(
                BenchRow(
                    op=m.op,
                    framework=m.framework,
                    name=m.name,
                    kernels=m.kernels,
                    elements=m.elements,
                    dtype=m.dtype,
                    threads=m.threads,
                    median_us=time.median * 1e6,
                    q1_us=time.q1 * 1e6,
                    q3_us=time.q3 * 1e6,
                    ratio=ratio.median,
                    ratio_q1=ratio.q1,
                    ratio_q3=ratio.q3,
                    gbps=gbps,
                    of_copy=of_copy,
                    above_copy=of_copy > ABOVE_COPY,
                )
            )
        return cls(rows, copy_gbps, rounds, warmup, machine, load, missing)

    @property
    def threads(self) -> list[int]:
        """The numbers of threads that were swept."""
        return list(dict.fromkeys(row.threads for row in self.rows))

    def knees(self) -> list[dict[str, Any]]:
        """Per operator, size and framework: the threads that are worth it for our kernel. Empty
        without a sweep."""
        if len(self.threads) < 2:
            return []
        times: dict[tuple[str, str, int, str], dict[int, float]] = {}
        for row in self.rows:
            if row.name == OURS:
                times.setdefault(row.group[:4], {})[row.threads] = row.median_us
        names = ("op", "framework", "elements", "dtype")
        return [
            {**dict(zip(names, group, strict=True)), "threads": knee(found)}
            for group, found in times.items()
        ]

    def notes(self) -> list[str]:
        """What a reader has to know about the figures."""
        copy = ", ".join(
            f"{gbps:.1f} GB/s with {threads}" if len(self.copy_gbps) > 1 else f"{gbps:.1f} GB/s"
            for threads, gbps in self.copy_gbps.items()
        )
        notes = [
            f"Medians (interquartile range) of {self.rounds} rounds in random order; "
            f"{self.machine['cpu']}.",
            "Ratio: the row's time / that of myops in the same framework and round. Above 1, myops "
            "is faster.",
            "copy: bytes of inputs and outputs / time, of what this machine reaches copying memory "
            f"({copy}{' threads' * (len(self.copy_gbps) > 1)}).",
        ]
        if any(row.above_copy for row in self.rows):
            notes.append("* is above that: a buffer was in a cache, so memory was not measured.")
        whys = dict.fromkeys((m.framework, m.name, m.why) for m in self.missing)
        notes += [f"No row {name} ({FRAMEWORK_LABELS[f]}): {why}" for f, name, why in whys]
        for found in self.knees():
            setting = {"torch": "torch.set_num_threads", "onnxruntime": "intra_op_num_threads"}
            notes.append(
                f"{found['op']}, {found['dtype']}, {size_label(found['elements'])}: "
                f"{setting[found['framework']]} {found['threads']} is enough (within "
                f"{TOLERANCE:.0%} of the fastest)."
            )
        return notes + busy_note(self.load, max(self.threads), int(self.machine["cores"]))

    def title(self) -> str:
        """What all rows have in common."""
        shared = [columns[0] for columns in self._shared().values()]
        return f"Speed: {', '.join(shared)}"

    def _shared(self) -> dict[str, list[str]]:
        columns = {
            "op": [r.op for r in self.rows],
            "dtype": [r.dtype for r in self.rows],
            "threads": [f"{r.threads} thread" + "s" * (r.threads > 1) for r in self.rows],
        }
        return {name: values for name, values in columns.items() if len(set(values)) == 1}

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Headers and rows as text, without the columns that say the same everywhere."""
        rows = [
            {
                "op": row.op,
                "dtype": row.dtype,
                "threads": str(row.threads),
                "size": size_label(row.elements),
                "in": FRAMEWORK_LABELS[row.framework],
                "row": row.name,
                "kernels": row.kernels,
                "us (IQR)": Spread(row.median_us, row.q1_us, row.q3_us).with_range(),
                "ratio (quartiles)": Spread(row.ratio, row.ratio_q1, row.ratio_q3).with_quartiles(),
                "copy": f"{row.of_copy:.0%}{'*' if row.above_copy else ' '}",
            }
            for row in self.rows
        ]
        shown = [header for header in rows[0] if header not in self._shared()]
        return shown, [[row[header] for header in shown] for row in rows]

    def table(self) -> Table:
        """For a terminal; our rows in bold, a line between what did not run against each other."""
        headers, lines = self.cells()
        table = Table(
            title=self.title(),
            caption="\n".join(self.notes()),
            title_justify="left",
            caption_justify="left",
            box=box.SIMPLE,
            pad_edge=False,
            padding=(0, 1, 0, 0),
        )
        left = ("op", "dtype", "in", "row", "kernels")
        for header in headers:
            justify: Any = "left" if header in left else "right"
            table.add_column(header, justify=justify, no_wrap=header != "kernels")
        groups = [row.group for row in self.rows]
        for row, line, group, following in zip(
            self.rows, lines, groups, [*groups[1:], None], strict=True
        ):
            style = "bold" if row.name == OURS else None
            absent = [m for m in self.missing if m.group == group] if group != following else []
            table.add_row(*line, style=style, end_section=group != following and not absent)
            for missing in absent:
                cells = {"row": missing.name, "us (IQR)": "none", "in": FRAMEWORK_LABELS[group[1]]}
                cells["size"] = size_label(missing.elements)
                cells |= {"op": missing.op, "dtype": missing.dtype, "threads": str(missing.threads)}
                texts = [cells.get(header, "") for header in headers]
                table.add_row(*texts, style="dim", end_section=missing is absent[-1])
        return table

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for json."""
        missing = [asdict(m) for m in self.missing]
        machine = {"machine": dict(self.machine), "missing": missing}
        return asdict(self) | machine | {"knees": self.knees()}

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Writes a picture: for each operator, dtype and number of threads the ratios, and beside
        them what the rows reach of the copy bandwidth.

        Args:
            path: the file; its suffix says the format (.png, .svg, .pdf).
        """
        from myops.bench import picture

        picture.write(self, path)
