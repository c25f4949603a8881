# SPDX-License-Identifier: Apache-2.0
"""The speeds of a record as dots on a logarithmic scale."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from myops.bench.picture import COLOURS
from myops.bench.report import size_label

from claims.model import Row
from claims.tables import label, rival_label, split


def draw(rows: Sequence[Row], path: Path) -> None:
    """Writes the picture: a line per work and rival, a dot per size with its quartiles."""
    import matplotlib
    from matplotlib.figure import Figure

    several, _ = split(rows)
    groups = list(several.values())
    sizes = sorted({row.size for group in groups for row in group})
    # A fixed salt and no date: the same figures give the same file.
    with matplotlib.rc_context({"svg.hashsalt": "myops", "svg.fonttype": "none"}):
        figure = Figure(figsize=(8, 1.2 + 0.36 * len(groups)), layout="constrained")
        axes = figure.subplots()
        for i, size in enumerate(sizes):
            found = [
                (y, row) for y, group in enumerate(groups) for row in group if row.size == size
            ]
            axes.errorbar(
                [row.ratio for _, row in found],
                [y + 0.12 * (i - (len(sizes) - 1) / 2) for y, _ in found],
                xerr=[
                    [row.ratio - row.ratio_q1 for _, row in found],
                    [row.ratio_q3 - row.ratio for _, row in found],
                ],
                fmt="o",
                markersize=5,
                elinewidth=1,
                color=(*COLOURS, "#9467bd", "#17becf")[i % 6],
                label=f"{size_label(size)} elements",
            )
        axes.set_yticks(
            range(len(groups)),
            [f"{label(group[0])}, against {rival_label(group[0])}" for group in groups],
        )
        axes.invert_yaxis()
        axes.axvline(1.0, color="0.3", linewidth=1, linestyle="--", zorder=0)
        axes.set_xscale("log", base=2)
        ticks = (0.5, 1, 2, 4, 8)
        axes.set_xticks(ticks, [f"{tick:g}×" for tick in ticks])
        axes.minorticks_off()
        axes.grid(axis="y", color="0.92")
        axes.set_axisbelow(True)
        axes.set_xlabel("time of the rival / time of myops (whiskers: quartiles)")
        axes.legend(frameon=False, fontsize=8, loc="lower right")
        axes.spines[["top", "right"]].set_visible(False)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.tmp")
        figure.savefig(temporary, format="svg", metadata={"Date": None})
    temporary.replace(path)
