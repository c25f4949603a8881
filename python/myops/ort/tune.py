# SPDX-License-Identifier: Apache-2.0
"""Which session settings are the fastest for a model on this machine? Measured, not guessed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from myops._errors import UsageError, require
from myops.ort.feeds import Arrays, model_inputs
from myops.ort.session import OPTIMIZATION_LEVELS, WHERE
from myops.ort.tune_report import Setting, Tuning

LEVELS = ("basic", "extended", "all")


def default_threads() -> tuple[int, ...]:
    """1, 2, 4, ... and the number of cores this process may use."""
    cores = len(os.sched_getaffinity(0))
    powers = [2**n for n in range(cores.bit_length())]
    return tuple(sorted({*powers, cores}))


def tune(
    model: str | os.PathLike[str],
    inputs: Arrays | str | os.PathLike[str] | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    threads: Sequence[int] | None = None,
    levels: Sequence[str] = LEVELS,
    rounds: int = 30,
    warmup: int = 5,
    plugin: str | os.PathLike[str] | None = None,
    on_round: Callable[[int], object] | None = None,
) -> Tuning:
    """Measures a model under every combination of settings, interleaved.

    Args:
        model: path of an .onnx file.
        inputs: arrays by input name, or an .npz file; made up from the model's signature if None.
            The best settings depend on sizes: give inputs like those you will run.
        dims: sizes of symbolic dims for made-up inputs; 2 if not named.
        threads: values of ``intra_op_num_threads``; 1, 2, 4, ... up to this process's cores if
            None.
        levels: graph optimization levels, as in ``myops.ort.session``.
        rounds: samples per combination.
        warmup: runs of each before its first sample.
        plugin: another plugin file than the installed one.
        on_round: called after each round with the number of rounds there will be, for progress
            bars.

    Returns:
        ``best``, with the arguments for ``myops.ort.session``, and all rows. Combinations within
        3 % of the fastest count as equal to it; of those the best is the one with the fewest
        threads, then the highest level, then without the plugin. With and without the plugin only
        where the model has nodes for it, and can run without.

    Raises:
        ModelError: the model is not usable.
        LibraryError: the plugin is not usable.
        UsageError: an argument is not usable, or the model does not run on the inputs.

    Does not tune ``inter_op_num_threads``, spinning, memory or other execution providers, nor
    several sessions that run at the same time.
    """
    from myops.bench import machine
    from myops.bench.model_runs import (
        Variant,
        difference,
        expected_rounds,
        measure,
        plugin_choices,
    )

    require(WHERE, "onnx", "onnxruntime")
    numbers = tuple(dict.fromkeys(default_threads() if threads is None else threads))
    if not numbers or min(numbers) < 1 or rounds < 1 or warmup < 0:
        raise UsageError(
            WHERE,
            "threads and rounds should be at least 1, and warmup at least 0",
            f"threads {list(numbers)}, rounds {rounds}, warmup {warmup}",
            "Correct them",
        )
    if not levels or not set(levels) <= set(OPTIMIZATION_LEVELS):
        raise UsageError(
            WHERE,
            f"levels should be among {', '.join(OPTIMIZATION_LEVELS)}",
            repr(list(levels)),
            "Choose some",
        )
    from myops.onnx import model as onnx_model

    load = os.getloadavg()[0]
    path = Path(model)
    arrays = model_inputs(onnx_model.load(path, weights=False), inputs, dims)
    variants = [
        Variant(path, number, level, with_plugin)
        for number in numbers
        for with_plugin in plugin_choices(path)
        for level in dict.fromkeys(levels)
    ]
    total = expected_rounds(variants, rounds)
    timed = measure(
        variants,
        arrays,
        rounds,
        warmup,
        plugin,
        None if on_round is None else lambda: on_round(total),
    )
    settings = [
        Setting(
            intra_op_num_threads=found.variant.threads,
            graph_optimization_level=found.variant.level,
            plugin=found.variant.plugin,
            median_ms=1e3 * found.timing.median,
            q1_ms=1e3 * found.timing.q1,
            q3_ms=1e3 * found.timing.q3,
            difference=difference(found.outputs, timed[0].outputs),
        )
        for found in timed
    ]
    return Tuning(
        model=os.fspath(model),
        rows=settings,
        inputs={name: f"{array.dtype}{list(array.shape)}" for name, array in arrays.items()},
        rounds=rounds,
        machine=machine.describe(),
        load=load,
    )
