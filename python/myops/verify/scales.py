# SPDX-License-Identifier: Apache-2.0
"""For results of which size a runtime's approximations are made.

Runtimes compute a sigmoid or a GELU to an absolute error, whatever becomes of the tails. Where all
results lie in a tail, an error relative to them says nothing.
"""

from __future__ import annotations

import numpy as np
from onnx import GraphProto, NodeProto

from myops.onnx import model as onnx_model
from myops.spec import SPECS
from myops.verify.tolerances import largest_size
from myops.verify.trace import Step

_UP_TO_ONE = frozenset(("Sigmoid", "Tanh", "Erf", "Softmax", "LogSoftmax", "Softplus"))
_UP_TO_INPUT = frozenset(("Gelu", "Swish", "Mish", "HardSwish", "Elu", "Selu", "Celu"))
_PASSING_ON = frozenset(
    (
        *("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose"),
        *("Cast", "CastLike", "Slice", "Split", "Concat", "Gather"),
        *("Expand", "Max", "Min", "ReduceMax", "ReduceMin", "ReduceMean"),
    )
)


def natural_scale(step: Step) -> float:
    """That of one node, 0 for nodes that are no approximations."""
    sizes = [largest_size(v) for v in step.inputs.values() if isinstance(v, np.ndarray)]
    spec = SPECS.of_node(step.node.domain, step.node.op_type)
    elements = spec is not None and spec.kind != "custom"
    if elements or step.node.op_type in _UP_TO_INPUT:
        return float(np.prod(sizes))
    return 1.0 if step.node.op_type in _UP_TO_ONE else 0.0


def _of_node(node: NodeProto, known: dict[str, float]) -> float:
    if node.domain:
        return 0.0
    if node.op_type in _UP_TO_ONE:
        return 1.0
    if node.op_type in _PASSING_ON:
        return max((known.get(name, 0.0) for name in node.input), default=0.0)
    bodies = [result_scales(graph, known) for graph in onnx_model.subgraphs(node)]
    outputs = [
        scales.get(value.name, 0.0)
        for scales, graph in zip(bodies, onnx_model.subgraphs(node), strict=True)
        for value in graph.output
    ]
    return max(outputs, default=0.0)


def result_scales(graph: GraphProto, around: dict[str, float] | None = None) -> dict[str, float]:
    """By tensor name 1 for the results of bounded functions, also behind nodes that only pass them
    on; 0 or nothing for the rest."""
    known = dict(around or {})
    for node in graph.node:
        scale = _of_node(node, known)
        known.update(dict.fromkeys(node.output, scale))
    return known
