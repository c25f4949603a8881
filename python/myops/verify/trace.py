# SPDX-License-Identifier: Apache-2.0
"""Every node of a model with the values it received and gave in a runtime.

All intermediate tensors are made outputs of the graph. The bodies of If, Loop and Scan cannot be
opened in place: an output of one branch needs a counterpart in the other, and one of a loop an
equal shape in every iteration. They are run again, as models of their own, on the values they
received.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from myops.onnx import model as onnx_model
from myops.verify.float64 import Value, initial_values, outer_names, prepared
from myops.verify.parties import Party, one_line

MAX_ITERATIONS = 32
"""Of one Loop or Scan that are looked into."""

_BFLOAT16 = "bfloat16"


@dataclass(frozen=True)
class Step:
    """One node.

    Attributes:
        where: its name, behind those of the nodes whose bodies it is in, ``loop[3]/add``.
        node: the node.
        model: whose graph holds it: the model, or a body as a model of its own.
        inputs: the values it received, by name, those its own bodies take from around included.
        outputs: the values it gave, by name.
        dtypes: floating-point dtypes by tensor name; bfloat16 values come in float32 arrays.
        opened: whether the nodes of its bodies came before, as steps of their own.
    """

    where: str
    node: NodeProto
    model: ModelProto
    inputs: Mapping[str, Value]
    outputs: Mapping[str, Value]
    dtypes: Mapping[str, str]
    opened: bool = False

    @property
    def label(self) -> str:
        domain = f"{self.node.domain}::" if self.node.domain else ""
        return f"{self.where} ({domain}{self.node.op_type})"

    def dtype(self, name: str) -> str:
        """The dtype of one of the node's tensors."""
        value = self.inputs.get(name, self.outputs.get(name))
        return self.dtypes.get(name) or str(getattr(value, "dtype", ""))


@dataclass
class Unreached:
    """Bodies that could not be looked into, with reasons."""

    reasons: list[str] = field(default_factory=list)


def node_name(node: NodeProto) -> str:
    """The node's name, or that of what it computes."""
    return node.name or next(filter(None, node.output), node.op_type)


def float_types(model: ModelProto) -> dict[str, str]:
    """Names of the floating-point dtypes of a model's tensors, where they can be inferred."""
    types = onnx_model.element_types(model)
    return {name: onnx_model.DTYPES[t] for name, t in types.items() if t in onnx_model.DTYPES}


def expose(model: ModelProto, only: str | None = None) -> tuple[ModelProto, list[str]]:
    """A copy with every intermediate tensor (or ``only`` one) as an output, bfloat16 as float32.

    Returns:
        The copy, and the names of the tensors its outputs stand for, in order.
    """
    types = float_types(model)
    result = ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    names = [value.name for value in graph.output]
    wanted = [name for node in model.graph.node for name in node.output if name]
    for name in [name for name in wanted if name not in names and only in (None, name)]:
        source = name
        if types.get(name) == _BFLOAT16:
            source = f"{name}/float32"
            graph.node.append(helper.make_node("Cast", [name], [source], to=TensorProto.FLOAT))
        # Without a type: the runtime infers it, also for sequences.
        graph.output.append(helper.make_empty_tensor_value_info(source))
        names.append(name)
    return result, names


def run_model(party: Party, model: ModelProto, inputs: Mapping[str, Value]) -> list[Value]:
    """Runs a model that may be too large for one protobuf message."""
    if onnx_model.fits_one_message(model):
        return list(party.run(model, inputs))
    with tempfile.TemporaryDirectory() as scratch:
        return list(party.run(str(onnx_model.write(model, Path(scratch), "m.onnx")), inputs))


def _body_model(
    outer: ModelProto, body: GraphProto, values: Mapping[str, Value], dtypes: Mapping[str, str]
) -> ModelProto:
    """``body`` as a model whose inputs are all ``values``."""
    nodes, inputs = [], []
    for name, value in values.items():
        array = np.asarray(value)
        source = name
        if dtypes.get(name) == _BFLOAT16:
            source = f"{name}/float32"
            nodes.append(helper.make_node("Cast", [source], [name], to=TensorProto.BFLOAT16))
        element_type = helper.np_dtype_to_tensor_dtype(array.dtype)
        inputs.append(helper.make_tensor_value_info(source, element_type, array.shape))
    graph = GraphProto()
    graph.CopyFrom(body)
    del graph.input[:], graph.node[:]
    graph.input.extend(inputs)
    graph.node.extend([*nodes, *body.node])
    model = helper.make_model(graph, opset_imports=list(outer.opset_import))
    model.functions.extend(outer.functions)
    model.ir_version = outer.ir_version
    return model


def _graph_attribute(node: NodeProto, name: str) -> GraphProto:
    graph: GraphProto = next(a for a in node.attribute if a.name == name).g
    return graph


_Steps = Generator[Step, None, dict[str, Value]]


def _run_body(
    step: Step, body: GraphProto, where: str, own: Mapping[str, Value], context: _Context
) -> _Steps:
    """Traces one run of a body whose own inputs are ``own``."""
    captured = {n: v for n, v in step.inputs.items() if n not in own}
    values = {**captured, **own}
    dtypes = {n: step.dtypes[n] for n in captured if n in step.dtypes}
    for value in body.input:
        if value.type.tensor_type.elem_type == TensorProto.BFLOAT16:
            dtypes[value.name] = _BFLOAT16
    model = _body_model(step.model, body, values, dtypes)
    feeds = {
        f"{n}/float32" if dtypes.get(n) == _BFLOAT16 else n: np.asarray(v)
        for n, v in values.items()
    }
    return (yield from _trace(model, feeds, where, context))


def _if(step: Step, context: _Context) -> Iterator[Step]:
    condition = bool(np.asarray(step.inputs[step.node.input[0]]).item())
    branch = "then_branch" if condition else "else_branch"
    where = f"{step.where}/{branch.removesuffix('_branch')}/"
    yield from _run_body(step, _graph_attribute(step.node, branch), where, {}, context)


def _loop(step: Step, context: _Context) -> Iterator[Step]:
    body = _graph_attribute(step.node, "body")
    trip, condition, *carried = step.node.input
    count = int(np.asarray(step.inputs[trip]).item()) if trip else MAX_ITERATIONS + 1
    go_on = bool(np.asarray(step.inputs[condition]).item()) if condition else True
    states = [step.inputs[name] for name in carried]
    names = [value.name for value in body.input]
    results = [value.name for value in body.output]
    for i in range(count):
        if not go_on:
            return
        if i == MAX_ITERATIONS:
            context.unreached.reasons.append(f"{step.where}: iterations from {i} on")
            return
        own = dict(zip(names, [np.int64(i), np.bool_(go_on), *states], strict=True))
        values = yield from _run_body(step, body, f"{step.where}[{i}]/", own, context)
        go_on = bool(np.asarray(values[results[0]]).item())
        states = [values[name] for name in results[1 : 1 + len(states)]]


def _scan(step: Step, context: _Context) -> Iterator[Step]:
    body = _graph_attribute(step.node, "body")
    attributes = {a.name: helper.get_attribute_value(a) for a in step.node.attribute}
    scanned = attributes["num_scan_inputs"]
    if any(attributes.get("scan_input_axes", ())) or any(
        attributes.get("scan_input_directions", ())
    ):
        raise NotImplementedError("a Scan along other axes than the first, or backwards")
    values = [step.inputs[name] for name in step.node.input]
    states, sequences = values[: len(values) - scanned], values[len(values) - scanned :]
    names = [value.name for value in body.input]
    results = [value.name for value in body.output]
    for i, slices in enumerate(zip(*sequences, strict=True)):
        if i == MAX_ITERATIONS:
            context.unreached.reasons.append(f"{step.where}: iterations from {i} on")
            return
        own = dict(zip(names, [*states, *slices], strict=True))
        inner = yield from _run_body(step, body, f"{step.where}[{i}]/", own, context)
        states = [inner[name] for name in results[: len(states)]]


_OPENED = {"If": _if, "Loop": _loop, "Scan": _scan}


@dataclass(frozen=True)
class _Context:
    party: Party
    unreached: Unreached


def _trace(model: ModelProto, inputs: Mapping[str, Value], where: str, context: _Context) -> _Steps:
    opened, names = expose(model)
    results = run_model(context.party, opened, inputs)
    dtypes = float_types(model)
    values: dict[str, Value] = {**initial_values(model.graph), **inputs}
    values.update(zip(names, results, strict=True))
    for node in model.graph.node:
        received = {name: values[name] for name in outer_names(node) if name in values}
        given = {name: values[name] for name in node.output if name}
        step = Step(where + node_name(node), node, model, received, given, dtypes)
        inside = False
        if any(True for _ in onnx_model.subgraphs(node)):
            try:
                if node.domain or node.op_type not in _OPENED:
                    raise NotImplementedError(f"{node.op_type} is not one of {', '.join(_OPENED)}")
                yield from _OPENED[node.op_type](step, context)
                inside = True
            except Exception as error:  # of runtimes, which refuse a body for many reasons
                context.unreached.reasons.append(f"{step.where}: {one_line(error)}")
        yield Step(step.where, node, model, received, given, dtypes, inside)
    return values


def trace(
    model: ModelProto, inputs: Mapping[str, Value], party: Party, unreached: Unreached
) -> Iterator[Step]:
    """The nodes of a model in topological order, as one party computed them.

    Args:
        model: with its weights. Model-local functions of others are inlined first.
        inputs: by name.
        party: who runs it. Intermediate tensors that are outputs cannot be fused away, so a runtime
            may compute otherwise than without this.
        unreached: receives the bodies that could not be opened.

    Yields:
        A step per node. The nodes inside an If, Loop or Scan come before it.

    Raises:
        ModelError: the party does not run the model with its tensors as outputs.
    """
    yield from _trace(prepared(model), inputs, "", _Context(party, unreached))
