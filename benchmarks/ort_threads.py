# SPDX-License-Identifier: Apache-2.0
"""What a second thread brings Swish in ONNX Runtime, float32: two sessions take turns."""

from __future__ import annotations

from claims import Claim, Contest, Goal, Setup, contest_script, main
from myops.bench.agreement import expected_result
from myops.bench.ort_rows import LINKS, chain, session_case
from myops.bench.rivals import Data
from myops.spec import SWISH

CLAIMS = (
    Claim(
        "ort-swish-two-threads",
        "Swish",
        "one thread",
        "onnxruntime",
        (Goal(3_145_728, 1.7),),
        threads=(2,),
        ours="two threads",
    ),
)


def contest(setup: Setup) -> Contest:
    data = Data.make(SWISH, setup.size, setup.dtype)
    model = chain(SWISH, setup.dtype)
    cases = [
        session_case(name, model, SWISH, data, threads)
        for name, threads in (("one thread", 1), ("two threads", 2))
    ]
    return Contest.of(cases, expected_result(SWISH, data, LINKS))


SCRIPT = contest_script("ort_threads", CLAIMS, contest)

if __name__ == "__main__":
    main(SCRIPT)
