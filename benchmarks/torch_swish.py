# SPDX-License-Identifier: Apache-2.0
"""Swish forward in PyTorch, float32: against torch's fused form, the composed one, and memcpy.

Single eager calls into a shared output, without autograd: allocation is nobody's share. Against
memcpy on one thread, where Swish is asked to cost no more than moving its bytes.
"""

from __future__ import annotations

import ctypes

import numpy as np
from claims import Claim, Contest, Goal, Setup, contest_script, main
from myops.bench.agreement import expected_result
from myops.bench.rivals import CHECKED, Case, Data
from myops.bench.torch_rows import torch_cases
from myops.spec import SWISH

WORK = "Swish forward"

CLAIMS = (
    Claim(
        "torch-swish-forward-silu",
        WORK,
        "F.silu",
        "torch",
        (
            Goal(4096, 1.2),
            Goal(65_536, 1.4, 1.6),
            Goal(3_145_728, 1.4, 1.7),
            Goal(67_108_864, 1.8, 2.1),
        ),
        threads=(1, 2),
    ),
    Claim(
        "torch-swish-forward-composed",
        WORK,
        "x*sigmoid(x)",
        "torch",
        (
            Goal(4096, 1.3),
            Goal(65_536, 1.65),
            Goal(3_145_728, 2.7, 3.0),
            Goal(67_108_864, 3.7, 4.1),
        ),
        threads=(1, 2),
    ),
    Claim(
        "torch-swish-forward-memcpy",
        WORK,
        "memcpy",
        "torch",
        (Goal(67_108_864, 1.15),),
        variant="memcpy",
        cost=True,
    ),
)


def _memcpy(data: Data) -> Case:
    source, target = data.inputs[0].ctypes.data, data.output.ctypes.data
    size = data.output.nbytes
    return Case(
        "libc",
        "memcpy",
        "",
        lambda: ctypes.memmove(target, source, size),
        1,
        lambda: data.output[:CHECKED].astype(np.float64),
    )


def contest(setup: Setup) -> Contest:
    data = Data.make(SWISH, setup.size, setup.dtype)
    cases = torch_cases(SWISH, data)
    expected = expected_result(SWISH, data)
    if setup.variant != "memcpy":
        return Contest.of(cases, expected)
    ours = cases[-1]
    copied = data.inputs[0][:CHECKED].astype(np.float64)
    return Contest([_memcpy(data), ours], {"memcpy": copied, ours.name: expected})


SCRIPT = contest_script("torch_swish", CLAIMS, contest)

if __name__ == "__main__":
    main(SCRIPT)
