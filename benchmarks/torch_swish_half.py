# SPDX-License-Identifier: Apache-2.0
"""Swish forward in PyTorch, float16 and bfloat16, against torch's fused form."""

from __future__ import annotations

from claims import Claim, Contest, Goal, Setup, contest_script, main
from myops.bench.agreement import expected_result
from myops.bench.rivals import Data
from myops.bench.torch_rows import torch_cases
from myops.spec import SWISH

CLAIMS = (
    Claim(
        "torch-swish-forward-float16",
        "Swish forward",
        "F.silu",
        "torch",
        (Goal(65_536, 1.7), Goal(3_145_728, 1.7)),
        dtype="float16",
    ),
    Claim(
        "torch-swish-forward-bfloat16",
        "Swish forward",
        "F.silu",
        "torch",
        (Goal(65_536, 1.5), Goal(3_145_728, 1.5), Goal(67_108_864, 1.5)),
        dtype="bfloat16",
    ),
)


def contest(setup: Setup) -> Contest:
    data = Data.make(SWISH, setup.size, setup.dtype)
    cases = [case for case in torch_cases(SWISH, data) if case.name != "x*sigmoid(x)"]
    return Contest.of(cases, expected_result(SWISH, data))


SCRIPT = contest_script("torch_swish_half", CLAIMS, contest)

if __name__ == "__main__":
    main(SCRIPT)
