# SPDX-License-Identifier: Apache-2.0
"""Random graphs around random spellings: whatever is replaced, the values stay."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable

import numpy as np
import onnx
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from myops._errors import ModelError
from myops.onnx.functions import BodyBuilder
from myops.onnx.inject import inject, list_candidates
from myops.spec import SPECS, OpSpec
from onnx import NodeProto, TensorProto, helper

from .graphs import ours, run


def quickly(examples: int):
    """The same examples in every run, and a failure as it is: shrinking would take minutes."""
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )


UNARY = ("Neg", "Relu", "Tanh", "Sigmoid", "Identity", "Softplus", "HardSigmoid", "Abs")
BINARY = ("Add", "Mul", "Sub")
SHAPES = ([3, 8], [1, 3, 8], [8], [3, 1], [1])
OPSET = 20


class Graph:
    """Grows node by node. All tensors are float32; shapes are those that numpy would give."""

    def __init__(self, draw: Callable[[st.SearchStrategy], object], shape: list[int]) -> None:
        self.draw = draw
        self.nodes: list[NodeProto] = []
        self.initializers: list[TensorProto] = []
        self.inputs = [helper.make_tensor_value_info("x0", TensorProto.FLOAT, shape)]
        self.shapes: dict[str, tuple[int, ...]] = {"x0": tuple(shape)}

    def name(self) -> str:
        return f"t{len(self.shapes)}"

    def any(self) -> str:
        return self.draw(st.sampled_from(sorted(self.shapes)))

    def add(self, op_type: str, *inputs: str) -> str:
        name = self.name()
        self.nodes.append(helper.make_node(op_type, inputs, [name], name=f"node_{name}"))
        shapes = [self.shapes[i] for i in inputs]
        self.shapes[name] = np.broadcast_shapes(*shapes)
        return name

    def constant(self, shape: list[int]) -> str:
        name = f"c{len(self.initializers)}"
        size = int(np.prod(shape, initial=1))
        values = np.linspace(0.5, 1.5, size).astype(np.float32)
        self.initializers.append(helper.make_tensor(name, TensorProto.FLOAT, shape, values))
        self.shapes[name] = tuple(shape)
        return name

    def spelling(self, spec: OpSpec) -> None:
        """One of the operator's spellings, its operands in random order, on tensors that fit."""
        x = self.any()
        shape = self.shapes[x]
        if not shape:
            return
        inputs = [x]
        for name in spec.inputs[1:]:
            if spec.kind == "norm" and name == spec.inputs[-1]:
                inputs.append(self.constant([shape[-1]]))
            else:
                fitting = sorted(n for n, s in self.shapes.items() if s == shape)
                inputs.append(self.draw(st.sampled_from(fitting)))
        standard = [s for s in spec.spellings if not _is_contributed(spec, s)]
        body = self.draw(st.sampled_from([spec.body, *standard]))
        builder = BodyBuilder(OPSET, TensorProto.FLOAT, f"p{len(self.nodes)}_")
        attributes = [
            builder.constant(self.draw(st.sampled_from([1.0, 0.5, 1.702]))) for _ in spec.attributes
        ]
        results = body(builder, *inputs, *attributes)
        results = (results,) if isinstance(results, str) else results
        for node in builder.nodes:
            if node.op_type in ("Add", "Mul") and self.draw(st.booleans()):
                node.input[:] = list(node.input)[::-1]
        self.nodes += builder.nodes
        for node in builder.nodes:
            if node.op_type != "Constant" and self.draw(st.integers(0, 7)) == 0:
                self.shapes[node.output[0]] = ()  # only to be read or to be an output
        for result in results:
            self.shapes[result] = shape

    def model(self) -> onnx.ModelProto:
        made = sorted({o for n in self.nodes for o in n.output if o in self.shapes})
        chosen = self.draw(st.lists(st.sampled_from(made), min_size=1, max_size=3, unique=True))
        read = {name for node in self.nodes for name in node.input}
        unread = [o for n in self.nodes for o in n.output if o not in read]
        outputs = list(dict.fromkeys([*chosen, *unread]))
        graph = helper.make_graph(
            self._shuffled(),
            "random",
            self.inputs,
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
            self.initializers,
        )
        made = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9
        )
        return onnx.shape_inference.infer_shapes(made)  # outputs need shapes

    def _shuffled(self) -> list[NodeProto]:
        """Another order in which every node still follows what it reads."""
        order = random.Random(self.draw(st.integers(0, 99)))
        pending, done = list(self.nodes), {"x0", *(t.name for t in self.initializers)}
        result = []
        while pending:
            ready = [n for n in pending if set(n.input) <= done]
            node = order.choice(ready)
            pending.remove(node)
            done |= set(node.output)
            result.append(node)
        return result


def _is_contributed(spec: OpSpec, spelling: Callable) -> bool:
    """Whether a spelling needs another domain, a newer opset, or one of our attributes."""
    builder = BodyBuilder(OPSET, TensorProto.FLOAT)
    spelling(builder, *spec.inputs, *(a.name for a in spec.attributes))
    known = (onnx.defs.get_schema(n.op_type).since_version for n in builder.nodes if not n.domain)
    texts = any(
        a.type == a.STRING and a.name != "approximate" for n in builder.nodes for a in n.attribute
    )
    return texts or any(n.domain for n in builder.nodes) or max(known) > OPSET


@st.composite
def models(draw) -> onnx.ModelProto:
    graph = Graph(draw, draw(st.sampled_from(SHAPES)))
    for _ in range(draw(st.integers(1, 4))):
        if draw(st.booleans()):
            graph.add(draw(st.sampled_from(UNARY)), graph.any())
        if draw(st.booleans()):
            a = graph.any()
            constant = (
                graph.constant(draw(st.sampled_from(([], [1], [1, 1, 1]))))
                if draw(st.booleans())
                else graph.any()
            )
            if () not in (graph.shapes[a],):
                with contextlib.suppress(ValueError):  # shapes that do not broadcast
                    graph.add(draw(st.sampled_from(BINARY)), a, constant)
        graph.spelling(draw(st.sampled_from(SPECS)))
    if not graph.nodes:
        graph.add("Neg", "x0")
    return graph.model()


def feeds(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    (value,) = model.graph.input
    shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
    return {value.name: np.random.default_rng(1).normal(0, 2, shape).astype(np.float32)}


@quickly(80)
@given(models(), st.sampled_from(["custom", "native"]))
def test_values_stay(model: onnx.ModelProto, target: str) -> None:
    given_bytes = model.SerializeToString()
    result, report = inject(model, target=target)
    assert model.SerializeToString() == given_bytes
    onnx.checker.check_model(result)
    for field in ("input", "output"):
        assert list(getattr(result.graph, field)) == list(getattr(model.graph, field))
    arrays = feeds(model)
    wanted = run(model, arrays, False, "disable")
    level = None
    try:
        run(model, arrays, False)
    except ModelError:  # ONNX Runtime's own fusion of a norm makes some graphs invalid
        level = "disable"
    for plugin in (None, False):
        for before, after in zip(wanted, run(result, arrays, plugin, level), strict=True):
            assert before.shape == after.shape
            np.testing.assert_allclose(
                after, before, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(before).max(initial=0)))
            )
    assert all(row.fate for row in report.rows)
    assert all(row.reason for row in report.rows if row.decision == "skipped")
    if target == "custom":
        assert sum(ours(result).values()) == report.rewritten


@quickly(40)
@given(models(), st.sampled_from(["custom", "native"]))
def test_a_second_time_nothing_is_left(model: onnx.ModelProto, target: str) -> None:
    result, _ = inject(model, target=target)
    again, report = inject(result, target=target)
    assert report.rewritten == 0
    assert again.SerializeToString() == result.SerializeToString()


@quickly(40)
@given(models())
def test_order_of_the_nodes_does_not_matter(model: onnx.ModelProto) -> None:
    other = onnx.ModelProto()
    other.CopyFrom(model)
    nodes = list(other.graph.node)
    done = {"x0", *(t.name for t in other.graph.initializer)}
    ordered = []
    while nodes:  # the last that is ready first
        node = next(n for n in reversed(nodes) if set(n.input) <= done)
        nodes.remove(node)
        done |= set(node.output)
        ordered.append(node)
    del other.graph.node[:]
    other.graph.node.extend(ordered)

    def found(m: onnx.ModelProto) -> set[tuple[str, str]]:
        return {(r.operator, r.output) for r in list_candidates(m).rows if r.decision == "found"}

    assert found(model) == found(other)
