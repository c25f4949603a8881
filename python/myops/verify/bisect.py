# SPDX-License-Identifier: Apache-2.0
"""Which node makes a model's numbers differ?

Two questions are asked of every node in topological order. Is it right on the values it received
(``judge``)? And has its result left the tolerance of whole models, seen from a float64 run of
everything before it? A node that is wrong is one; where all are right and the result still leaves
the tolerance, rounding has added up.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto

from myops.verify.compare import Comparison, Tolerance, compare, is_float
from myops.verify.float64 import Float64, Value, initial_values, outer_names, prepared
from myops.verify.judge import Judgement, judge, natural_scale, why_not
from myops.verify.parties import Party, one_line
from myops.verify.tolerances import largest_size, model_tolerance
from myops.verify.trace import (
    Step,
    Unreached,
    expose,
    float_types,
    node_name,
    run_model,
    trace,
)

OnNode = Callable[[str], object]


@dataclass(frozen=True)
class Finding:
    """A node and one of its results.

    Attributes:
        node: its name, behind those of the nodes whose bodies it is in.
        op: its operator, with the domain if that is not ONNX's.
        tensor: the result.
        dtype: of the result.
        comparison: with float64; None where the shapes differ.
        tolerance: allowed.
        inputs: shapes and dtypes of what it received, by name.
        note: what else is known about it.
    """

    node: str
    op: str
    tensor: str
    dtype: str
    comparison: Comparison | None
    tolerance: Tolerance
    inputs: Mapping[str, str]
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "op": self.op,
            "tensor": self.tensor,
            "dtype": self.dtype,
            "comparison": self.comparison.to_dict() if self.comparison else None,
            "tolerance": str(self.tolerance),
            "inputs": dict(self.inputs),
            "note": self.note,
        }


@dataclass
class Bisection:
    """What was found.

    Attributes:
        party: who was looked at.
        ours: whether a wrong node is our fault.
        wrong: the first node that is wrong on the values it received.
        left: the first node of the main graph whose result has left the model's tolerance.
        outputs_off: outputs of the model that have. Where none has, ``left`` did no harm.
        fused: the difference is there only while intermediate tensors are not outputs: an
            optimisation of the runtime makes it.
        nodes: looked at.
        not_judged: nodes and bodies that could not be judged, with reasons.
        saved: the .npz file with the node's inputs (``input:NAME``), its result (``received:NAME``)
            and the right one (``expected:NAME``).
    """

    party: str
    ours: bool = False
    wrong: Finding | None = None
    left: Finding | None = None
    outputs_off: list[str] = field(default_factory=list)
    fused: bool = False
    nodes: int = 0
    not_judged: list[str] = field(default_factory=list)
    saved: Path | None = None
    step: Step | None = None
    judgement: Judgement | None = None

    @property
    def ok(self) -> bool:
        return self.wrong is None and not self.outputs_off

    @property
    def summary(self) -> str:
        """One or two sentences."""
        who = f"{self.party}, {self.nodes} nodes"
        if self.wrong is not None:
            return f"{who}: first wrong node {_describe(self.wrong)}."
        if self.left is not None and self.fused:
            return (
                f"{who}: every node is right on its own, and the difference is there only while "
                f"the runtime may fuse: its optimisation changes {_describe(self.left)}."
            )
        if self.left is not None and self.ok:
            return (
                f"{who}: every node is right, and so are the outputs. On the way rounding leaves "
                f"the tolerance at {_describe(self.left)}."
            )
        if self.left is not None:
            return (
                f"{who}: every node is right on what it received; rounding adds up and leaves the "
                f"tolerance at {_describe(self.left)}."
            )
        return f"{who}: every node is right, and no result leaves the tolerance."

    def to_dict(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "party": self.party,
            "summary": self.summary,
            "wrong": self.wrong.to_dict() if self.wrong else None,
            "left": self.left.to_dict() if self.left else None,
            "outputs_off": self.outputs_off,
            "fused": self.fused,
            "nodes": self.nodes,
            "not_judged": self.not_judged,
            "saved": str(self.saved) if self.saved else None,
        }


def _describe(finding: Finding) -> str:
    text = f"{finding.node!r} ({finding.op}, {finding.dtype})"
    c = finding.comparison
    note = f"; {finding.note}" if finding.note else ""
    if c is None:
        return f"{text}, whose result {finding.tensor!r} has another shape{note}"
    received = "" if c.received is None else f": {c.received:.9g} instead of {c.expected:.9g}"
    place = "" if c.first_wrong is None else f" at {list(c.first_wrong)}"
    return (
        f"{text}, {finding.tensor!r}{place}{received}, {c.wrong} of {c.count} off, "
        f"largest difference {c.max_abs:.2e}, allowed {finding.tolerance}{note}"
    )


def _shapes(step: Step) -> dict[str, str]:
    return {
        name: f"{step.dtype(name)}{list(np.shape(value))}"
        for name, value in step.inputs.items()
        if isinstance(value, np.ndarray)
    }


def _operator(step: Step) -> str:
    domain = f"{step.node.domain}::" if step.node.domain else ""
    return f"{domain}{step.node.op_type}"


def finding(
    step: Step, tensor: str, comparison: Comparison | None, tolerance: Tolerance, note: str = ""
) -> Finding:
    return Finding(
        node=step.where,
        op=_operator(step),
        tensor=tensor,
        dtype=step.dtype(tensor),
        comparison=comparison,
        tolerance=tolerance,
        inputs=_shapes(step),
        note=note,
    )


def save(step: Step, judgement: Judgement, path: Path) -> Path:
    """Writes a node's inputs, result and right result."""
    arrays: dict[str, Any] = {
        f"input:{name}": value
        for name, value in step.inputs.items()
        if isinstance(value, np.ndarray)
    }
    arrays[f"received:{judgement.output}"] = judgement.received
    arrays[f"expected:{judgement.output}"] = judgement.expected
    # The name ends in .npz, so that numpy appends nothing.
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.npz")
    try:
        np.savez(temporary, **arrays)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


class _Truth:
    """The main graph in float64, node by node beside the trace."""

    def __init__(self, model: ModelProto, inputs: Mapping[str, Value], relative: float) -> None:
        self.values: dict[str, Value] = {**initial_values(model.graph), **inputs}
        self.relative = relative
        self.outputs = {value.name for value in model.graph.output}
        self.outputs_off: list[str] = []

    def check(self, step: Step, results: list[Value] | None) -> Finding | None:
        """Takes the node's float64 results, its own where there are none, and says whether the
        node's have left the tolerance."""
        left = None
        for i, name in enumerate(step.node.output):
            if not name:
                continue
            received = step.outputs[name]
            truth = results[i] if results is not None else received
            self.values[name] = truth
            if not (isinstance(received, np.ndarray) and isinstance(truth, np.ndarray)):
                continue
            if not is_float(received):
                continue
            if received.shape != truth.shape:  # after a decision that went the other way
                self.outputs_off += self.outputs.intersection([name])
                continue
            size = max(largest_size(truth), natural_scale(step))
            limit = Tolerance(absolute=self.relative * size)
            comparison = compare(received, truth, step.dtype(name), limit)
            if not comparison.ok:
                left = left or finding(step, name, comparison, limit)
                self.outputs_off += self.outputs.intersection([name])
        return left


def bisect(
    model: ModelProto,
    inputs: Mapping[str, npt.NDArray[Any]],
    party: Party,
    save_to: Path | None = None,
    tolerance: float | Mapping[str, float] | None = None,
    on_node: OnNode | None = None,
) -> Bisection:
    """Finds the first wrong node of a model in one party's hands.

    Args:
        model: with its weights.
        inputs: by name.
        party: who computes.
        save_to: the .npz file for the inputs and results of the node found.
        tolerance: of whole models, relative to a tensor's largest value; by dtype if None.
        on_node: called with the name of each node before it is judged.

    Returns:
        What was found. Nodes that onnx's evaluator does not know and nodes with random results are
        listed as not judged; what follows them is judged from their results on.

    Raises:
        ModelError: the party does not run the model.
    """
    model = prepared(model)
    evaluator = Float64(model)
    relative = model_tolerance(model, tolerance)
    truth = _Truth(model, inputs, relative)
    unreached = Unreached()
    result = Bisection(party.name, party.ours)
    for step in trace(model, inputs, party, unreached):
        result.nodes += 1
        if on_node is not None:
            on_node(step.label)
        precise = None
        reason = why_not(step.node)
        judgements: list[Judgement] = []
        if not reason:
            try:
                evaluate = evaluator.prepare(step.node)
                if not step.opened:
                    judgements = judge(step, evaluate, party.ours)
                if step.model is model:
                    precise = evaluate(truth.values)
            except Exception as error:  # onnx raises whatever its evaluator ran into
                reason = one_line(error)
        if reason:
            result.not_judged.append(f"{step.label}: {reason}")
        if step.model is model:
            left = truth.check(step, precise)
            result.left = result.left or left
        wrong = next((j for j in judgements if not j.ok), None)
        if wrong is not None:
            result.wrong = finding(step, wrong.output, wrong.comparison, wrong.tolerance)
            result.step, result.judgement = step, wrong
            break
    result.not_judged += unreached.reasons
    result.outputs_off = truth.outputs_off
    if result.ok:
        _look_for_fusion(result, model, inputs, party, truth)
    if result.judgement is not None and result.step is not None and save_to is not None:
        result.saved = save(result.step, result.judgement, save_to)
    return result


def _look_for_fusion(
    result: Bisection,
    model: ModelProto,
    inputs: Mapping[str, Value],
    party: Party,
    truth: _Truth,
) -> None:
    """Where the model as it is leaves the tolerance and with its tensors as outputs it does not:
    makes them outputs one at a time."""

    def left(only: str) -> Finding | None:
        opened, names = expose(model, only)
        values = dict(zip(names, run_model(party, opened, inputs), strict=True))
        node = next(n for n in model.graph.node if only in n.output)
        dtypes = {only: result_types.get(only, "")}
        received = {name: truth.values[name] for name in outer_names(node)}
        step = Step(node_name(node), node, model, received, {only: values[only]}, dtypes)
        expected = truth.values[only]
        if not isinstance(expected, np.ndarray) or not is_float(np.asarray(values[only])):
            return None
        size = max(largest_size(expected), natural_scale(step))
        limit = Tolerance(absolute=truth.relative * size)
        c = compare(values[only], expected, step.dtype(only), limit)
        return None if c.ok else finding(step, only, c, limit)

    result_types = float_types(model)
    outputs = [v.name for v in model.graph.output if v.name in result_types]
    produced = [n for node in model.graph.node for n in node.output if n in result_types]
    last = next((name for name in outputs if name in produced and left(name)), None)
    if last is None:
        return
    low, high = 0, produced.index(last)
    while low < high:  # the first that is off when it alone is an output
        middle = (low + high) // 2
        if left(produced[middle]):
            high = middle
        else:
            low = middle + 1
    result.left, result.fused, result.outputs_off = left(produced[high]), True, [last]
