# SPDX-License-Identifier: Apache-2.0
"""Ways to run a model, timed against each other on the same inputs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from myops.bench.measure import Timing, interleaved, rotated
from myops.ort.feeds import Arrays, check_run, runner, to_numpy
from myops.ort.session import session

BUFFERS = 4
"""Copies of the inputs that runs take in turns."""


@dataclass(frozen=True)
class Variant:
    """One way to run a model.

    Attributes:
        model: the .onnx file.
        threads: ``intra_op_num_threads``.
        level: graph optimization level, as in ``myops.ort.session``.
        plugin: whether the plugin is registered.
    """

    model: Path
    threads: int
    level: str
    plugin: bool

    @property
    def key(self) -> str:
        """Unique among the variants of one measurement."""
        return f"{self.model}|{self.threads}|{self.level}|{self.plugin}"


@dataclass(frozen=True)
class Timed:
    """What a variant took, in seconds per run, and what it computed on the first inputs."""

    variant: Variant
    timing: Timing
    outputs: Sequence[npt.NDArray[Any]]


def difference(found: Sequence[npt.NDArray[Any]], expected: Sequence[npt.NDArray[Any]]) -> float:
    """The largest error of any output, relative to that output's largest value; NaNs at the same
    place are equal. Infinite where number, shapes or kinds of outputs differ."""
    if [a.shape for a in found] != [a.shape for a in expected]:
        return float("inf")
    worst = 0.0
    for a, b in zip(found, expected, strict=True):
        if not (np.issubdtype(a.dtype, np.number) or a.dtype == bool):
            worst = worst if np.array_equal(a, b) else float("inf")
            continue
        x, y = a.astype(np.float64), b.astype(np.float64)
        with np.errstate(invalid="ignore"):
            error = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y))
        finite = np.abs(y[np.isfinite(y)])
        scale = float(finite.max(initial=0.0)) or 1.0
        error = np.where(np.isnan(error), np.inf, error)
        worst = max(worst, float(error.max(initial=0.0)) / scale)
    return worst


def plugin_choices(model: str | os.PathLike[str]) -> list[bool]:
    """Without the plugin where the model can run without, with it where it has nodes for it."""
    from myops.onnx import model as onnx_model

    proto = onnx_model.load(model, weights=False)
    ours = onnx_model.our_nodes(proto)
    functions = {(function.domain, function.name) for function in proto.functions}
    portable = all((node.domain, node.op_type) in functions for node in ours)
    return [*([False] if portable else []), *([True] if ours else [])]


def file_size(model: str | os.PathLike[str]) -> int:
    """Bytes of the model, its external data included."""
    import onnx

    from myops.onnx import model as onnx_model

    path = Path(model)
    proto = onnx_model.load(path, weights=False)
    places = {
        entry.value
        for graph in onnx_model.graphs(proto.graph)
        for tensor in graph.initializer
        if tensor.data_location == onnx.TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    }
    files = [path, *(path.parent / place for place in places)]
    return sum(int(file.stat().st_size) for file in files if file.exists())


def _groups(variants: Sequence[Variant]) -> list[list[Variant]]:
    """All variants at once, so that each is timed against each other; where memory does not hold
    so many sessions, those of one number of threads at a time."""
    sizes = {model: file_size(model) for model in {variant.model for variant in variants}}
    # A session may hold its weights twice, as they are and prepacked.
    needed = 2 * sum(sizes[variant.model] for variant in variants)
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed < available / 2:
        return [list(variants)]
    threads = dict.fromkeys(variant.threads for variant in variants)
    return [[v for v in variants if v.threads == number] for number in threads]


def measure(
    variants: Sequence[Variant],
    arrays: Arrays,
    rounds: int,
    warmup: int,
    library: str | os.PathLike[str] | None = None,
    on_round: Callable[[], object] | None = None,
) -> list[Timed]:
    """Times the variants, interleaved, on the same inputs.

    Args:
        variants: to time.
        arrays: the inputs. ``BUFFERS`` copies, written before the first run, take turns.
        rounds: samples per variant.
        warmup: runs of each before its first sample.
        library: another plugin than the installed one.
        on_round: called after each round, ``rounds`` times per group; see ``expected_rounds``.

    Raises:
        ModelError: a variant does not load.
        UsageError: one does not run on the inputs.
    """
    copies: list[Mapping[str, npt.NDArray[Any]]] = [dict(arrays)]
    copies += [{k: np.array(v) for k, v in arrays.items()} for _ in range(BUFFERS - 1)]
    found = []
    for group in _groups(variants):
        calls: dict[str, Callable[[], object]] = {}
        outputs = {}
        for variant in group:
            made = session(
                variant.model,
                intra_op_num_threads=variant.threads,
                graph_optimization_level=variant.level,
                plugin=(library if library is not None else True) if variant.plugin else False,
            )
            runs = [runner(made, copy) for copy in copies]
            results = check_run(runs[0], arrays, str(variant.model))
            outputs[variant.key] = [to_numpy(value) for value in results if value.is_tensor()]
            calls[variant.key] = rotated(runs)
        settle = max(variant.threads for variant in group) > 1
        timings = interleaved(calls, rounds, warmup, settle=settle, on_round=on_round)
        found += [Timed(v, timings[v.key], outputs[v.key]) for v in group]
    return found


def expected_rounds(variants: Sequence[Variant], rounds: int) -> int:
    """How often ``measure`` calls ``on_round``."""
    return rounds * len(_groups(variants))
