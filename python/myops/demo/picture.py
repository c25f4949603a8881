# SPDX-License-Identifier: Apache-2.0
"""The demo in one picture: how it learned, the function, how fast it is, what it reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from myops.bench import picture as bench_picture
from myops.bench.report import BenchReport
from myops.demo.train import TARGET, Digits, Epoch
from myops.spec import SWISH

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, YELLOW, GREEN, RED = bench_picture.COLOURS[:4]
_SHOWN = 16


def _training(axes: Axes, epochs: list[Epoch]) -> None:
    from matplotlib.ticker import MaxNLocator

    numbers = np.arange(1, len(epochs) + 1)
    accuracies = [100 * epoch.accuracy for epoch in epochs]
    axes.plot(numbers, accuracies, color=BLUE, marker="o", markersize=4, label="held-out accuracy")
    axes.axhline(100 * TARGET, color="0.3", linewidth=1, linestyle="--")
    axes.annotate(
        f"{accuracies[-1]:.1f} %",
        (float(numbers[-1]), accuracies[-1]),
        textcoords="offset points",
        xytext=(0, 8),
        ha="right",
        color=BLUE,
        weight="bold",
    )
    axes.set_ylim(top=104)
    axes.set_xlabel("epoch")
    axes.set_ylabel("accuracy, %")
    axes.set_title("Learning to read digits with Swish")
    losses = axes.twinx()
    losses.plot(numbers, [epoch.loss for epoch in epochs], color=YELLOW, label="training loss")
    losses.set_ylim(bottom=0)
    losses.set_ylabel("loss", labelpad=2)
    losses.spines["top"].set_visible(False)
    axes.spines["top"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    lines = [*axes.get_lines()[:1], *losses.get_lines()]
    axes.legend(lines, [str(line.get_label()) for line in lines], frameon=False, loc="center right")


def _function(axes: Axes) -> None:
    """Curves from the kernels that everything else here uses."""
    import torch

    from myops import functional

    x = torch.linspace(-6, 6, 601, requires_grad=True)
    for beta, colour in ((0.5, GREEN), (1.0, BLUE), (1.702, RED)):
        y = getattr(functional, SWISH.torch_name)(x, beta)
        (gradient,) = torch.autograd.grad(y.sum(), x)
        points = x.detach().numpy()
        axes.plot(points, y.detach().numpy(), color=colour, label=f"β = {beta:g}")
        axes.plot(points, gradient.numpy(), color=colour, linestyle=":", linewidth=1.4)
    axes.plot([], [], color="0.3", linestyle=":", label="gradient")
    axes.set_ylim(-1.1, 4)
    axes.axhline(0, color="0.8", linewidth=0.8, zorder=0)
    axes.axvline(0, color="0.8", linewidth=0.8, zorder=0)
    axes.set_xlabel("x")
    axes.set_title("Swish, x · sigmoid(βx)")
    axes.legend(frameon=False, loc="upper left")
    axes.spines[["top", "right"]].set_visible(False)


def _digit(axes: Axes, image: npt.NDArray[Any], read: int, label: int) -> None:
    axes.imshow(image, cmap="gray_r", interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    right = read == label
    axes.spines[:].set_color("0.8" if right else RED)
    text = f"{read}" if right else f"{read} (is {label})"
    axes.set_title(text, fontsize=11, color=GREEN if right else RED, weight="bold", pad=4)


def write(
    path: Path,
    epochs: list[Epoch],
    benchmark: BenchReport,
    digits: Digits,
    scores: npt.NDArray[Any],
) -> None:
    """Writes the picture.

    Args:
        path: a .png file.
        epochs: of the training.
        benchmark: of which the first operator and dtype are drawn.
        digits: of which the first held-out ones are drawn.
        scores: (count, 10) of the held-out digits, as the exported model computed them.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 6.6), layout="constrained")
    rows: Any = figure.subfigures(2, 1, height_ratios=(4.6, 1.3))
    top, bottom = rows
    first, second, third = top.subplots(1, 3, width_ratios=(1, 1, 1.2))
    _training(first, epochs)
    _function(second)
    bench_picture.draw(benchmark, third, benchmark.rows[0].op, benchmark.rows[0].dtype)
    bottom.suptitle("Held-out digits, and what model.onnx reads in ONNX Runtime with the plugin")
    read = scores.argmax(axis=1)
    for i, axes in enumerate(bottom.subplots(1, _SHOWN)):
        _digit(axes, digits.test_x[i, 0], int(read[i]), int(digits.test_y[i]))
    figure.savefig(path, dpi=130)
