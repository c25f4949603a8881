# SPDX-License-Identifier: Apache-2.0
"""Is one node right? It is judged on the values it received, so that errors of the nodes before it
do not count.

What rounding may cost depends on the node: a sum of large terms that cancel loses more than its
result shows. So the node is evaluated in float64 on its inputs and again on inputs moved by the
roundoff of its precision; how far that moves the result is the measure of what is allowed.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

from myops.spec import SPECS
from myops.verify.compare import Comparison, Tolerance, compare, is_float, roundoff
from myops.verify.float64 import RANDOM, Evaluate, Value
from myops.verify.scales import natural_scale
from myops.verify.tolerances import largest_size
from myops.verify.trace import Step

SAFETY = 8.0
"""How many times the estimated effect of rounding is allowed."""

PRECISIONS = ("float64", "float32", "bfloat16", "float16")

_PROBES = 3
# One level more or less: x / scale may lie on either side of a tie.
_QUANTIZERS = frozenset(("QuantizeLinear", "DynamicQuantizeLinear"))


@dataclass(frozen=True)
class Judgement:
    """What came out for one output of a node.

    Attributes:
        output: name of the tensor.
        dtype: it was computed in.
        comparison: with the node in float64 on the same inputs; None if the shapes differ.
        tolerance: allowed.
        received, expected: the arrays.
    """

    output: str
    dtype: str
    comparison: Comparison | None
    tolerance: Tolerance
    received: npt.NDArray[Any]
    expected: npt.NDArray[Any]

    @property
    def ok(self) -> bool:
        return self.comparison is not None and self.comparison.ok


def why_not(node: NodeProto) -> str:
    """Why the node cannot be judged; empty if it can."""
    if not node.domain and node.op_type in RANDOM:
        return "random"
    training = [a for a in node.attribute if a.name == "training_mode" and a.i]
    return "in training mode" if training or (node.op_type == "Dropout" and node.input[2:]) else ""


def node_roundoff(step: Step) -> float:
    """That of the coarsest dtype among the node's inputs and outputs; 0 if none is floating."""
    found = [step.dtype(name) for name in (*step.inputs, *step.outputs)]
    return max((roundoff(dtype) for dtype in found if dtype in PRECISIONS), default=0.0)


def _moved(value: Value, u: float, rng: np.random.Generator) -> Value:
    if isinstance(value, np.ndarray) and is_float(value):
        wide = value.astype(np.float64)
        return wide * (1.0 + u * rng.choice((-1.0, 1.0), wide.shape))
    return value


def _terms(step: Step) -> float:
    """How many terms an element of the node's result is a sum of."""
    sizes = [np.size(step.inputs[name]) for name in step.node.input if name in step.inputs]
    shapes = [np.shape(step.inputs[name]) for name in step.node.input if name in step.inputs]
    if step.node.op_type in ("Conv", "ConvTranspose") and len(shapes) > 1:
        return float(np.prod(shapes[1][1:]))
    if step.node.op_type in ("MatMul", "Gemm", "Einsum", "Attention") and shapes and shapes[0]:
        return float(max(shapes[0]))
    results = [np.size(value) for value in step.outputs.values() if isinstance(value, np.ndarray)]
    if results and results[0] and sizes and "Reduce" in step.node.op_type:
        return sizes[0] / results[0]
    if "Norm" in step.node.op_type or "Softmax" in step.node.op_type:
        return float(max(shapes[0], default=1))
    return 1.0


def _strict(step: Step, output: str, ours: bool) -> Tolerance | None:
    """What our kernels promise."""
    spec = SPECS.of_node(step.node.domain, step.node.op_type)
    dtype = step.dtype(output)
    if spec is None or not ours or dtype not in spec.max_ulp:
        return None
    # For float64 the truth would need more precision than it has. Operators with several results
    # may round one before they compute the next, which their reference does not. Functions over
    # whole tensors promise it for their samples.
    if dtype == "float64" or len(spec.outputs) > 1 or spec.kind == "custom":
        return None
    denormal = float(np.finfo(np.float32).smallest_subnormal)
    return Tolerance(ulp=spec.max_ulp[dtype], absolute=max(spec.denormals, 1) * denormal)


def _rounding(
    step: Step, index: int, truth: npt.NDArray[Any], u: float, evaluate: Evaluate
) -> tuple[float, list[npt.NDArray[Any]]]:
    """What rounding may cost in an element, and the results on moved inputs."""
    rng = np.random.default_rng(zlib.crc32(step.where.encode()))
    moved = []
    for _ in range(_PROBES):
        result = evaluate({name: _moved(v, u, rng) for name, v in step.inputs.items()})[index]
        if isinstance(result, np.ndarray) and result.shape == truth.shape:
            moved.append(result)
    if not is_float(truth):
        return 0.0, moved
    with np.errstate(invalid="ignore", over="ignore"):
        effect = max((largest_size(result - truth) for result in moved), default=0.0)
    sums = max(1.0, float(np.sqrt(_terms(step))) / 4)
    size = max(largest_size(truth) * sums, natural_scale(step))
    return SAFETY * (effect + u * size), moved


def _judge_discrete(
    step: Step,
    output: str,
    received: npt.NDArray[Any],
    truth: npt.NDArray[Any],
    moved: list[npt.NDArray[Any]],
) -> Judgement:
    """Integers and booleans: the float64 result, or one that rounding of the inputs can give."""
    allowed = Tolerance(absolute=1.0 if step.node.op_type in _QUANTIZERS else 0.0)
    if received.dtype.kind not in "biu":  # strings
        same = bool(np.array_equal(received, truth))
        zeros = np.zeros(received.size)
        comparison = compare(zeros, zeros if same else zeros + 1, "float64", allowed)
        return Judgement(output, str(received.dtype), comparison, allowed, received, truth)
    best = truth
    for result in moved:
        best = np.where(received == result, received, best)
    comparison = compare(received, best.astype(np.float64), "float64", allowed)
    return Judgement(output, str(received.dtype), comparison, allowed, received, truth)


def judge(
    step: Step, evaluate: Evaluate, ours: bool, results: list[Value] | None = None
) -> list[Judgement]:
    """Compares a node's results with float64 on the same inputs.

    Args:
        step: the node and its values.
        evaluate: the node in float64.
        ours: whether our kernels computed it: then those are held to ``OpSpec.max_ulp``.
        results: of ``evaluate`` on the node's inputs, where they are known already.

    Returns:
        One judgement per output that is a tensor.

    Raises:
        Exception: what onnx raises where it cannot evaluate the node.
    """
    truths = evaluate(step.inputs) if results is None else results
    u = node_roundoff(step)
    found = []
    for index, (name, truth) in enumerate(zip(step.node.output, truths, strict=True)):
        received = step.outputs.get(name)
        if not isinstance(received, np.ndarray) or not isinstance(truth, np.ndarray):
            continue
        dtype = step.dtype(name)
        if received.shape != truth.shape:
            found.append(Judgement(name, dtype, None, Tolerance(), received, truth))
            continue
        if not is_float(received):
            moved: list[npt.NDArray[Any]] = []
            if not np.array_equal(received, truth):
                _, moved = _rounding(step, index, truth, u, evaluate)
            found.append(_judge_discrete(step, name, received, truth, moved))
            continue
        tolerance = _strict(step, name, ours)
        if tolerance is None:
            tolerance = Tolerance(absolute=2 * u * largest_size(truth))
        comparison = compare(received, truth, dtype, tolerance)
        if not comparison.ok and _strict(step, name, ours) is None:
            allowed, _ = _rounding(step, index, truth, u, evaluate)
            tolerance = Tolerance(absolute=allowed)
            comparison = compare(received, truth, dtype, tolerance)
        found.append(Judgement(name, dtype, comparison, tolerance, received, truth))
    return found
