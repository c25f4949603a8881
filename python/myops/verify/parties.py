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

PLUGIN = "ORT + plugin"
ALONE = "ORT alone"
REFERENCE = "onnx reference"


@dataclass(frozen=True)
class Party:
    """Runs a model given as protobuf or path on named inputs and returns its outputs in order.

    Attributes:
        name: for tables.
        ours: whether our kernels compute our operators. Only then a difference is our fault.
        run: the model.
    """

    name: str
    ours: bool
    run: Callable[[ModelProto | str, Arrays], list[Any]]


def onnxruntime_party(
    plugin: str | os.PathLike[str] | bool | None, optimization: str | None = None
) -> Party:
    """ONNX Runtime with a plugin (the installed one if None) or, if False, without.

    ``optimization`` is a level of ``myops.ort.session``.
    """

    def run(model: ModelProto | str, inputs: Arrays) -> list[Any]:
        from myops.ort import session

        source = model if isinstance(model, str) else model.SerializeToString()
        loaded = session(source, plugin=plugin, graph_optimization_level=optimization)
        outputs = loaded.run(None, dict(inputs))
        # Tensors as arrays; sequences stay lists.
        return [v if isinstance(v, (list, dict)) else np.asarray(v) for v in outputs]

    return Party(ALONE if plugin is False else PLUGIN, plugin is not False, run)


def _with_reference_evaluator(model: ModelProto | str, inputs: Arrays) -> list[Any]:
    from onnx.reference import ReferenceEvaluator

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # overflow in exp, cast of NaN: judged by the comparison
        evaluator = ReferenceEvaluator(model)
        outputs = evaluator.run(None, dict(inputs))
        return [v if isinstance(v, (list, dict)) else np.asarray(v) for v in outputs]


def onnx_parties(plugin: str | os.PathLike[str] | None = None) -> list[Party]:
    """The parties for a portable model: with the plugin (the installed one if None), without, and
    onnx's reference evaluator."""
    return [
        onnxruntime_party(plugin),
        onnxruntime_party(False),
        Party(REFERENCE, False, _with_reference_evaluator),
    ]


def one_line(error: BaseException) -> str:
    """An error as a note in a table."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:160]
