# SPDX-License-Identifier: Apache-2.0
"""Swish of tensors that are not contiguous, in PyTorch.

Dense ones, such as channels_last and transposed, should cost what contiguous ones cost. One with
gaps should cost no more than copying it together first. All layouts view the same memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from claims import Claim, Contest, Goal, Setup, contest_script, main
from myops.bench.agreement import expected_result
from myops.bench.rivals import CHECKED, Case, Data, aligned
from myops.bench.torch_rows import tensor_on
from myops.spec import SWISH

DENSE = (Goal(65_536, 1.05), Goal(3_145_728, 1.05))
CHANNELS = 16
COPIED = "contiguous plus one copy"


def _claim(name: str, rival: str, variant: str, goals: tuple[Goal, ...]) -> Claim:
    return Claim(
        f"torch-layout-{name.replace(' ', '-').replace('_', '-')}",
        f"Swish forward, {name}",
        rival,
        "torch",
        goals,
        variant=variant,
        ours=name,
        cost=True,
    )


CLAIMS = (
    _claim("channels_last", "contiguous", "dense", DENSE),
    _claim("transposed", "contiguous", "dense", DENSE),
    _claim("every second column", COPIED, "gaps", (Goal(65_536, 1.0), Goal(3_145_728, 1.0))),
)


def _dense(data: Data, size: int) -> Contest:
    from myops.functional import swish

    x, out = tensor_on(data.inputs[0]), tensor_on(data.output)

    def case(name: str, view: Any) -> Case:
        source, target = view(x), view(out)
        return Case("torch", name, "", lambda: swish(source, out=target), 1, result)

    def result() -> np.ndarray:
        return data.output[:CHECKED].astype(np.float64)

    cases = [
        case("contiguous", lambda t: t),
        # Channels innermost: (N, H, W, C) in memory, seen as (N, C, H, W).
        case("channels_last", lambda t: t.view(1, -1, 8, CHANNELS).permute(0, 3, 1, 2)),
        case("transposed", lambda t: t.view(-1, min(256, size)).t()),
    ]
    return Contest.of(cases, expected_result(SWISH, data))


def _gaps(data: Data, size: int) -> Contest:
    from myops.functional import swish

    rows = max(1, size // 512)
    wide = aligned(2 * size, data.output.dtype)
    wide[::2] = data.inputs[0]
    strided = tensor_on(wide).view(rows, -1)[:, ::2]
    copy, out = (tensor_on(array).view(rows, -1) for array in (data.scratch, data.output))

    def with_copy() -> object:
        copy.copy_(strided)
        return swish(copy, out=out)

    def result() -> np.ndarray:
        return data.output[:CHECKED].astype(np.float64)

    cases = [
        Case("torch", COPIED, "", with_copy, 1, result),
        Case("torch", "every second column", "", lambda: swish(strided, out=out), 1, result),
    ]
    return Contest.of(cases, expected_result(SWISH, data))


def contest(setup: Setup) -> Contest:
    data = Data.make(SWISH, setup.size, setup.dtype)
    return (_dense if setup.variant == "dense" else _gaps)(data, setup.size)


SCRIPT = contest_script("torch_strides", CLAIMS, contest)

if __name__ == "__main__":
    main(SCRIPT)
