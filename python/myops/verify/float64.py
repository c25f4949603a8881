# SPDX-License-Identifier: Apache-2.0
"""ONNX nodes evaluated in float64, whatever precision the model is written in.

onnx's reference evaluator computes, on copies of the nodes whose floating-point constants and casts
are float64. Our operators are computed by the reference of their ``OpSpec``.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper
from onnx import numpy_helper as onnx_arrays

from myops._errors import ModelError
from myops.onnx import model as onnx_model
from myops.spec import DOMAIN_VERSION, SPECS, OpSpec
from myops.verify.compare import is_float

Value = Any
"""An array, or a list of arrays (ONNX's sequence), or None (an optional without a value)."""

Evaluate = Callable[[Mapping[str, Value]], list[Value]]

RANDOM = frozenset(
    (
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    )
)
"""Operators whose results are not a function of their inputs."""

_FLOATS = frozenset(onnx_model.DTYPES)
_TYPE_ATTRIBUTES = frozenset((("Cast", "to"), ("EyeLike", "dtype")))


def as_float64(value: Value) -> Value:
    """Floating-point arrays in float64, everything else as it is."""
    if isinstance(value, (list, tuple)):
        return [as_float64(item) for item in value]
    if isinstance(value, np.ndarray) and is_float(value):
        return value.astype(np.float64)
    if isinstance(value, np.generic) and is_float(np.asarray(value)):
        return np.asarray(value, np.float64)
    return value


def _lift_tensor(tensor: TensorProto) -> None:
    if tensor.data_type in _FLOATS:
        array = onnx_arrays.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(onnx_arrays.from_array(array, tensor.name))


def _lift_attribute(node: NodeProto, attribute: AttributeProto) -> None:
    if attribute.type == AttributeProto.GRAPH:
        _lift_graph(attribute.g)
    elif attribute.type == AttributeProto.GRAPHS:
        for graph in attribute.graphs:
            _lift_graph(graph)
    elif attribute.type == AttributeProto.TENSOR:
        _lift_tensor(attribute.t)
    elif (node.op_type, attribute.name) in _TYPE_ATTRIBUTES and attribute.i in _FLOATS:
        attribute.i = TensorProto.DOUBLE
    elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
        scalar = attribute.name == "value_float"
        values = np.asarray(attribute.f if scalar else list(attribute.floats), np.float64)
        attribute.CopyFrom(helper.make_attribute("value", onnx_arrays.from_array(values)))


def _lift_graph(graph: GraphProto) -> None:
    for tensor in graph.initializer:
        _lift_tensor(tensor)
    nodes = [lifted for node in graph.node for lifted in _lifted(node)]
    del graph.node[:]
    graph.node.extend(nodes)
    for value in (*graph.input, *graph.output):
        kind = value.type.tensor_type
        if kind.elem_type in _FLOATS:
            kind.elem_type = TensorProto.DOUBLE
    del graph.value_info[:]


def _lifted(node: NodeProto) -> list[NodeProto]:
    """A copy of the node, with what it needs before it."""
    copy = NodeProto()
    copy.CopyFrom(node)
    for attribute in copy.attribute:
        _lift_attribute(copy, attribute)
    if copy.op_type != "Loop" or (copy.input[1:2] and copy.input[1]):
        return [copy]
    # Without a condition a Loop goes on; onnx's evaluator does not start it.
    name = f"{copy.output[0]}/condition"
    inputs = [copy.input[0] if copy.input else "", name, *copy.input[2:]]
    del copy.input[:]
    copy.input.extend(inputs)
    true = onnx_arrays.from_array(np.array(True))
    return [helper.make_node("Constant", [], [name], value=true), copy]


def _operator(spec: OpSpec) -> type:
    """The operator for onnx's evaluator."""
    from onnx.reference.op_run import OpRun

    def run(self: Any, *inputs: npt.NDArray[Any], **attributes: Any) -> tuple[Any, ...]:
        values = spec.defaults() | {k: v for k, v in attributes.items() if k in spec.defaults()}
        wide = (np.asarray(array, np.float64) for array in inputs)
        results = spec.reference(*wide, **values)
        return results if isinstance(results, tuple) else (results,)

    return type(spec.name, (OpRun,), {"op_domain": spec.namespace, "_run": run})


@functools.cache
def _batch_normalization() -> type:
    """For inference. onnx's own computes the statistics of the batch wherever there is a momentum,
    which before opset 14 is everywhere."""
    from onnx.reference.op_run import OpRun

    def run(
        self: Any,
        x: npt.NDArray[Any],
        scale: npt.NDArray[Any],
        bias: npt.NDArray[Any],
        mean: npt.NDArray[Any],
        variance: npt.NDArray[Any],
        epsilon: float = 1e-5,
        training_mode: int | None = None,
        spatial: int | None = None,
        **_: Any,
    ) -> tuple[npt.NDArray[Any]]:
        if training_mode or spatial == 0:
            raise NotImplementedError("BatchNormalization in training mode, or per element")
        shape = (-1, *[1] * (x.ndim - 2))
        factor = scale / np.sqrt(variance + epsilon)
        return ((x - mean.reshape(shape)) * factor.reshape(shape) + bias.reshape(shape),)

    return type("BatchNormalization", (OpRun,), {"op_domain": "", "_run": run})


# By identity, which the entry keeps from being given to another one.
_known: dict[int, tuple[OpSpec, type]] = {}


def _operators() -> list[type]:
    for spec in SPECS:
        if id(spec) not in _known:
            _known[id(spec)] = (spec, _operator(spec))
    return [_batch_normalization(), *(_known[id(spec)][1] for spec in SPECS)]


def outer_names(node: NodeProto) -> list[str]:
    """What the node reads: its inputs, and what its inner graphs take from around them."""
    names = dict.fromkeys(name for name in node.input if name)
    for graph in onnx_model.subgraphs(node):
        names |= dict.fromkeys(_captured(graph))
    return list(names)


def _captured(graph: GraphProto) -> Sequence[str]:
    known = {value.name for value in graph.input} | {t.name for t in graph.initializer}
    found: dict[str, None] = {}
    for node in graph.node:
        found |= dict.fromkeys(name for name in outer_names(node) if name not in known)
        known |= set(node.output)
    found |= dict.fromkeys(v.name for v in graph.output if v.name not in known)
    return list(found)


class Float64:
    """Evaluates single nodes of a model, whose functions are inlined, in float64.

    What it does not do: operators of domains other than ONNX's and ours, and what onnx's evaluator
    lacks; ``prepare`` or the call then raises whatever onnx raises.
    """

    def __init__(self, model: ModelProto) -> None:
        self._imports = {entry.domain: entry.version for entry in model.opset_import}
        for domain in SPECS.namespaces():
            self._imports.setdefault(domain, DOMAIN_VERSION)
        self._operators = _operators()

    def prepare(self, node: NodeProto) -> Evaluate:
        """A function from the values of ``outer_names(node)`` to those of ``node.output``, which
        stand in order, None for outputs without a name."""
        from onnx.reference import ReferenceEvaluator

        graph = helper.make_graph(
            _lifted(node),
            "node",
            [onnx.ValueInfoProto(name=name) for name in outer_names(node)],
            [onnx.ValueInfoProto(name=name) for name in node.output if name],
        )
        imports = [helper.make_opsetid(*entry) for entry in self._imports.items()]
        model = helper.make_model(graph, opset_imports=imports)
        evaluator = ReferenceEvaluator(model, new_ops=self._operators)

        def evaluate(values: Mapping[str, Value]) -> list[Value]:
            feeds = {name: as_float64(values[name]) for name in outer_names(node)}
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")  # overflow and NaN are for the comparison to judge
                results = iter(evaluator.run(None, feeds))
            return [as_float64(next(results)) if name else None for name in node.output]

        return evaluate


def initial_values(graph: GraphProto) -> dict[str, Value]:
    """The graph's initializers by name."""
    return {tensor.name: onnx_arrays.to_array(tensor) for tensor in graph.initializer}


def _sort(graph: GraphProto) -> None:
    """Puts nodes behind what they read. ONNX Runtime does not insist on it, and some converters do
    not care."""
    waiting = list(graph.node)
    made = {name for node in waiting for name in node.output}
    ordered: list[NodeProto] = []
    while waiting:
        later = []
        for node in waiting:
            if made.isdisjoint(outer_names(node)):
                ordered.append(node)
                made.difference_update(node.output)
            else:
                later.append(node)
        if len(later) == len(waiting):
            raise ModelError(
                "myops.verify",
                "the graph should have no cycle",
                f"node {later[0].name or later[0].output[0]!r}, which waits for itself",
                "Export it again",
            )
        waiting = later
    copies = [NodeProto() for _ in ordered]
    for copy, node in zip(copies, ordered, strict=True):
        copy.CopyFrom(node)
    del graph.node[:]
    graph.node.extend(copies)


def _is_sorted(graph: GraphProto) -> bool:
    later = {name for node in graph.node for name in node.output if name}
    for node in graph.node:
        if not later.isdisjoint(outer_names(node)):
            return False
        later.difference_update(node.output)
    return True


def prepared(model: ModelProto) -> ModelProto:
    """The model with its nodes in topological order and every model-local function other than those
    of our domains inlined; itself where it is so already."""
    domains = SPECS.namespaces()
    keep = [(f.domain, f.name) for f in model.functions if f.domain in domains]
    result = model
    if len(keep) != len(model.functions):
        from onnx import inliner

        result = inliner.inline_selected_functions(model, keep, exclude=True)
    if not _is_sorted(result.graph):
        copy = ModelProto()
        copy.CopyFrom(result)
        _sort(copy.graph)
        result = copy
    return result


def evaluate_model(
    model: ModelProto,
    inputs: Mapping[str, Value],
    wanted: Sequence[str] | None = None,
    on_node: Callable[[NodeProto], object] | None = None,
) -> dict[str, Value]:
    """The float64 truth of a model.

    Args:
        model: any, with its weights.
        inputs: by name.
        wanted: names of the results to return; those of the model's outputs if None.
        on_node: called before each node.

    Raises:
        Exception: what onnx raises where a node cannot be evaluated, or a random operator.
    """
    model = prepared(model)
    evaluator = Float64(model)
    values = {**initial_values(model.graph), **inputs}
    remaining: dict[str, int] = {}
    keep = set(wanted or [value.name for value in model.graph.output])
    for node in model.graph.node:
        for name in outer_names(node):
            remaining[name] = remaining.get(name, 0) + 1
    for node in model.graph.node:
        if on_node is not None:
            on_node(node)
        if node.op_type in RANDOM and not node.domain:
            raise ValueError(f"{node.op_type} gives other values each time")
        results = evaluator.prepare(node)(values)
        values.update(zip(node.output, results, strict=True))
        for name in outer_names(node):
            remaining[name] -= 1
            if not remaining[name] and name not in keep:
                values.pop(name, None)  # what nobody reads any more need not fill the memory
    return {name: as_float64(values[name]) for name in keep}
