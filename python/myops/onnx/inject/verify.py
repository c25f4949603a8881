# SPDX-License-Identifier: Apache-2.0
"""Before an injected model is handed out: checker, loading with and without the plugin, values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto
from onnx.external_data_helper import uses_external_data

from myops._errors import ModelError, UsageError
from myops.onnx.inject import compare
from myops.onnx.inject.compare import Difference
from myops.onnx.inject.inputs import Arrays, describe
from myops.ort.session import session

WHERE = "myops.onnx.inject"


@dataclass
class Baseline:
    """The original, run once.

    Attributes:
        feeds: the inputs; None where it could not be run.
        outputs: without optimisations.
        optimised: with them; None where ONNX Runtime cannot run it.
        loads: whether ONNX Runtime can load it.
        level: of optimisation up to which it can.
        problem: why it could not be run.
    """

    feeds: Arrays | None
    outputs: list[Any]
    optimised: list[Any] | None
    loads: bool
    problem: str = ""
    level: str = "all"

    @property
    def measurable(self) -> bool:
        return self.feeds is not None and self.loads and self.level == "all"


def baseline(
    path: Path, proposals: Iterator[Arrays], plugin: str | bool | None, given: bool
) -> Baseline:
    """Runs the original on the first inputs that it takes.

    Args:
        path: the original.
        proposals: inputs to try.
        plugin: for originals that hold our nodes.
        given: whether the user gave all that decides about the inputs: then they have to run.

    Raises:
        UsageError: ``given``, and the model does not run on them.
    """
    try:
        opened = session(path, graph_optimization_level="disable", plugin=plugin)
    except ModelError as error:
        for feeds in proposals:
            try:
                return Baseline(feeds, compare.run_reference(path, feeds), None, False)
            except Exception:  # the evaluator raises what its numpy code happens to
                continue
        return Baseline(None, [], None, False, str(error))
    problem = "no inputs"
    for feeds in proposals:
        try:
            outputs = opened.run(None, dict(feeds))
        except Exception as error:  # onnxruntime has a class per kind, none of them public
            problem = f"{describe(feeds)}: {' '.join(str(error).split())}"
            continue
        del opened
        try:
            optimised = compare.run(path, feeds, plugin, "all")
        except ModelError as error:  # ONNX Runtime's own fusions fail on some graphs
            return Baseline(feeds, outputs, None, True, str(error), "disable")
        return Baseline(feeds, outputs, optimised, True)
    if given:
        raise UsageError(
            WHERE,
            "the model should run on the inputs",
            problem[:400],
            "Pass others with --inputs, or sizes that the model takes with --dim",
        )
    return Baseline(None, [], None, True, problem)


def check_proto(original: Path, result: Path) -> str:
    """Runs onnx's checker. Returns a note where the original does not pass it, either.

    Raises:
        ModelError: the result does not pass, and the original does.
    """
    try:
        onnx.checker.check_model(str(result))
    except Exception as error:  # several unrelated kinds
        text = " ".join(str(error).split())
        try:
            onnx.checker.check_model(str(original))
        except Exception:
            return f"onnx.checker refuses the original and the result: {text[:200]}"
        raise ModelError(
            WHERE,
            "the injected model should pass onnx.checker",
            text,
            "Nothing was written. Report this model",
        ) from error
    return ""


def check_loading(result: Path, plugin: str | bool | None, before: Baseline) -> str:
    """Loads the result with and without the plugin. Returns a note where neither model loads.

    Raises:
        ModelError: it does not load, and the original does.
    """
    for choice in dict.fromkeys((plugin, False)):
        try:
            session(result, plugin=choice, graph_optimization_level=before.level)
        except ModelError as error:
            if before.loads:
                raise
            return f"ONNX Runtime loads neither the original nor the result: {error}"
    return ""


def skeleton(model: ModelProto) -> ModelProto:
    """A copy whose external weights are inputs: what a runtime says of its nodes is the same."""
    copy = ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    given = {value.name for value in graph.input}
    for i in reversed(range(len(graph.initializer))):
        tensor = graph.initializer[i]
        if uses_external_data(tensor):
            if tensor.name not in given:
                graph.input.append(
                    onnx.helper.make_tensor_value_info(
                        tensor.name, tensor.data_type, list(tensor.dims)
                    )
                )
            del graph.initializer[i]
    return copy


def check_values(
    model: ModelProto,
    result: Path,
    before: Baseline,
    plugin: str | bool | None,
    tolerance: float | None,
) -> list[Difference]:
    """Compares the result's outputs with the original's, with the plugin and without.

    Returns:
        The differences with the plugin.

    Raises:
        ModelError: an output differs.
    """
    if before.feeds is None:
        return []
    feeds: Mapping[str, Any] = before.feeds
    found: list[Difference] = []
    for choice in dict.fromkeys((plugin, False)):
        got = compare.run(result, feeds, choice, before.level)
        now = compare.differences(model, before.outputs, got, before.optimised, tolerance)
        compare.require_equal(now)
        found = found or now
    return found
