# SPDX-License-Identifier: Apache-2.0
"""Element types and dims of every tensor that onnx's inference reaches, functions included."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import onnx
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TypeProto, helper

from myops.onnx import model as onnx_model
from myops.onnx.functions import add_pass_through_functions
from myops.spec import SPECS

Dims = list[int | str | None]


@dataclass
class Types:
    """What is known of the tensors of the main graph and its inner graphs, or of a function.

    Attributes:
        elements: name -> element type.
        dims: name -> dims; absent where the rank is unknown.
    """

    elements: dict[str, int] = field(default_factory=dict)
    dims: dict[str, Dims] = field(default_factory=dict)

    def keep_common(self, other: Types) -> None:
        """Forgets what does not hold in ``other``, too."""
        self.elements = {
            name: kind for name, kind in self.elements.items() if other.elements.get(name) == kind
        }
        merged: dict[str, Dims] = {}
        for name, dims in self.dims.items():
            others = other.dims.get(name)
            if others is not None and len(others) == len(dims):
                merged[name] = [a if a == b else None for a, b in zip(dims, others, strict=True)]
        self.dims = merged


def _inferred(model: ModelProto) -> ModelProto:
    add_pass_through_functions(model)
    for data_prop in (True, False):
        with contextlib.suppress(Exception):  # onnx raises many kinds for graphs it cannot follow
            return onnx.shape_inference.infer_shapes(model, data_prop=data_prop)
    return model


def _collect(graph: GraphProto) -> Types:
    types = Types()
    for inner in onnx_model.graphs(graph):
        for value in (*inner.value_info, *inner.output, *inner.input):
            if not value.type.HasField("tensor_type"):
                continue
            if value.type.tensor_type.elem_type:
                types.elements[value.name] = value.type.tensor_type.elem_type
            dims = onnx_model.dims(value)
            if dims is not None:
                types.dims[value.name] = [d if d != -1 else None for d in dims]
        for tensor in inner.initializer:
            types.elements[tensor.name] = tensor.data_type
            types.dims[tensor.name] = list(tensor.dims)
    for inner in onnx_model.graphs(graph):
        for node in inner.node:
            if node.op_type in ("Cast", "CastLike", "DequantizeLinear") and node.output:
                _type_from_node(node, types)
    return types


def _type_from_node(node: NodeProto, types: Types) -> None:
    """Where onnx's inference stopped before a node whose type does not depend on its input."""
    if node.op_type == "Cast":
        for attribute in node.attribute:
            if attribute.name == "to" and attribute.i:
                types.elements.setdefault(node.output[0], attribute.i)
    elif len(node.input) > 1 and node.input[1] in types.elements:
        types.elements.setdefault(node.output[0], types.elements[node.input[1]])


def _calls(
    container: GraphProto | FunctionProto, types: Types, functions: dict[tuple[str, str], int]
) -> Iterator[tuple[int, NodeProto, Types]]:
    for node in onnx_model.nodes(container):
        number = functions.get((node.domain, node.op_type))
        if number is not None:
            yield number, node, types


def _value_type(name: str, types: Types) -> TypeProto:
    dims = types.dims.get(name)
    result: TypeProto = helper.make_tensor_type_proto(types.elements.get(name, 0), dims)
    return result


def _body_types(model: ModelProto, function: FunctionProto, call: NodeProto, at: Types) -> Types:
    """The function's body as a graph of its own, with the inputs of one call."""
    given = {a.name: a for a in (*function.attribute_proto, *call.attribute)}
    graph = GraphProto(name="body")
    graph.node.extend(function.node)
    for node in onnx_model.nodes(graph):
        for attribute in list(node.attribute):
            if attribute.ref_attr_name:
                value = given.get(attribute.ref_attr_name)
                name = attribute.name
                node.attribute.remove(attribute)
                if value is not None:
                    copy = node.attribute.add()
                    copy.CopyFrom(value)
                    copy.name = name
    for name, actual in zip(function.input, call.input, strict=False):
        if actual:
            graph.input.append(helper.make_value_info(name, _value_type(actual, at)))
    copy = ModelProto(ir_version=model.ir_version, graph=graph)
    copy.opset_import.extend(function.opset_import)
    domains = SPECS.namespaces()
    copy.functions.extend(f for f in model.functions if f.domain not in domains)
    types = _collect(_inferred(copy).graph)
    for name, actual in zip(function.input, call.input, strict=False):
        if actual in at.elements:
            types.elements[name] = at.elements[actual]
    return types


def infer(model: ModelProto) -> tuple[Types, list[Types]]:
    """Types of the main graph with its inner graphs, and of each function: what holds at all of
    its calls. Element types that are unknown are absent."""
    copy = onnx_model.without_weights(model)
    main = _collect(_inferred(copy).graph)
    domains = SPECS.namespaces()
    numbers = {
        (f.domain, f.name): i for i, f in enumerate(model.functions) if f.domain not in domains
    }
    found: list[Types | None] = [None] * len(model.functions)
    pending = list(_calls(model.graph, main, numbers))
    # A chain of calls longer than this would be recursion, which ONNX forbids.
    budget = 64 * (len(model.functions) + 1)
    while pending and budget:
        budget -= 1
        number, call, at = pending.pop()
        function = model.functions[number]
        types = _body_types(model, function, call, at)
        pending += _calls(function, types, numbers)
        known = found[number]
        if known is None:
            found[number] = types
        else:
            known.keep_common(types)
    return main, [types or Types() for types in found]
