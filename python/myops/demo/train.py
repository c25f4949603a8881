# SPDX-License-Identifier: Apache-2.0
"""A small convolutional network with Swish, trained on the handwritten digits of scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from myops._errors import MyopsError
from myops.bench.torch_rows import torch_threads

if TYPE_CHECKING:
    import torch

WHERE = "myops.demo"

TARGET = 0.95
"""Held-out accuracy to beat."""

MAX_EPOCHS = 60

_BATCH = 64
_SEED = 0


@dataclass(frozen=True)
class Digits:
    """Real handwritten digits, 1797 of them, a fifth held out by class.

    Attributes:
        train_x: float32, (count, 1, 8, 8), from 0 to 1.
        train_y: int64, (count,).
        test_x: likewise, never trained on.
        test_y: likewise.
    """

    train_x: npt.NDArray[np.float32]
    train_y: npt.NDArray[np.int64]
    test_x: npt.NDArray[np.float32]
    test_y: npt.NDArray[np.int64]

    @classmethod
    def load(cls) -> Digits:
        """From the file that scikit-learn ships; nothing is downloaded."""
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split

        images, labels = load_digits(return_X_y=True)
        x = (images / 16.0).astype(np.float32).reshape(-1, 1, 8, 8)
        train_x, test_x, train_y, test_y = train_test_split(
            x, labels.astype(np.int64), test_size=0.2, stratify=labels, random_state=_SEED
        )
        return cls(train_x, train_y, test_x, test_y)


@dataclass(frozen=True)
class Epoch:
    """Mean training loss, and accuracy on the held-out digits, after one pass."""

    loss: float
    accuracy: float


@dataclass(frozen=True)
class Training:
    """A trained network, in evaluation mode, and how it got there."""

    model: torch.nn.Module
    epochs: list[Epoch]

    @property
    def accuracy(self) -> float:
        return self.epochs[-1].accuracy


def build_model() -> torch.nn.Module:
    """Input ``x`` (batch, 1, 8, 8), output (batch, 10) scores; three calls of Swish, the last with
    another coefficient than the default."""
    from torch import nn

    from myops.nn import Swish

    class DigitNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv2d(1, 16, 3, padding=1),
                Swish(),
                nn.Conv2d(16, 32, 3, stride=2, padding=1),
                Swish(),
                nn.Flatten(),
                nn.Linear(32 * 4 * 4, 64),
                Swish(beta=1.5),
                nn.Linear(64, 10),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """Scores of the ten digits."""
            scores: torch.Tensor = self.layers(x)
            return scores

    return DigitNet()


def predict(model: torch.nn.Module, x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Scores (batch, 10) for digits (batch, 1, 8, 8)."""
    import torch

    with torch.no_grad():
        scores: npt.NDArray[np.float32] = model(torch.from_numpy(x)).numpy()
    return scores


def accuracy(scores: npt.NDArray[Any], labels: npt.NDArray[np.int64]) -> float:
    """Share of the rows whose highest score is at the label."""
    return float((scores.argmax(axis=1) == labels).mean())


def train(digits: Digits, on_epoch: Callable[[Epoch], object]) -> Training:
    """Trains until the held-out accuracy is above ``TARGET``. The same seeds every time, and one
    thread, for tensors this small are fastest on one; the caller's random state and number of
    threads are left alone.

    Raises:
        MyopsError: ``MAX_EPOCHS`` did not suffice.
    """
    import torch
    from torch.nn import functional

    epochs: list[Epoch] = []
    x, y = torch.from_numpy(digits.train_x), torch.from_numpy(digits.train_y)
    with torch_threads(1), torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        model = build_model()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        while not epochs or epochs[-1].accuracy <= TARGET:
            if len(epochs) == MAX_EPOCHS:
                raise MyopsError(
                    WHERE,
                    f"the network should beat {TARGET:.0%} on held-out digits",
                    f"{epochs[-1].accuracy:.1%} after {MAX_EPOCHS} epochs",
                    "Run: myops verify (a wrong gradient would explain it)",
                )
            model.train()
            losses = []
            for rows in torch.randperm(len(x)).split(_BATCH):
                loss = functional.cross_entropy(model(x[rows]), y[rows])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                losses.append(loss.item())
            model.eval()
            scores = predict(model, digits.test_x)
            epochs.append(Epoch(float(np.mean(losses)), accuracy(scores, digits.test_y)))
            on_epoch(epochs[-1])
    return Training(model, epochs)
