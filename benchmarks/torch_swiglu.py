# SPDX-License-Identifier: Apache-2.0
"""SwiGLU in PyTorch, float32, against torch's fused silu followed by a product.

Both write into shared buffers; the rival needs one more of them.
"""

from __future__ import annotations

from claims import Claim, Contest, Goal, Setup, contest_script, main
from myops.bench.agreement import expected_result
from myops.bench.rivals import Data
from myops.bench.torch_rows import torch_cases
from myops.spec import SWIGLU

CLAIMS = (
    Claim(
        "torch-swiglu-silu-mul",
        "SwiGLU forward",
        "F.silu, mul",
        "torch",
        (
            Goal(4096, 2.0),
            Goal(65_536, 2.0, 2.2),
            Goal(3_145_728, 2.0, 2.4),
            Goal(67_108_864, 2.0, 2.5),
        ),
    ),
)


def contest(setup: Setup) -> Contest:
    data = Data.make(SWIGLU, setup.size, setup.dtype)
    return Contest.of(torch_cases(SWIGLU, data), expected_result(SWIGLU, data))


SCRIPT = contest_script("torch_swiglu", CLAIMS, contest)

if __name__ == "__main__":
    main(SCRIPT)
