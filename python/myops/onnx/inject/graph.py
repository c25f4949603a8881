# SPDX-License-Identifier: Apache-2.0
"""A model as edges: who makes a tensor, who reads it, and from where it can be seen.

A *scope* is the main graph, a graph inside a node (If, Loop, Scan) or the body of a model-local
function. Inner graphs see the tensors of the graphs around them; functions see their own only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto

from myops.onnx import model as onnx_model
from myops.onnx.inject.tensor_types import Types, infer
from myops.spec import SPECS

# Below this version every initializer is a graph input, too, and none can be overridden.
_OVERRIDABLE_SINCE_IR = 4


def label(node: NodeProto) -> str:
    """A node for people: its name, else its type and first result."""
    return node.name or f"{node.op_type} -> {next(filter(None, node.output), '?')}"


@dataclass
class Scope:
    """One graph or function body.

    Attributes:
        proto: the graph or function.
        parent: the scope around it, None for the main graph and functions.
        path: where it is, for people; empty for the main graph.
        opset: version of the default domain.
        types: element type and dims of tensors, by name.
        nodes: in the order of the file.
        producers: tensor -> index of the node that makes it.
        readers: tensor -> indices of the nodes that read it, once per node.
        captured: tensor -> indices of the nodes in whose inner graphs it is read.
        initializers: by name.
        overridable: initializers that a caller may replace.
        inputs, outputs: names of the graph's or function's.
    """

    proto: GraphProto | FunctionProto
    parent: Scope | None
    path: str
    opset: int
    types: Types
    nodes: list[NodeProto] = field(default_factory=list)
    producers: dict[str, int] = field(default_factory=dict)
    readers: dict[str, list[int]] = field(default_factory=dict)
    captured: dict[str, list[int]] = field(default_factory=dict)
    initializers: dict[str, TensorProto] = field(default_factory=dict)
    overridable: set[str] = field(default_factory=set)
    inputs: set[str] = field(default_factory=set)
    outputs: set[str] = field(default_factory=set)

    def producer(self, tensor: str) -> NodeProto | None:
        """The node of this scope that makes a tensor."""
        index = self.producers.get(tensor)
        return None if index is None else self.nodes[index]

    def owner(self, tensor: str) -> Scope | None:
        """The scope that holds a tensor: this one or one around it."""
        scope: Scope | None = self
        while scope is not None:
            if tensor in scope.producers or tensor in scope.initializers or tensor in scope.inputs:
                return scope
            scope = scope.parent
        return None

    def type_of(self, tensor: str) -> int:
        """Element type, 0 where unknown."""
        return self.types.elements.get(tensor, 0)

    def dims_of(self, tensor: str) -> list[int | str | None] | None:
        """Dims as in ``myops.onnx.model.dims``, None where the rank is unknown."""
        return self.types.dims.get(tensor)


def _free_names(graph: GraphProto) -> Iterator[str]:
    """Tensors that a graph reads and does not make."""
    made = {value.name for value in graph.input} | {t.name for t in graph.initializer}
    made |= {t.values.name for t in graph.sparse_initializer}
    made |= {name for node in graph.node for name in node.output}
    read = [name for node in graph.node for name in node.input]
    read += [value.name for value in graph.output]
    for node in graph.node:
        for inner in onnx_model.subgraphs(node):
            read += _free_names(inner)
    yield from (name for name in read if name and name not in made)


def _index(scope: Scope) -> None:
    for index, node in enumerate(scope.nodes):
        for name in filter(None, node.output):
            scope.producers[name] = index
        for name in dict.fromkeys(filter(None, node.input)):
            scope.readers.setdefault(name, []).append(index)
        for graph in onnx_model.subgraphs(node):
            for name in dict.fromkeys(_free_names(graph)):
                scope.captured.setdefault(name, []).append(index)


def _scope(
    proto: GraphProto | FunctionProto,
    parent: Scope | None,
    path: str,
    opset: int,
    types: Types,
    ir_version: int,
) -> Iterator[Scope]:
    scope = Scope(proto, parent, path, opset, types, list(proto.node))
    if isinstance(proto, GraphProto):
        scope.initializers = {tensor.name: tensor for tensor in proto.initializer}
        scope.inputs = {value.name for value in proto.input}
        scope.outputs = {value.name for value in proto.output}
        if ir_version >= _OVERRIDABLE_SINCE_IR:
            scope.overridable = scope.inputs & set(scope.initializers)
    else:
        scope.inputs, scope.outputs = set(proto.input), set(proto.output)
    _index(scope)
    yield scope
    for node in scope.nodes:
        for attribute in node.attribute:
            inner = [attribute.g] if attribute.HasField("g") else list(attribute.graphs)
            for graph in inner:
                place = f"{path}/" if path else ""
                below = f"{place}{label(node)}.{attribute.name}"
                yield from _scope(graph, scope, below, opset, types, ir_version)


def scopes(model: ModelProto) -> list[Scope]:
    """Every scope of a model but the bodies of our own functions."""
    main, by_function = infer(model)
    opset = onnx_model.opset(model) or 1
    found = list(_scope(model.graph, None, "", opset, main, model.ir_version))
    for number, function in enumerate(model.functions):
        if function.domain in SPECS.namespaces():
            continue
        version = next((e.version for e in function.opset_import if e.domain == ""), opset)
        path = f"function {function.domain}::{function.name}"
        found += _scope(function, None, path, version, by_function[number], model.ir_version)
    return found
