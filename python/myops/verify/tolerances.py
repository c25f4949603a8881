# SPDX-License-Identifier: Apache-2.0
"""How far a whole model may be from float64."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from myops._errors import UsageError

# Errors of a whole network, relative to the largest value of the output: rounding at every step.
MODEL_TOLERANCE = {
    "float32": 1e-5,
    "float64": 1e-7,
    "float16": 5e-3,
    "bfloat16": 4e-2,
    "quantized": 5e-2,
}
"""Per dtype. float64 allows for attributes, which ONNX stores as float32. A model counts as the
coarsest that any of its nodes computes in, and as quantized where it quantizes activations."""

Overrides = Mapping[str, float]


def parse_tolerances(
    texts: Iterable[str], where: str = "myops verify", option: str = "--tolerance"
) -> dict[str, float]:
    """``float16=1e-2`` by dtype; a bare number is for all.

    Raises:
        UsageError: a text has another form.
    """
    result: dict[str, float] = {}
    for text in texts:
        name, separator, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = float("nan")
        if not value >= 0 or (separator and name not in MODEL_TOLERANCE):
            raise UsageError(
                where,
                f"{option} has the form 1e-4 or float16=1e-2, with one of "
                + ", ".join(MODEL_TOLERANCE),
                repr(text),
                "Correct it",
            )
        result.update({name: value} if separator else dict.fromkeys(MODEL_TOLERANCE, value))
    return result


def largest_size(array: npt.NDArray[Any]) -> float:
    """The largest finite magnitude."""
    wide = np.asarray(array, np.float64)
    return float(np.max(np.abs(wide), initial=0.0, where=np.isfinite(wide)))


def precision(model: Any) -> str:
    """Which entry of ``MODEL_TOLERANCE`` an ``onnx.ModelProto`` falls under."""
    from myops.onnx import model as onnx_model

    nodes = list(onnx_model.nodes(model.graph))
    if any(
        node.op_type in ("QuantizeLinear", "DynamicQuantizeLinear")
        or node.op_type.endswith("Integer")
        or node.op_type.startswith("QLinear")
        for node in nodes
    ):
        return "quantized"
    types = onnx_model.element_types(model)
    computed = {types.get(name, 0) for node in nodes for name in node.output}
    found = [onnx_model.DTYPES[t] for t in computed if t in onnx_model.DTYPES]
    return max(found, key=MODEL_TOLERANCE.__getitem__, default="float32")


def model_tolerance(model: Any, override: float | Overrides | None = None) -> float:
    """Allowed error relative to the largest value of a tensor."""
    kind = precision(model)
    if isinstance(override, Mapping):
        override = override.get(kind)
    return MODEL_TOLERANCE[kind] if override is None else override
