# SPDX-License-Identifier: Apache-2.0
"""Who can compute an ONNX model: ONNX Runtime with the plugin, without it, onnx's evaluator."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Party:
    """Runs a model given as protobuf or path on named inputs and returns its outputs in order."""

    name: str
    layer: int
    ours: bool
    run: Callable[[ModelProto | str, Arrays], list[npt.NDArray[Any]]]


def _with_onnxruntime(
    plugin: str | os.PathLike[str] | bool | None,
) -> Callable[[ModelProto | str, Arrays], list[npt.NDArray[Any]]]:
    def run(model: ModelProto | str, inputs: Arrays) -> list[npt.NDArray[Any]]:
        from myops.ort import session

        source = model if isinstance(model, str) else model.SerializeToString()
        outputs = session(source, plugin=plugin).run(None, dict(inputs))
        return [np.asarray(value) for value in outputs]

    return run


def _with_reference_evaluator(model: ModelProto | str, inputs: Arrays) -> list[npt.NDArray[Any]]:
    from onnx.reference import ReferenceEvaluator

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # overflow in exp, cast of NaN: judged by the comparison
        evaluator = ReferenceEvaluator(model)
        return [np.asarray(value) for value in evaluator.run(None, dict(inputs))]


def onnx_parties(plugin: str | os.PathLike[str] | None = None) -> list[Party]:
    """The parties for a portable model: with the plugin (the installed one if None), without, and
    onnx's reference evaluator."""
    return [
        Party("ORT + plugin", 2, True, _with_onnxruntime(plugin)),
        Party("ORT alone", 3, False, _with_onnxruntime(False)),
        Party("onnx reference", 3, False, _with_reference_evaluator),
    ]


def one_line(error: BaseException) -> str:
    """An error as a note in a table."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:160]
