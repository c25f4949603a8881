# SPDX-License-Identifier: Apache-2.0
"""RMSNorm over rows of 1024 in PyTorch, float32, against F.rms_norm.

F.rms_norm has no form that writes into a given output, so both allocate their results here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from claims import Claim, Contest, Goal, Setup, contest_script, main
from myops._errors import UsageError
from myops._library import load_torch_library
from myops.bench.rivals import CHECKED, OURS, Case, aligned, numpy_dtype
from myops.bench.torch_rows import tensor_on

WIDTH = 1024
EPS = 1e-6

CLAIMS = (
    Claim(
        "torch-rms-norm",
        f"RMSNorm forward, rows of {WIDTH}",
        "F.rms_norm",
        "torch",
        (
            Goal(4096, 3.0),
            Goal(65_536, 3.0, 3.5),
            Goal(3_145_728, 3.0, 3.5),
            Goal(67_108_864, 3.0),
        ),
    ),
)


def contest(setup: Setup) -> Contest:
    import torch

    load_torch_library()
    if not hasattr(torch.ops.myops, "rms_norm"):
        raise UsageError(
            "benchmarks",
            "torch.ops.myops.rms_norm should be an operator of this build",
            "a build without it",
            "Install a version that has it",
        )
    generator = np.random.default_rng(0)
    dtype = numpy_dtype(setup.dtype)
    values, weights = aligned(setup.size, dtype), aligned(WIDTH, dtype)
    values[:] = generator.standard_normal(setup.size, np.float32)
    weights[:] = generator.standard_normal(WIDTH, np.float32)
    x, weight = tensor_on(values).view(-1, WIDTH), tensor_on(weights)

    def case(name: str, compute: Callable[[Any], Any]) -> Case:
        few = x[: CHECKED // WIDTH]
        return Case("torch", name, "", lambda: compute(x), 1, lambda: compute(few).double().numpy())

    ours = torch.ops.myops.rms_norm.default
    theirs = torch.nn.functional.rms_norm
    cases = [
        case("F.rms_norm", lambda x: theirs(x, (WIDTH,), weight, EPS)),
        case(OURS, lambda x: ours(x, weight, EPS)),
    ]
    few = values[:CHECKED].astype(np.float64).reshape(-1, WIDTH)
    norm = few / np.sqrt(np.mean(few * few, axis=1, keepdims=True) + EPS)
    return Contest.of(cases, norm * weights.astype(np.float64))


SCRIPT = contest_script("torch_rms_norm", CLAIMS, contest)

if __name__ == "__main__":
    main(SCRIPT)
