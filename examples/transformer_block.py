# SPDX-License-Identifier: Apache-2.0
"""A transformer block with RMSNorm, SwiGLU and Swish, trained twice from one seed: with myops and
with torch's own operators. The losses have to agree; then the trained model is exported and every
layer verified.

    python examples/transformer_block.py [--steps 200] [--json]

The data are the handwritten digits of scikit-learn, read row by row: 8 tokens of 8 pixels.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import myops.nn
import myops.onnx
import torch
import typer
from myops import functional
from myops.demo.train import Digits
from myops.verify import verify_model
from rich.console import Console
from rich.progress import track
from torch import nn

WIDTH, HIDDEN, HEADS, BATCH = 128, 384, 4, 64

# Loss of one run against the other, relative, at any of 200 steps. Rounding differs in the last
# bits, and training makes such differences grow.
TOLERANCE = {torch.float32: 2e-4, torch.float64: 1e-11}


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.queries_keys_values = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = x.shape
        parts = self.queries_keys_values(x).view(batch, tokens, 3, HEADS, WIDTH // HEADS)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, WIDTH))


class Ours(nn.Module):
    """What this package computes."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(myops.nn.RMSNorm(WIDTH, eps=1e-6) for _ in range(3))

    def norm(self, index: int, x: torch.Tensor) -> torch.Tensor:
        return self.norms[index](x)

    def add_norm(
        self, index: int, x: torch.Tensor, residual: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        y, total = self.norms[index](x, residual)
        return y, total

    def gated(self, gate: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return functional.swiglu(gate, x)

    def activation(self, x: torch.Tensor) -> torch.Tensor:
        return functional.swish(x)


class Torchs(nn.Module):
    """The same with torch's operators."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH, eps=1e-6) for _ in range(3))

    def norm(self, index: int, x: torch.Tensor) -> torch.Tensor:
        return self.norms[index](x)

    def add_norm(
        self, index: int, x: torch.Tensor, residual: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        total = x + residual
        return self.norms[index](total), total

    def gated(self, gate: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.silu(gate) * x

    def activation(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.silu(x)


class Classifier(nn.Module):
    """Embedding, one block, head."""

    def __init__(self, operators: Ours | Torchs) -> None:
        super().__init__()
        self.operators = operators
        self.embedding = nn.Linear(8, WIDTH)
        self.positions = nn.Parameter(0.02 * torch.randn(8, WIDTH))
        self.attention = Attention()
        self.gate_and_up = nn.Linear(WIDTH, 2 * HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)
        self.hidden = nn.Linear(WIDTH, WIDTH)
        self.classes = nn.Linear(WIDTH, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Logits, (batch, 10), of images (batch, 8, 8)."""
        x = self.embedding(image) + self.positions
        attended = self.attention(self.operators.norm(0, x))
        y, x = self.operators.add_norm(1, attended, x)
        gate, up = functional.split_gate(self.gate_and_up(y))
        y, x = self.operators.add_norm(2, self.down(self.operators.gated(gate, up)), x)
        return self.classes(self.operators.activation(self.hidden(y.mean(1))))


@dataclass
class Result:
    """One dtype's two runs."""

    dtype: str
    steps: int
    first_loss: float
    last_loss: float
    worst_difference: float
    tolerance: float
    ours_ms: float
    torch_ms: float
    ratio: float
    held_out: float


def _model(operators: type[Ours] | type[Torchs], dtype: torch.dtype) -> Classifier:
    torch.manual_seed(0)
    return Classifier(operators()).to(dtype)


def compare(dtype: torch.dtype, steps: int) -> tuple[Result, Classifier]:
    """Trains both, a step of one and a step of the other in turns, so that the times compare."""
    digits = Digits.load()
    images = torch.from_numpy(digits.train_x).squeeze(1).to(dtype)
    labels = torch.from_numpy(digits.train_y)
    models = [_model(Ours, dtype), _model(Torchs, dtype)]
    optimizers = [torch.optim.AdamW(model.parameters(), 1e-3) for model in models]
    losses: list[list[float]] = [[], []]
    times: list[list[float]] = [[], []]
    batches = torch.Generator().manual_seed(1)
    for _ in track(range(steps), f"Training, {dtype}", console=Console(stderr=True)):
        chosen = torch.randint(len(images), (BATCH,), generator=batches)
        for i, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            start = time.perf_counter()
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
            loss.backward()
            optimizer.step()
            times[i].append(time.perf_counter() - start)
            losses[i].append(loss.item())
    tested = torch.from_numpy(digits.test_x).squeeze(1).to(dtype)
    with torch.no_grad():
        right = models[0](tested).argmax(1) == torch.from_numpy(digits.test_y)
    result = Result(
        dtype=str(dtype).removeprefix("torch."),
        steps=steps,
        first_loss=losses[0][0],
        last_loss=losses[0][-1],
        worst_difference=max(abs(a - b) / b for a, b in zip(*losses, strict=True)),
        tolerance=TOLERANCE[dtype],
        ours_ms=1e3 * statistics.median(times[0]),
        torch_ms=1e3 * statistics.median(times[1]),
        ratio=statistics.median(b / a for a, b in zip(*times, strict=True)),
        held_out=right.double().mean().item(),
    )
    return result, models[0].eval()


def main(
    steps: Annotated[int, typer.Option(help="Optimizer steps.", min=1)] = 200,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
) -> None:
    """Trains, compares, exports and verifies. Exit code 1 where something does not agree."""
    console = Console()
    results = []
    for dtype in TOLERANCE:
        result, model = compare(dtype, steps)
        results.append(result)
        if dtype == torch.float32:
            trained = model
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "block.onnx"
        sample = (torch.rand(2, 8, 8),)
        exported = myops.onnx.export(trained, sample, path, dynamic={"image": {0: "batch"}})
        report = verify_model(path, trained, dims={"batch": 3})
    agree = all(result.worst_difference <= result.tolerance for result in results)
    if as_json:
        print(
            json.dumps(
                {
                    "runs": [asdict(result) for result in results],
                    "nodes": exported.nodes,
                    "verify": report.to_dict(),
                }
            )
        )
    else:
        for r in results:
            console.print(
                f"{r.dtype}: loss {r.first_loss:.3f} to {r.last_loss:.4f} in {r.steps} steps, "
                f"{r.held_out:.1%} of held-out digits right. Losses of the two runs differ by at "
                f"most {r.worst_difference:.1e} (allowed {r.tolerance:.0e}). A step takes "
                f"{r.ours_ms:.2f} ms, with torch's operators {r.torch_ms:.2f} ms ({r.ratio:.2f}x)."
            )
        ours = [node for node in exported.nodes if node.startswith("myops::")]
        console.print(f"Exported with {', '.join(ours)}.")
        console.print(report.table())
    raise typer.Exit(0 if agree and report.ok else 1)


if __name__ == "__main__":
    typer.run(main)
