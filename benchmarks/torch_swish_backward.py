# SPDX-License-Identifier: Apache-2.0
"""The gradient of Swish in PyTorch, float32, against torch's backward of F.silu.

The backward operators are called as autograd calls them, but into a shared output.
"""

from __future__ import annotations

import numpy as np
from claims import Claim, Contest, Goal, Setup, contest_script, main
from myops._library import load_torch_library
from myops.bench.rivals import CHECKED, OURS, Case, Data
from myops.bench.torch_rows import tensor_on
from myops.spec import SWIGLU

CLAIMS = (
    Claim(
        "torch-swish-backward-silu",
        "Swish backward",
        "F.silu backward",
        "torch",
        (
            Goal(4096, 1.2),
            Goal(65_536, 1.25, 1.4),
            Goal(3_145_728, 1.3, 1.45),
            Goal(67_108_864, 1.5, 1.7),
        ),
    ),
)


def contest(setup: Setup) -> Contest:
    import torch

    load_torch_library()

    # Two inputs are needed, and SwiGLU has two: its first is x here, its second the gradient.
    data = Data.make(SWIGLU, setup.size, setup.dtype)
    x, grad_out = map(tensor_on, data.inputs)
    out = tensor_on(data.output)
    theirs = torch.ops.aten.silu_backward.grad_input
    ours = torch.ops.myops.swish_backward.out

    def result() -> np.ndarray:
        return data.output[:CHECKED].astype(np.float64)

    cases = [
        Case(
            "torch", "F.silu backward", "", lambda: theirs(grad_out, x, grad_input=out), 1, result
        ),
        Case("torch", OURS, "", lambda: ours(grad_out, x, out=out), 1, result),
    ]
    value, grad = (array[:CHECKED].astype(np.float64) for array in data.inputs)
    sigmoid = 1 / (1 + np.exp(-value))
    return Contest.of(cases, grad * (sigmoid + value * sigmoid * (1 - sigmoid)))


SCRIPT = contest_script("torch_swish_backward", CLAIMS, contest)

if __name__ == "__main__":
    main(SCRIPT)
