# SPDX-License-Identifier: Apache-2.0
"""Swish in ONNX Runtime, float32, one thread: against its own fusion and the decomposed form.

Time per node of a chain (``myops.bench.ort_rows`` says why), shorter where memory and patience ask
for it.
"""

from __future__ import annotations

from claims import LARGE, Claim, Contest, Goal, Setup, contest_script, main
from myops.bench.agreement import expected_result
from myops.bench.ort_rows import LINKS, ort_cases
from myops.bench.rivals import Data
from myops.spec import SWISH

LINKS_LARGE = 3
BETAS = {"beta 1": 1.0, "beta 1.702": 1.702}

CLAIMS = (
    Claim(
        "ort-swish-fused",
        "Swish",
        "fused",
        "onnxruntime",
        (
            Goal(256, 0.80, 0.93),
            Goal(4096, 1.03),
            Goal(65_536, 1.07, 1.2),
            Goal(3_145_728, 1.15, 1.25),
            Goal(67_108_864, 1.5, 1.9),
        ),
        variant="beta 1",
    ),
    Claim(
        "ort-swish-fused-beta",
        "Swish, beta 1.702",
        "fused",
        "onnxruntime",
        (Goal(4096, 1.25), Goal(65_536, 1.9), Goal(3_145_728, 1.9, 3.0)),
        variant="beta 1.702",
    ),
    Claim(
        "ort-swish-decomposed",
        "Swish",
        "decomposed",
        "onnxruntime",
        (
            Goal(4096, 1.9),
            Goal(65_536, 1.9),
            Goal(3_145_728, 1.9, 2.6),
            Goal(67_108_864, 3.3, 4.0),
        ),
        variant="beta 1",
    ),
)


def contest(setup: Setup) -> Contest:
    data = Data.make(SWISH, setup.size, setup.dtype)
    links = LINKS if setup.size <= LARGE else LINKS_LARGE
    attributes = {"beta": BETAS[setup.variant]}
    cases = ort_cases(SWISH, data, setup.threads, links, attributes)
    return Contest.of(cases, expected_result(SWISH, data, links, attributes))


SCRIPT = contest_script("ort_swish", CLAIMS, contest)

if __name__ == "__main__":
    main(SCRIPT)
