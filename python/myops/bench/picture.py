# SPDX-License-Identifier: Apache-2.0
"""A report of operators as a picture: ratios as bars, and beside them what the rows reach of this
machine's copy bandwidth."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from myops.bench import roofline
from myops.bench.report import FRAMEWORK_LABELS, BenchReport, size_label
from myops.bench.rivals import OURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = roofline.COLOURS


def draw(report: BenchReport, axes: Axes, op: str, dtype: str, threads: int | None = None) -> None:
    """Draws how many times as fast as each rival one operator is, a bar per size; with the first
    number of threads if None."""
    threads = report.threads[0] if threads is None else threads
    chosen = [r for r in report.rows if (r.op, r.dtype, r.threads) == (op, dtype, threads)]
    rows = [row for row in chosen if row.name != OURS]
    rivals = list(dict.fromkeys((row.framework, row.name) for row in rows))
    sizes = sorted({row.elements for row in rows})
    height = 0.8 / len(sizes)
    for i, size in enumerate(sizes):
        ordered = [row for row in rows if row.elements == size]
        places = np.array([rivals.index((row.framework, row.name)) for row in ordered])
        bars = axes.barh(
            places + (i - (len(sizes) - 1) / 2) * height,
            [row.ratio for row in ordered],
            0.92 * height,
            color=COLOURS[i % len(COLOURS)],
            label=f"{size_label(size)} elements",
            xerr=[
                [row.ratio - row.ratio_q1 for row in ordered],
                [row.ratio_q3 - row.ratio for row in ordered],
            ],
            error_kw={"ecolor": "0.25", "elinewidth": 1, "capsize": 2},
        )
        texts = axes.bar_label(bars, [f"{row.ratio:.2f}×" for row in ordered], padding=5)
        for text in texts:  # readable where the line at 1 runs through it
            text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.5})
            text.set_fontsize(9)
    labels = [f"{FRAMEWORK_LABELS[framework]}:\n{name}" for framework, name in rivals]
    axes.set_yticks(np.arange(len(rivals)), labels)
    axes.invert_yaxis()
    axes.axvline(1.0, color="0.3", linewidth=1, linestyle="--", zorder=1.5)
    axes.set_xlim(0, 1.2 * max(row.ratio_q3 for row in rows))
    axes.set_xlabel("time of the rival / time of myops (whiskers: quartiles)")
    sweep = f", {threads} threads" if len(report.threads) > 1 else ""
    axes.set_title(f"How many times as fast myops is ({op}, {dtype}{sweep})")
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)


def write(report: BenchReport, path: str | os.PathLike[str]) -> None:
    """Writes the picture of a report, a line of panels per operator, dtype and threads."""
    # Without pyplot: no window system is asked for, and no global state of the caller's changes.
    from matplotlib.figure import Figure

    panels = list(dict.fromkeys((row.op, row.dtype, row.threads) for row in report.rows))
    figure = Figure(figsize=(14, 4.6 * len(panels)), layout="constrained")
    grid = figure.subplots(len(panels), 2, squeeze=False)
    for (left, right), (op, dtype, threads) in zip(grid, panels, strict=True):
        draw(report, left, op, dtype, threads)
        roofline.draw_operator(report, right, op, dtype, threads)
    figure.savefig(path, dpi=150)
