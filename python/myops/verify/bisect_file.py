# SPDX-License-Identifier: Apache-2.0
"""Which node of a file computes something else than the torch model? Both run in float64, so
rounding plays no part."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto

from myops.spec import SPECS
from myops.verify.bisect import Bisection, finding, save
from myops.verify.compare import Tolerance, compare, is_float
from myops.verify.float64 import evaluate_model, initial_values, prepared
from myops.verify.judge import Judgement
from myops.verify.tolerances import largest_size, model_tolerance
from myops.verify.torch_model import Trace
from myops.verify.trace import Step, node_name

if TYPE_CHECKING:
    import torch

PARTY = "the file in float64"

_LITTLE = 0.05  # relative to the largest value
_ENOUGH = 8  # elements that do not resemble each other by chance


def _resembles(value: npt.NDArray[Any], other: npt.NDArray[Any] | None) -> bool:
    """Whether the one is the other gone a little wrong."""
    if other is None or value.size < _ENOUGH:
        return False
    with np.errstate(invalid="ignore"):
        return largest_size(value - other) <= _LITTLE * largest_size(other)


def _attributes_note(node: NodeProto, calls: list[tuple[str, dict[str, float]]]) -> str:
    """That torch calls the operator with other attribute values only."""
    spec = SPECS.of_node(node.domain, node.op_type)
    if spec is None or not spec.attributes:
        return ""
    here = spec.defaults() | {a.name: a.f for a in node.attribute}
    there = {
        ", ".join(f"{name}={value:g}" for name, value in values.items())
        for name, values in calls
        if name == node.op_type
    }
    mine = ", ".join(f"{name}={value:g}" for name, value in here.items())
    if mine in there or not there:
        return ""
    return f"it has {mine}, the torch model calls it with {' / '.join(sorted(there))}"


def bisect_file(
    model: ModelProto,
    inputs: Mapping[str, npt.NDArray[Any]],
    torch_model: torch.nn.Module,
    save_to: Path | None = None,
    tolerance: float | Mapping[str, float] | None = None,
) -> Bisection:
    """Finds the first node where a file departs from the torch model.

    A node departs if its result is none of the torch model's tensors but resembles one, or if
    neither it nor anything computed from it is one of them. So exporters may spell an operator in
    several nodes, and order them as they like.
    Tensors count as equal within the model's tolerance: exporters fold constants in float32, and
    converters round weights to float16.

    Args:
        model: the file, with its weights.
        inputs: by name.
        torch_model: what it was exported from.
        save_to: the .npz file for the node's inputs and result, and the nearest torch tensor.
        tolerance: of whole models, relative to a tensor's largest value.

    Raises:
        Exception: what torch or onnx raise where one of the two cannot be evaluated.
    """
    model = prepared(model)
    graph = model.graph
    names = [name for node in graph.node for name in node.output if name]
    values = evaluate_model(model, inputs, [*names, *(v.name for v in graph.output)])
    values = {**initial_values(graph), **inputs, **values}
    relative = model_tolerance(model, tolerance)
    known = Trace(torch_model, inputs)
    result = Bisection(PARTY, ours=True, nodes=len(graph.node))

    def in_torch(name: str) -> bool:
        value = values[name]
        # Single numbers agree by chance.
        return isinstance(value, np.ndarray) and value.size > 1 and known.holds(value, relative)

    held = {name for name in names if in_torch(name)}
    # From the end: torch has the tensor, or something computed from it.
    leads_on: set[str] = set()
    for node in reversed(graph.node):
        if any(name in leads_on or name in held for name in node.output if name):
            leads_on.update(node.input)
            leads_on.update(node.output)
    for node in graph.node:
        name = next(filter(None, node.output), "")
        value = values.get(name)
        if name in held or not isinstance(value, np.ndarray) or not is_float(value):
            continue
        if name in leads_on and not _resembles(value, known.nearest(value)):
            continue
        received = {n: values[n] for n in node.input if n}
        step = Step(node_name(node), node, model, received, {name: value}, {})
        limit = Tolerance(absolute=relative * largest_size(value))
        nearest = known.nearest(value)
        comparison = None if nearest is None else compare(value, nearest, "float64", limit)
        note = _attributes_note(node, known.calls) or "the nearest tensor of the torch model"
        result.wrong = finding(step, name, comparison, limit, note)
        if save_to is not None:
            expected = np.empty(0) if nearest is None else nearest
            judgement = Judgement(name, "float64", comparison, limit, value, expected)
            result.saved = save(step, judgement, save_to)
        break
    return result
