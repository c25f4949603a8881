# SPDX-License-Identifier: Apache-2.0
"""What a call costs whatever it computes: Swish of 4 x 8 numbers in PyTorch, against F.silu.

Both allocate their results, as they do in a model. The training step computes the output and the
gradient of the input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from claims import Claim, Contest, Goal, Setup, contest_script, main
from myops.bench.rivals import OURS, Case

SHAPE = (4, 8)
SIZE = 32

CLAIMS = (
    Claim(
        "torch-call-forward",
        "Swish of 4 x 8, a call without autograd",
        "F.silu",
        "torch",
        (Goal(SIZE, 1.5),),
        variant="forward",
        cost=True,
    ),
    Claim(
        "torch-call-training",
        "Swish of 4 x 8, forward and backward",
        "F.silu",
        "torch",
        (Goal(SIZE, 1.05),),
        variant="training",
        cost=True,
    ),
)


def contest(setup: Setup) -> Contest:
    import torch
    from myops.functional import swish

    training = setup.variant == "training"
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(SHAPE, generator=generator, requires_grad=training)
    grad_out = torch.randn(SHAPE, generator=generator)

    def step(function: Callable[..., Any]) -> Any:
        return torch.autograd.grad(function(x), x, grad_out)[0]

    def case(name: str, function: Callable[..., Any]) -> Case:
        # Without training x asks for no gradient, so that no graph is built.
        call = (lambda: step(function)) if training else (lambda: function(x))
        return Case("torch", name, "", call, 1, lambda: call().double().numpy())

    cases = [case("F.silu", torch.nn.functional.silu), case(OURS, swish)]
    value, grad = (t.detach().double().numpy() for t in (x, grad_out))
    sigmoid = 1 / (1 + np.exp(-value))
    gradient = grad * (sigmoid + value * sigmoid * (1 - sigmoid))
    return Contest.of(cases, gradient if training else value * sigmoid)


SCRIPT = contest_script("torch_call", CLAIMS, contest)

if __name__ == "__main__":
    main(SCRIPT)
