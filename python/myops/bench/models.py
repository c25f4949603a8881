# SPDX-License-Identifier: Apache-2.0
"""Measures whole models: with and without the plugin, and one model against another."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from myops._errors import UsageError, require
from myops.bench import machine
from myops.bench.measure import WHERE, copy_bandwidth
from myops.bench.memory import peak_memory
from myops.bench.model_report import ModelReport, ModelRow, Point
from myops.bench.model_runs import (
    Timed,
    Variant,
    difference,
    expected_rounds,
    measure,
    plugin_choices,
)
from myops.bench.report import Spread
from myops.ort.feeds import Arrays, model_inputs
from myops.ort.profile import profile

if TYPE_CHECKING:
    from rich.progress import Progress

_PROFILED_RUNS = 5


LEVELS = {False: ("basic", "all"), True: ("all",)}
"""Plugin registered -> graph optimization levels of its rows."""


def variants_of(paths: Sequence[Path], threads: Sequence[int]) -> list[Variant]:
    """The rows: each model at level basic (its operators as they are) and all (with ONNX Runtime's
    fusions), and with the plugin where it has nodes for it. Without the plugin only where the model
    can run without."""
    plugins = {path: plugin_choices(path) for path in paths}
    return [
        Variant(path, number, level, plugin)
        for number in threads
        for path in paths
        for plugin in plugins[path]
        for level in LEVELS[plugin]
    ]


def _baseline(variant: Variant, timed: Sequence[Timed]) -> Timed:
    """ONNX Runtime alone, as it is by default, on the first model; else that model's first row."""
    same = [t for t in timed if t.variant.threads == variant.threads]
    first = [t for t in same if t.variant.model == same[0].variant.model]
    default = [t for t in first if not t.variant.plugin and t.variant.level == "all"]
    return (default or first)[0]


def _rows(timed: Sequence[Timed], peaks: Mapping[str, int]) -> list[ModelRow]:
    rows = []
    for found in timed:
        variant, base = found.variant, _baseline(found.variant, timed)
        pairs = zip(base.timing.samples, found.timing.samples, strict=True)
        rows.append(
            ModelRow(
                model=os.fspath(variant.model),
                runtime="ORT + plugin" if variant.plugin else "ORT",
                level=variant.level,
                threads=variant.threads,
                baseline=found is base,
                milliseconds=Spread.of([1e3 * s for s in found.timing.samples]),
                ratio=Spread.of([b / s for b, s in pairs]),
                difference=difference(found.outputs, base.outputs),
                peak_bytes=peaks.get(variant.key),
            )
        )
    return rows


def _points(
    variants: Sequence[Variant],
    arrays: Arrays,
    copy_gbps: float,
    library: str | os.PathLike[str] | None,
) -> list[Point]:
    points = []
    for variant in variants:
        found = profile(
            variant.model,
            arrays,
            runs=_PROFILED_RUNS,
            warmup=2,
            threads=variant.threads,
            level=variant.level,
            plugin=(library if library is not None else True) if variant.plugin else False,
            copy_gbps=copy_gbps,
        )
        points += [
            Point(
                model=os.fspath(variant.model),
                runtime="ORT + plugin" if variant.plugin else "ORT",
                level=variant.level,
                node=node.full_name,
                op=node.op,
                ours=node.ours,
                bytes=node.bytes,
                us=node.median_us,
                gbps=node.gbps,
            )
            for node in found.memory_bound()
            if node.bytes is not None and node.gbps is not None
        ]
    return points


def run_models(
    models: Sequence[str | os.PathLike[str]],
    inputs: Arrays | str | os.PathLike[str] | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    threads: Sequence[int] = (1,),
    rounds: int = 100,
    warmup: int = 10,
    plugin: str | os.PathLike[str] | None = None,
    memory: bool = True,
    progress: Progress | None = None,
) -> ModelReport:
    """Measures models against each other, and each without and with the plugin.

    Args:
        models: .onnx files with the same inputs.
        inputs: arrays by input name, or an .npz file; made up from the first model's signature if
            None.
        dims: sizes of symbolic dims for made-up inputs; 2 if not named.
        threads: values of ``intra_op_num_threads`` to sweep.
        rounds: samples per row. In each round every row is sampled once, in random order.
        warmup: runs of each row before its first sample.
        plugin: another plugin file than the installed one.
        memory: whether to measure the peak memory of each row, in a process of its own.
        progress: a running ``rich.progress.Progress`` to show a bar in.

    Returns:
        A row per model, number of threads and way to run it. Ratios are the baseline's time / the
        row's within a round; the baseline is ONNX Runtime alone, at its default level, on the first
        model.

    Raises:
        ModelError: a file is not a usable model.
        UsageError: an argument is not usable, or a model does not run on the inputs.
    """
    require(WHERE, "onnx", "onnxruntime")
    if not models or rounds < 1 or warmup < 0 or not threads or min(threads) < 1:
        raise UsageError(
            WHERE,
            "there should be a model, rounds and threads of at least 1, and warmup of at least 0",
            f"{len(models)} models, rounds {rounds}, threads {list(threads)}, warmup {warmup}",
            "Correct them",
        )
    from myops.onnx import model as onnx_model

    paths = [Path(model) for model in models]
    load = os.getloadavg()[0]
    variants = variants_of(paths, threads)
    arrays: Arrays = model_inputs(onnx_model.load(paths[0], weights=False), inputs, dims)
    for path in paths[1:]:
        model_inputs(onnx_model.load(path, weights=False), arrays, None)
    total = expected_rounds(variants, rounds)
    task = progress.add_task("Runs", total=total) if progress is not None else None

    def on_round() -> None:
        if progress is not None and task is not None:
            progress.advance(task)

    copy = {number: copy_bandwidth(threads=number) for number in threads}
    timed = measure(variants, arrays, rounds, warmup, plugin, on_round)
    first = [variant for variant in variants if variant.threads == threads[0]]
    points = _points(first, arrays, copy[threads[0]], plugin)
    peaks = {}
    for variant in first if memory else []:
        library = (plugin if plugin is not None else True) if variant.plugin else False
        peaks[variant.key] = peak_memory(
            variant.model, arrays, variant.threads, variant.level, library
        )
    return ModelReport(
        rows=_rows(timed, peaks),
        points=points,
        inputs={name: f"{array.dtype}{list(array.shape)}" for name, array in arrays.items()},
        copy_gbps=copy,
        rounds=rounds,
        warmup=warmup,
        machine=machine.describe(),
        load=load,
    )
