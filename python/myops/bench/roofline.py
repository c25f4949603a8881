# SPDX-License-Identifier: Apache-2.0
"""Achieved bandwidth over bytes moved, below the roof: what this machine reaches copying memory.

Elementwise operators do so little arithmetic per byte that memory is their roof; points above it
had a buffer in a cache.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from myops.bench.report import FRAMEWORK_LABELS, BenchReport
from myops.bench.rivals import OURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from myops.bench.model_report import ModelReport

COLOURS = ("#4269d0", "#efb118", "#3ca951", "#ff725c", "#a463f2", "#6cc5b0", "#9c6b4e", "#97bbf5")

_MARKERS = {"torch": "o", "onnxruntime": "s"}


def _bytes_label(value: float, _: object = None) -> str:
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= unit:
            return f"{value / unit:g} {name}"
    return f"{value:g} B"


def _finish(axes: Axes, roof: float, threads: int, highest: float, log: bool) -> None:
    """Scales, labels and the roof."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    label = f"copy roof: {roof:.1f} GB/s, {threads} thread{'s' * (threads > 1)}"
    axes.axhline(roof, color="0.2", linewidth=1.5, linestyle="--", label=label)
    axes.set_xscale("log")
    if log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(bottom=None if log else 0, top=1.15 * max(roof, highest))
    axes.xaxis.set_major_formatter(FuncFormatter(_bytes_label))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(which="both", color="0.92", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_ylabel("GB/s, inputs read plus outputs written")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes.spines[["top", "right"]].set_visible(False)


def draw_operator(report: BenchReport, axes: Axes, op: str, dtype: str, threads: int) -> None:
    """A line per row of one operator, over its sizes; ours are thick."""
    rows = [r for r in report.rows if (r.op, r.dtype, r.threads) == (op, dtype, threads)]
    names = list(dict.fromkeys((row.framework, row.name) for row in rows))
    for number, (framework, name) in enumerate(names):
        line = sorted(
            (row for row in rows if (row.framework, row.name) == (framework, name)),
            key=lambda row: row.elements,
        )
        axes.plot(
            [row.gbps * row.median_us * 1e3 for row in line],
            [row.gbps for row in line],
            marker=_MARKERS[framework],
            color=COLOURS[number % len(COLOURS)],
            linewidth=2.5 if name == OURS else 1.2,
            markersize=8 if name == OURS else 5,
            label=f"{FRAMEWORK_LABELS[framework]}: {name}",
        )
    highest = max(row.gbps for row in rows)
    _finish(axes, report.copy_gbps[threads], threads, highest, log=False)
    moved = sorted({round(row.gbps * row.median_us * 1e3) for row in rows})
    axes.set_xticks(moved, [_bytes_label(float(f"{value:.2g}")) for value in moved])
    axes.set_xlabel("bytes moved per application")
    axes.set_title(f"Of the copy bandwidth ({op}, {dtype})")


def _label(model: str, runtime: str, level: str, several: bool) -> str:
    text = f"{runtime}, {level}"
    return f"{Path(model).name}\n{text}" if several else text


def _draw_times(report: ModelReport, axes: Axes) -> None:
    ways = list(dict.fromkeys((row.model, row.runtime, row.level) for row in report.rows))
    several = len({model for model, _, _ in ways}) > 1
    height = 0.8 / len(report.threads)
    for i, threads in enumerate(report.threads):
        rows = [row for row in report.rows if row.threads == threads]
        times = [row.milliseconds for row in rows]
        bars = axes.barh(
            np.arange(len(rows)) + (i - (len(report.threads) - 1) / 2) * height,
            [time.median for time in times],
            0.92 * height,
            color=COLOURS[i % len(COLOURS)],
            label=f"{threads} thread{'s' * (threads > 1)}",
            xerr=[[t.median - t.q1 for t in times], [t.q3 - t.median for t in times]],
            error_kw={"ecolor": "0.25", "elinewidth": 1, "capsize": 2},
        )
        axes.bar_label(bars, [f"{time.median:.3g} ms" for time in times], padding=6, fontsize=9)
    axes.set_yticks(np.arange(len(ways)), [_label(*way, several) for way in ways])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.25 * max(row.milliseconds.q3 for row in report.rows))
    axes.set_xlabel("milliseconds a run (whiskers: quartiles)")
    axes.set_title("Time of a run")
    if len(report.threads) > 1:
        axes.legend(frameon=False, fontsize=9, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)


def _draw_nodes(report: ModelReport, axes: Axes) -> None:
    threads = report.threads[0]
    ways = list(dict.fromkeys((p.model, p.runtime, p.level) for p in report.points))
    several = len({model for model, _, _ in ways}) > 1
    for number, way in enumerate(ways):
        points = [p for p in report.points if (p.model, p.runtime, p.level) == way]
        colour = COLOURS[number % len(COLOURS)]
        for ours, marker in ((False, "o"), (True, "*")):
            chosen = [point for point in points if point.ours == ours]
            if chosen:
                axes.scatter(
                    [point.bytes for point in chosen],
                    [point.gbps for point in chosen],
                    s=70 if ours else 22,
                    marker=marker,
                    color=colour,
                    alpha=0.75,
                    linewidths=0,
                    label=_label(*way, several) + (" (myops)" if ours else ""),
                )
    highest = max((point.gbps for point in report.points), default=1.0)
    _finish(axes, report.copy_gbps[threads], threads, highest, log=True)
    axes.set_xlabel("bytes moved per call")
    axes.set_title("What elementwise nodes reach")


def write_models(report: ModelReport, path: str | os.PathLike[str]) -> None:
    """Writes the picture of a report of models: times, and their elementwise nodes."""
    from matplotlib.figure import Figure

    rows: Sequence[object] = report.rows
    figure = Figure(figsize=(14, max(4.2, 0.45 * len(rows) + 1.5)), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_times(report, left)
    _draw_nodes(report, right)
    figure.savefig(path, dpi=150)
