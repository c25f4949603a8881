# SPDX-License-Identifier: Apache-2.0
"""The ratios of a report as bars."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from myops.bench.report import FRAMEWORK_LABELS, BenchReport, size_label
from myops.bench.rivals import OURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#4269d0", "#efb118", "#3ca951", "#ff725c")


def draw(report: BenchReport, axes: Axes, op: str, dtype: str) -> None:
    """Draws how many times as fast as each rival one operator is, a bar per size."""
    rows = [r for r in report.rows if (r.op, r.dtype) == (op, dtype) and r.name != OURS]
    rivals = list(dict.fromkeys((row.framework, row.name) for row in rows))
    sizes = sorted({row.elements for row in rows})
    height = 0.8 / len(sizes)
    for i, size in enumerate(sizes):
        found = {(r.framework, r.name): r for r in rows if r.elements == size}
        ordered = [found[rival] for rival in rivals]
        bars = axes.barh(
            np.arange(len(rivals)) + (i - (len(sizes) - 1) / 2) * height,
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
    axes.set_title(f"How many times as fast myops is ({op}, {dtype})")
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)


def write(report: BenchReport, path: str | os.PathLike[str]) -> None:
    """Writes the picture of a report, one panel per operator and dtype."""
    # Without pyplot: no window system is asked for, and no global state of the caller's changes.
    from matplotlib.figure import Figure

    panels = list(dict.fromkeys((row.op, row.dtype) for row in report.rows))
    figure = Figure(figsize=(7.5, 4.2 * len(panels)), layout="constrained")
    all_axes = figure.subplots(len(panels), squeeze=False)[:, 0]
    for axes, (op, dtype) in zip(all_axes, panels, strict=True):
        draw(report, axes, op, dtype)
    figure.savefig(path, dpi=150)
