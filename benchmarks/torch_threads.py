# SPDX-License-Identifier: Apache-2.0
"""What a second thread brings Swish in PyTorch, float32: the number of threads takes turns."""

from __future__ import annotations

import numpy as np
from claims import Claim, Contest, Goal, Setup, contest_script, main
from myops.bench.agreement import expected_result
from myops.bench.rivals import CHECKED, Case, Data
from myops.bench.torch_rows import tensor_on
from myops.spec import SWISH

CLAIMS = (
    Claim(
        "torch-swish-two-threads",
        "Swish forward",
        "one thread",
        "torch",
        (Goal(3_145_728, 1.7),),
        threads=(2,),
        ours="two threads",
    ),
)


def contest(setup: Setup) -> Contest:
    import torch
    from myops.functional import swish

    data = Data.make(SWISH, setup.size, setup.dtype)
    x, out = tensor_on(data.inputs[0]), tensor_on(data.output)

    def case(name: str, threads: int) -> Case:
        def call() -> object:
            torch.set_num_threads(threads)
            return swish(x, out=out)

        def result() -> np.ndarray:
            return data.output[:CHECKED].astype(np.float64)

        return Case("torch", name, "", call, 1, result)

    cases = [case("one thread", 1), case("two threads", 2)]
    return Contest.of(cases, expected_result(SWISH, data))


SCRIPT = contest_script("torch_threads", CLAIMS, contest)

if __name__ == "__main__":
    main(SCRIPT)
