# SPDX-License-Identifier: Apache-2.0
"""The operators in standard ONNX ops: as model-local functions and expanded in place.

Both come from the one ``body`` of the ``OpSpec``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import onnx
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

from myops._errors import ModelError
from myops.onnx import model as onnx_model
from myops.spec import DOMAIN, DOMAIN_VERSION, SPECS, OpSpec, find

_HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
_CONSTANT_FLOAT_SINCE = 12
_CAST_LIKE_SINCE = 15
_REDUCTION_AXES_ARE_INPUT_SINCE = 18
_FUNCTIONS_SINCE_IR = 8


class BodyBuilder:
    """Collects the nodes of a body: ``builder.Mul(a, b)`` adds a node and returns its output."""

    def __init__(self, opset: int, compute_type: int, prefix: str = "") -> None:
        self.nodes: list[NodeProto] = []
        self.opset = opset
        self.compute_type = compute_type
        self._prefix = prefix
        self._numbers = itertools.count()

    def node(self, op_type: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        output = output or f"{self._prefix}{op_type.lower()}_{next(self._numbers)}"
        name = f"{self._prefix}{op_type}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [output], name=name, **attributes))
        return output

    def __getattr__(self, op_type: str) -> Any:
        if op_type.startswith("_"):
            raise AttributeError(op_type)
        return lambda *inputs, **attributes: self.node(op_type, *inputs, **attributes)

    def cast(self, value: str, to: int, output: str | None = None) -> str:
        return self.node("Cast", value, output=output, to=to)

    def constant(self, value: float, element_type: int | None = None) -> str:
        """A scalar in the compute type."""
        tensor = helper.make_tensor("value", element_type or self.compute_type, [], [value])
        return self.node("Constant", value=tensor)

    def mean(self, value: str) -> str:
        """Over the last dim, which is kept."""
        if self.opset < _REDUCTION_AXES_ARE_INPUT_SINCE:
            return self.node("ReduceMean", value, axes=[-1], keepdims=1)
        last = helper.make_tensor("value", TensorProto.INT64, [1], [-1])
        return self.node("ReduceMean", value, self.node("Constant", value=last), keepdims=1)

    def attribute(self, name: str) -> str:
        """The enclosing function's float attribute, as a scalar in the compute type."""
        reference = onnx.AttributeProto(ref_attr_name=name, type=onnx.AttributeProto.FLOAT)
        if self.opset >= _CONSTANT_FLOAT_SINCE:
            reference.name = "value_float"
            value = self.node("Constant")
            self.nodes[-1].attribute.append(reference)
        else:
            # Constant takes no float attribute yet. LeakyRelu does: its value at -1 is -alpha.
            reference.name = "alpha"
            negative = self.node("LeakyRelu", self.constant(-1.0, TensorProto.FLOAT))
            self.nodes[-1].attribute.append(reference)
            value = self.node("Neg", negative)
        if self.compute_type != TensorProto.FLOAT:
            value = self.cast(value, self.compute_type)
        return value


def _compute_type(types: Iterable[int]) -> int:
    """float64 where float64 occurs; else float32, also for the halves, for which ONNX Runtime's
    CPU provider has few kernels."""
    return TensorProto.DOUBLE if TensorProto.DOUBLE in types else TensorProto.FLOAT


def _apply(
    spec: OpSpec, builder: BodyBuilder, inputs: list[str], attributes: list[str]
) -> tuple[str, ...]:
    double = builder.compute_type == TensorProto.DOUBLE
    body = spec.body_float64 if double and spec.body_float64 else spec.body
    result = body(builder, *inputs, *attributes)
    return (result,) if isinstance(result, str) else tuple(result)


def _rename(builder: BodyBuilder, result: str, output: str) -> None:
    for node in builder.nodes:
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                if name == result:
                    names[i] = output


def function_proto(spec: OpSpec, types: Sequence[int], opset: int) -> FunctionProto:
    """The model-local function ``myops::<name>``.

    Args:
        spec: the operator.
        types: the element types it is called with in the model. One function serves all of them.
        opset: the model's default opset; the function's must equal it.

    Raises:
        ModelError: several types at an opset without CastLike.
    """
    builder = BodyBuilder(opset, _compute_type(types))
    same_type = set(types) == {builder.compute_type}
    inputs = list(spec.inputs)
    if not same_type:
        inputs = [builder.cast(name, builder.compute_type) for name in inputs]
    attributes = [builder.attribute(a.name) for a in spec.attributes]
    if len(set(types)) > 1 and opset < _CAST_LIKE_SINCE:
        raise ModelError(
            "myops.onnx",
            f"one function for several element types needs opset {_CAST_LIKE_SINCE} or newer",
            f"{spec.name} in {', '.join(onnx_model.DTYPES[t] for t in sorted(set(types)))} "
            f"at opset {opset}",
            "Export at a newer opset, or with mode='custom' or mode='native'",
        )
    for result, output in zip(_apply(spec, builder, inputs, attributes), spec.outputs, strict=True):
        if same_type:
            _rename(builder, result, output)
        elif len(set(types)) == 1:
            builder.cast(result, types[0], output=output)
        else:
            builder.node("CastLike", result, spec.inputs[0], output=output)
    return helper.make_function(
        spec.namespace,
        spec.name,
        list(spec.inputs),
        list(spec.outputs),
        builder.nodes,
        [helper.make_opsetid("", opset)],
        [a.name for a in spec.attributes],
    )


def _first_output(node: NodeProto) -> str:
    """The first result somebody may read: others have no name."""
    return next(filter(None, node.output), "")


def _types_by_op(model: ModelProto) -> dict[str, list[int]]:
    types = onnx_model.element_types(model)
    found: dict[str, list[int]] = {}
    for node in onnx_model.our_nodes(model):
        element_type = types.get(node.input[0]) or types.get(_first_output(node)) or 0
        spec = SPECS.of_node(node.domain, node.op_type)
        if spec is None:
            known = (spec.name for spec in SPECS if spec.namespace == node.domain)
            raise ModelError(
                "myops.onnx",
                f"a {node.domain} node should be one of {', '.join(known)}",
                f"{node.op_type} (node {node.name!r})",
                "Correct the name",
            )
        if element_type not in onnx_model.DTYPES:
            raise ModelError(
                "myops.onnx",
                f"the element type of every {node.domain} node should be known and floating point",
                f"type {element_type} at node {node.name!r}",
                "Add a value_info for its input",
            )
        found.setdefault(spec.name, []).append(element_type)
    return found


def add_functions(model: ModelProto) -> None:
    """Adds a function for every ``myops`` operator in the model, in place: the file then also runs
    where the plugin is not registered.

    Raises:
        ModelError: a node's name or element type is not usable.
    """
    opset = onnx_model.opset(model) or 0
    types = _types_by_op(model)
    domains = SPECS.namespaces()
    kept = [function for function in model.functions if function.domain not in domains]
    del model.functions[:]
    model.functions.extend(kept)
    for name, element_types in types.items():
        spec = find(name)
        model.functions.append(function_proto(spec, sorted(set(element_types)), opset))
    if types:
        model.ir_version = max(model.ir_version, _FUNCTIONS_SINCE_IR)


def _of_the_first_type(spec: OpSpec) -> list[NodeProto]:
    """Nodes for the outputs, of the first input's type, and of its shape or of an unknown one."""
    first = spec.inputs[0]
    if spec.kind != "custom":
        return [helper.make_node("Identity", [first], [name]) for name in spec.outputs]
    zero = helper.make_tensor("value", TensorProto.INT64, [], [0])
    return [
        # Of a length that depends on values.
        helper.make_node("NonZero", [first], ["places"]),
        helper.make_node("Constant", [], ["zero"], value=zero),
        helper.make_node("Gather", ["places", "zero"], ["sizes"], axis=0),
        *(helper.make_node("Reshape", [first, "sizes"], [name]) for name in spec.outputs),
    ]


def add_pass_through_functions(model: ModelProto) -> None:
    """Gives every ``myops`` operator without a function one that copies its first input, so that
    onnx's type inference, which does not know the operators, goes on behind them."""
    known = {(function.domain, function.name) for function in model.functions}
    called = {(node.domain, node.op_type) for node in onnx_model.our_nodes(model)} - known
    specs = list(filter(None, (SPECS.of_node(*each) for each in sorted(called))))
    for spec in specs:
        model.functions.append(
            helper.make_function(
                spec.namespace,
                spec.name,
                list(spec.inputs),
                list(spec.outputs),
                _of_the_first_type(spec),
                [helper.make_opsetid("", onnx_model.opset(model) or 13)],
                [a.name for a in spec.attributes],
            )
        )
    if specs:
        model.ir_version = max(model.ir_version, _FUNCTIONS_SINCE_IR)


def _expand_graph(graph: GraphProto, types: dict[str, int], opset: int) -> None:
    result: list[NodeProto] = []
    for node in graph.node:
        for inner in onnx_model.subgraphs(node):
            _expand_graph(inner, types, opset)
        spec = SPECS.of_node(node.domain, node.op_type)
        if spec is None:
            result.append(node)
            continue
        element_type = types[node.input[0]]
        builder = BodyBuilder(opset, _compute_type([element_type]), f"{_first_output(node)}/")
        given = {a.name: a.f for a in node.attribute}
        attributes = [builder.constant(given.get(a.name, a.default)) for a in spec.attributes]
        inputs = list(node.input)
        if element_type in _HALVES:
            inputs = [builder.cast(name, builder.compute_type) for name in inputs]
        values = _apply(spec, builder, inputs, attributes)
        for value, output in zip(values, node.output, strict=False):
            if not output:  # a result nobody reads
                continue
            if element_type in _HALVES:
                builder.cast(value, element_type, output=output)
            else:
                _rename(builder, value, output)
        result.extend(builder.nodes)
    del graph.node[:]
    graph.node.extend(result)


def expand(model: ModelProto) -> None:
    """Replaces every ``myops`` node of the main graph and its inner graphs by its body, in place,
    and drops the domain.

    Raises:
        ModelError: a node's name or element type is not usable.
    """
    _types_by_op(model)  # raises for nodes that cannot be expanded
    types = onnx_model.element_types(model)
    domains = SPECS.namespaces()
    _expand_graph(model.graph, types, onnx_model.opset(model) or 0)
    for container in (model.functions, model.opset_import):
        kept = [entry for entry in container if entry.domain not in domains]
        del container[:]
        container.extend(kept)


def import_domain(model: ModelProto) -> None:
    """Makes the model import the ``myops`` domain, and those of its other nodes of ours, in place,
    unless it does."""
    for domain in sorted({DOMAIN, *(node.domain for node in onnx_model.our_nodes(model))}):
        if onnx_model.opset(model, domain) is None:
            model.opset_import.append(helper.make_opsetid(domain, DOMAIN_VERSION))
