# SPDX-License-Identifier: Apache-2.0
"""Rows of a benchmark: as a table, a dictionary and a picture."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich import box
from rich.table import Table

from myops.bench.measure import Timing
from myops.bench.rivals import OURS, numpy_dtype

ABOVE_COPY = 1.05
"""A figure this many times the copy bandwidth is above it, not just noise."""

FRAMEWORK_LABELS = {"torch": "torch", "onnxruntime": "ORT"}


def size_label(elements: int) -> str:
    """``elements`` in short: 65536 is "64 Ki"."""
    for unit, name in ((2**20, "Mi"), (2**10, "Ki")):
        if elements % unit == 0:
            return f"{elements // unit} {name}"
    return f"{elements:,}"


def _us(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


@dataclass(frozen=True)
class Measurement:
    """One case as timed: ``samples`` holds the seconds per application of the operator, one value
    per round, in the order of the rounds."""

    op: str
    framework: str
    name: str
    kernels: str
    elements: int
    dtype: str
    threads: int
    tensors: int
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
    above_copy: bool


@dataclass(frozen=True)
class BenchReport:
    """What ``run`` measured.

    Attributes:
        rows: the operators and their rivals.
        copy_gbps: the machine's measured copy bandwidth, read plus written, with these threads.
        rounds: samples per row.
        machine: processor and versions.
        load: the system's load average when the run began.
    """

    rows: list[BenchRow]
    copy_gbps: float
    rounds: int
    machine: Mapping[str, str | int]
    load: float

    @classmethod
    def of(
        cls,
        measurements: list[Measurement],
        copy_gbps: float,
        rounds: int,
        machine: Mapping[str, str | int],
        load: float,
    ) -> BenchReport:
        """Ratios and bandwidths from times. Each group holds a measurement named "myops"."""
        ours = {m.group: m.samples for m in measurements if m.name == OURS}
        rows = []
        for m in measurements:
            moved = m.tensors * m.elements * numpy_dtype(m.dtype).itemsize
            time = Timing.of(m.samples)
            ratio = Timing.of([s / o for s, o in zip(m.samples, ours[m.group], strict=True)])
            gbps = moved / time.median / 1e9
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
                    above_copy=gbps > ABOVE_COPY * copy_gbps,
                )
            )
        return cls(rows, copy_gbps, rounds, machine, load)

    def notes(self) -> list[str]:
        """What a reader has to know about the figures."""
        notes = [
            f"Medians of {self.rounds} rounds in random order; {self.machine['cpu']}.",
            "Ratio: the row's time / that of myops in the same framework and round. Above 1, myops "
            "is faster.",
            f"GB/s: inputs read plus output written. This machine copies memory at "
            f"{self.copy_gbps:.1f} GB/s.",
        ]
        if any(row.above_copy for row in self.rows):
            notes.append("* is above that: a buffer was in a cache, so memory was not measured.")
        cores = int(self.machine["cores"])
        if self.load + self.rows[0].threads > cores + 0.5:
            notes.append(
                f"The machine was busy at the start (load average {self.load:.1f} on {cores} "
                "cores): look at the quartiles."
            )
        return notes

    def title(self) -> str:
        """What all rows have in common."""
        shared = [column[0] for column in self._shared().values()]
        threads = self.rows[0].threads
        return f"Speed: {', '.join([*shared, f'{threads} thread' + 's' * (threads > 1)])}"

    def _shared(self) -> dict[str, list[str]]:
        columns = {"op": [r.op for r in self.rows], "dtype": [r.dtype for r in self.rows]}
        return {name: values for name, values in columns.items() if len(set(values)) == 1}

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Headers and rows as text, without the columns that say the same everywhere."""
        rows = [
            {
                "op": row.op,
                "dtype": row.dtype,
                "elements": size_label(row.elements),
                "in": FRAMEWORK_LABELS[row.framework],
                "row": row.name,
                "kernels": row.kernels,
                "us": _us(row.median_us),
                "ratio (quartiles)": f"{row.ratio:.2f} ({row.ratio_q1:.2f}-{row.ratio_q3:.2f})",
                "GB/s": f"{row.gbps:.1f}{'*' if row.above_copy else ' '}",
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
        for header in headers:
            right = header in ("elements", "us", "ratio (quartiles)", "GB/s")
            wraps = header == "kernels"
            table.add_column(header, justify="right" if right else "left", no_wrap=not wraps)
        groups = [(r.op, r.dtype, r.elements, r.framework) for r in self.rows]
        for row, line, group, following in zip(
            self.rows, lines, groups, [*groups[1:], None], strict=True
        ):
            style = "bold" if row.name == OURS else None
            table.add_row(*line, style=style, end_section=group != following)
        return table

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for json."""
        return asdict(self) | {"machine": dict(self.machine)}

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Writes a picture of the ratios, one panel per operator and dtype.

        Args:
            path: the file; its suffix says the format (.png, .svg, .pdf).
        """
        from myops.bench import picture

        picture.write(self, path)
