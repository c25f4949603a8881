# SPDX-License-Identifier: Apache-2.0
"""MYOPS_CHECK_FINITE in torch: one message on standard error, forward and backward."""

from __future__ import annotations

import pytest

SETUP = """
import torch
import myops.functional as F
x = torch.full((4, 8), 2.0)
"""

CASES = {
    "a NaN that came in": (
        "x[2, 1] = float('nan'); F.swish(x)",
        "[swish] out should be finite (MYOPS_CHECK_FINITE). Received nan at element 17 of [4, 8] "
        "from x = nan.",
    ),
    "a strided input": (
        "x[2, 1] = float('inf'); F.mish(x.t())",
        "[mish] out should be finite (MYOPS_CHECK_FINITE). Received inf at element 6 of [8, 4] "
        "from x = inf.",
    ),
    "an overflow in halves": (
        "F.swiglu(x.half(), torch.full((4, 8), 60000.0).half())",
        "[swiglu] out should be finite (MYOPS_CHECK_FINITE). Received inf at element 0 of [4, 8] "
        "from gate = 2, x = 60000.",
    ),
    "computed in place": (
        "x[0, 3] = float('inf'); F.swish(x, out=x)",
        "[swish] out should be finite (MYOPS_CHECK_FINITE). Received inf at element 3 of [4, 8]. "
        "Look",
    ),
    "a gradient": (
        "x.requires_grad_(); F.swish(x).backward(torch.full((4, 8), float('inf')))",
        "[swish_backward] out should be finite (MYOPS_CHECK_FINITE). Received inf at element 0 of "
        "[4, 8] from grad_out = inf, x = 2.",
    ),
    "a norm": (
        "x[1, 1] = float('nan'); F.rms_norm(x, torch.ones(8))",
        "[rms_norm] y should be finite (MYOPS_CHECK_FINITE). Received nan at element 8 of [4, 8] "
        "from x = 2, weight = 1.",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_message(run_python, case):
    code, message = CASES[case]
    done = run_python(f"{SETUP}\n{code}\n{code}", env={"MYOPS_CHECK_FINITE": "1"})
    (line,) = done.stderr.splitlines()
    assert line.startswith(message), line


def test_off_by_default(run_python):
    code, _ = CASES["a NaN that came in"]
    assert run_python(f"{SETUP}\n{code}").stderr == ""
