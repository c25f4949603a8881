# SPDX-License-Identifier: Apache-2.0
"""The ways a model is trained and shipped, beyond a plain backward pass."""

from __future__ import annotations

from pathlib import Path

import myops.functional
import myops.nn
import myops.swap
import pytest
import torch
from torch.utils.checkpoint import checkpoint

from ..support import each_spec
from .support import function


class Block(torch.nn.Module):
    """Two layers around one operator."""

    def __init__(self, spec) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = torch.nn.Linear(5, 4 * len(spec.inputs))
        self.operator = getattr(myops.nn, spec.name)()
        self.outer = torch.nn.Linear(4, 2)
        self.parts = len(spec.inputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(self.operator(*self.inner(x).chunk(self.parts, -1)))


X = torch.linspace(-2, 2, 15).reshape(3, 5)


@each_spec
def test_checkpointing_gives_the_same_gradients(spec) -> None:
    plain, saved = Block(spec), Block(spec)
    plain(X).sum().backward()
    checkpoint(saved, X, use_reentrant=False).sum().backward()
    for a, b in zip(plain.parameters(), saved.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)


@each_spec
def test_functional_call_and_per_sample_gradients(spec) -> None:
    model = Block(spec)
    parameters = dict(model.named_parameters())

    def loss(values, x):
        return torch.func.functional_call(model, values, (x,)).square().sum()

    per_sample = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, X)
    for i, row in enumerate(X):
        model.zero_grad()
        loss(parameters, row).backward()
        for name, parameter in parameters.items():
            torch.testing.assert_close(per_sample[name][i], parameter.grad)


@each_spec
def test_deterministic_algorithms_are_enough(spec) -> None:
    torch.use_deterministic_algorithms(True)
    try:
        first, second = Block(spec), Block(spec)
        for model in (first, second):
            model(X).square().sum().backward()
        for a, b in zip(first.parameters(), second.parameters(), strict=True):
            assert torch.equal(a.grad, b.grad)
    finally:
        torch.use_deterministic_algorithms(False)


@each_spec
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_leaves_the_dtype_alone(spec, dtype: torch.dtype) -> None:
    inputs = [X for _ in spec.inputs]
    with torch.autocast("cpu", dtype=dtype):
        assert function(spec)(*inputs).dtype == torch.float32
        assert function(spec)(*[x.to(dtype) for x in inputs]).dtype == dtype
        out = Block(spec)(X)
    assert out.dtype == dtype


@each_spec
def test_ahead_of_time_package(spec, tmp_path: Path) -> None:
    """AOTInductor: a package that runs without the model's Python code."""
    model = Block(spec).eval()
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(model, (X,), dynamic_shapes=({0: batch},))
    path = torch._inductor.aoti_compile_and_package(
        program, package_path=str(tmp_path / "model.pt2")
    )
    loaded = torch._inductor.aoti_load_package(path)
    for size in (3, 7):
        x = torch.randn(size, 5)
        torch.testing.assert_close(loaded(x), model(x))


def test_swap_there_and_back() -> None:
    shared = torch.nn.SiLU()
    model = torch.nn.Sequential(
        torch.nn.Linear(5, 4),
        shared,
        torch.nn.Sequential(torch.nn.GELU(), torch.nn.GELU(approximate="tanh"), shared),
        torch.nn.Mish(),
        torch.nn.Hardswish(),
        torch.nn.ReLU(),
    )
    expected, keys = model(X), list(model.state_dict())
    done = myops.swap.to_myops(model)
    assert set(done) == {"1", "2.0", "2.1", "2.2", "3", "4"}
    assert model[1] is model[2][2]
    assert type(model[5]) is torch.nn.ReLU
    assert list(model.state_dict()) == keys
    torch.testing.assert_close(model(X), expected)
    assert set(myops.swap.to_torch(model)) == set(done)
    assert torch.equal(model(X), expected)


def test_swap_leaves_what_it_cannot_say() -> None:
    class Own(torch.nn.SiLU):
        pass

    model = torch.nn.Sequential(Own(), myops.nn.Swish(1.5))
    assert myops.swap.to_myops(model) == {}
    assert myops.swap.to_torch(model) == {}


def test_quick_gelu_and_split_gate() -> None:
    x = torch.randn(3, 8)
    quick_gelu = torch.compile(myops.functional.quick_gelu, fullgraph=True)
    for form in (myops.functional.quick_gelu, quick_gelu):
        assert torch.equal(form(x), myops.functional.swish(x, 1.702))
    gate, value = myops.functional.split_gate(x)
    torch.testing.assert_close(
        myops.functional.swiglu(gate, value),
        torch.nn.functional.silu(x[:, :4]) * x[:, 4:],
    )
    with pytest.raises(ValueError, match=r"\[split_gate\] the last dim should be even"):
        myops.functional.split_gate(torch.randn(3, 7))


def test_transformer_block_trains_like_torch_s() -> None:
    """A gated feed-forward block, 200 steps, from the same seed: the same losses."""

    class FeedForward(torch.nn.Module):
        def __init__(self, ours: bool) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.norm = torch.nn.RMSNorm(16)
            self.gate, self.up = torch.nn.Linear(16, 32), torch.nn.Linear(16, 32)
            self.down = torch.nn.Linear(32, 16)
            self.ours = ours

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.norm(x)
            gate, up = self.gate(h), self.up(h)
            if self.ours:
                return x + self.down(myops.functional.swiglu(gate, up))
            return x + self.down(torch.nn.functional.silu(gate) * up)

    losses = []
    for ours in (True, False):
        model = FeedForward(ours)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        generator = torch.Generator().manual_seed(1)
        curve = []
        for _ in range(200):
            x = torch.randn(32, 16, generator=generator)
            loss = (model(x) - x.roll(1, -1)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            curve.append(loss.item())
        losses.append(torch.tensor(curve))
    assert losses[0][-1] < 0.5 * losses[0][0]
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-3, atol=0)
