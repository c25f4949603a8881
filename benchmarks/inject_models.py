# SPDX-License-Identifier: Apache-2.0
"""Models from PyPI before and after ``myops inject``, whole, one and two threads, at ONNX Runtime's
default optimisations.

Each is injected with target "auto" on this machine and with these threads, then measured anew
against its original: the figures that decided are not those that are shown. A model that is left
as it was measures 1.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from claims import Claim, Goal, Row, Script, Settings, main
from myops.bench import interleaved
from myops.onnx.inject import inject_file
from myops.onnx.inject.inputs import proposals
from myops.ort import session

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "third_party"))

from real_models import MODELS, RealModel, fetch

ORIGINAL = "original"
ROUNDS = 40
SECONDS, QUICK_SECONDS = 8.0, 0.2


def _elements(model: RealModel) -> int:
    return int(np.prod(model.input_shape))


def _claim(model: RealModel) -> Claim:
    return Claim(
        f"inject-{model.name}",
        f"{model.name} after myops inject",
        ORIGINAL,
        "onnxruntime",
        (Goal(_elements(model), model.speedup),),
        threads=(1, 2),
        variant=model.name,
    )


CLAIMS = tuple(_claim(model) for model in MODELS)


def _row(
    claim: Claim, model: RealModel, threads: int, settings: Settings, on_round: Callable[[], object]
) -> Row:
    source = fetch(model)
    rounds = settings.rounds or ROUNDS
    feeds = next(proposals(onnx.load(source), None, model.dims))
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / source.name
        report = inject_file(
            source,
            result,
            threads=threads,
            dims=model.dims,
            seconds=QUICK_SECONDS if settings.largest else SECONDS,
        )
        before = session(source, intra_op_num_threads=threads)
        after = session(result, intra_op_num_threads=threads)
        timings = interleaved(
            {
                ORIGINAL: lambda: before.run(None, feeds),
                claim.ours: lambda: after.run(None, feeds),
            },
            rounds,
            warmup=2,
            settle=threads > 1,
            on_round=on_round,
        )
    chosen = Counter(f"{row.operator} {row.target}" for row in report.rows if row.target)
    what = ", ".join(f"{count} {name}" for name, count in chosen.items()) or "unchanged"
    return Row.of(
        claim,
        claim.goals[0],
        threads,
        ours=timings[claim.ours].samples,
        rival=timings[ORIGINAL].samples,
        kernels=what,
    )


def measure(script: Script, settings: Settings, on_round: Callable[[], object]) -> list[Row]:
    models = {model.name: model for model in MODELS}
    return [
        _row(claim, models[claim.variant], threads, settings, on_round)
        for claim in script.claims
        for threads in claim.threads
    ]


def total_rounds(script: Script, settings: Settings) -> int:
    return sum(len(claim.threads) for claim in script.claims) * (settings.rounds or ROUNDS)


SCRIPT = Script("inject_models", CLAIMS, measure, total_rounds)

if __name__ == "__main__":
    main(SCRIPT)
