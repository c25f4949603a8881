# SPDX-License-Identifier: Apache-2.0
"""Small models, and runtimes that get one node wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import myops.nn
import myops.onnx
import numpy as np
import onnx
import torch
from myops.onnx import model as onnx_model
from myops.spec import DOMAIN, DOMAIN_VERSION
from myops.verify.parties import Party
from onnx import TensorProto, helper, numpy_helper

BETAS = (1.702, 1.25, 0.875)
WRONG = 1  # of the betas


class Network(torch.nn.Module):
    """Convolutions with a residual, a linear layer and a softmax, and a Swish behind each."""

    def __init__(self, betas: tuple[float, ...] = BETAS) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.second = torch.nn.Conv2d(8, 8, 3, padding=1)
        self.third = torch.nn.Linear(8 * 36, 16)
        self.last = torch.nn.Linear(16, 4)
        self.swish = torch.nn.ModuleList(myops.nn.Swish(beta) for beta in betas)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.swish[0](self.first(x))
        y = y + self.swish[1](self.second(y))
        return torch.softmax(self.last(self.swish[2](self.third(y.flatten(1)))), -1)


def network(betas: tuple[float, ...] = BETAS) -> Network:
    torch.manual_seed(3)
    return Network(betas)


def images(dtype: str = "float32") -> dict[str, np.ndarray]:
    x = np.random.default_rng(5).standard_normal((2, 3, 6, 6))
    return {"x": x.astype(dtype)}


def export(module: torch.nn.Module, path: Path, exporter: str = "torchscript") -> onnx.ModelProto:
    x = torch.from_numpy(images()["x"])
    myops.onnx.export(module, (x,), path, exporter=exporter, dynamic={"x": {0: "batch"}})
    return onnx.load(path)


def to_float16(model: onnx.ModelProto) -> onnx.ModelProto:
    """All float32 tensors as float16, as converters do it."""
    half = onnx.ModelProto()
    half.CopyFrom(model)
    for tensor in half.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            array = numpy_helper.to_array(tensor).astype(np.float16)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for value in (*half.graph.input, *half.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    del half.graph.value_info[:]
    myops.onnx.add_functions(half)
    return half


def our_nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """The ``myops`` nodes, inner graphs included."""
    return [node for node in onnx_model.nodes(model.graph) if node.domain == DOMAIN]


def changed(model: onnx.ModelProto, change: Callable[[onnx.ModelProto], object]) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    change(copy)
    return copy


def with_wrong_beta(party: Party, name: str, by: float = 1e-3) -> Party:
    """The party, whose kernel uses a beta that is off by this in the node of that name."""

    def run(model, inputs):
        if isinstance(model, str):
            model = onnx.load(model)

        def change(copy: onnx.ModelProto) -> None:
            for node in our_nodes(copy):
                if node.name == name:
                    node.attribute[0].f += by

        return party.run(changed(model, change), inputs)

    return Party(party.name, party.ours, run)


def add_to_function_beta(model: onnx.ModelProto, by: float = 1e-3) -> None:
    """Makes the file's own decomposition of Swish wrong: its beta is off by this."""
    (function,) = model.functions
    beta = function.node[0].output[0]
    for node in function.node[1:]:
        for i, name in enumerate(node.input):
            if name == beta:
                node.input[i] = "changed"
    value = numpy_helper.from_array(np.float32(by))
    function.node.insert(1, helper.make_node("Constant", [], ["by"], value=value))
    function.node.insert(2, helper.make_node("Add", [beta, "by"], ["changed"]))


def info(name: str, shape=("n",), element_type: int = TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, element_type, shape)


def model_of(nodes, inputs, outputs, initializers=(), functions=()) -> onnx.ModelProto:
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), list(initializers))
    domains = {"": 18, DOMAIN: DOMAIN_VERSION} | {f.domain: 1 for f in functions}
    imports = [helper.make_opsetid(*entry) for entry in domains.items()]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    model.functions.extend(functions)
    return model


def swish(source: str, target: str, name: str, beta: float = 1.5) -> onnx.NodeProto:
    return helper.make_node("Swish", [source], [target], name, domain=DOMAIN, beta=beta)


def scalar(name: str, value: object, dtype: str = "float32") -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(value, dtype), name)


def branch_model(flag: bool) -> onnx.ModelProto:
    """An If on the constant ``flag``; each branch applies its own Swish to a tensor from around."""

    def branch(name: str, beta: float) -> onnx.GraphProto:
        nodes = [
            swish("h", f"{name}_s", f"{name}_swish", beta),
            helper.make_node("Add", [f"{name}_s", "h"], [f"{name}_y"], f"{name}_add"),
        ]
        return helper.make_graph(nodes, name, [], [info(f"{name}_y")])

    nodes = [
        helper.make_node("Mul", ["x", "two"], ["h"], "double"),
        helper.make_node(
            "If",
            ["flag"],
            ["y"],
            "choose",
            then_branch=branch("then", 1.5),
            else_branch=branch("else", 0.5),
        ),
    ]
    return model_of(
        nodes, [info("x")], [info("y")], [scalar("two", 2.0), scalar("flag", flag, "bool")]
    )


def loop_model(count: int) -> onnx.ModelProto:
    """A Loop that applies a Swish and adds one from around, ``count`` times."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["go_on"], "keep"),
            swish("state", "s", "inner_swish"),
            helper.make_node("Add", ["s", "one"], ["next"], "inner_add"),
        ],
        "body",
        [
            info("i", (), TensorProto.INT64),
            info("go", (), TensorProto.BOOL),
            info("state"),
        ],
        [info("go_on", (), TensorProto.BOOL), info("next")],
    )
    node = helper.make_node("Loop", ["count", "", "x"], ["y"], "repeat", body=body)
    initializers = [scalar("count", count, "int64"), scalar("one", 1.0)]
    return model_of([node], [info("x")], [info("y")], initializers)


def scan_model() -> onnx.ModelProto:
    """A Scan over the rows of x: state = swish(state) + row."""
    body = helper.make_graph(
        [
            swish("state", "s", "inner_swish"),
            helper.make_node("Add", ["s", "row"], ["next"], "inner_add"),
            helper.make_node("Identity", ["next"], ["seen"], "inner_copy"),
        ],
        "body",
        [info("state", (4,)), info("row", (4,))],
        [info("next", (4,)), info("seen", (4,))],
    )
    node = helper.make_node(
        "Scan", ["start", "x"], ["last", "y"], "rows", body=body, num_scan_inputs=1
    )
    return model_of(
        [node], [info("x", (3, 4))], [info("y", (3, 4))], [scalar("start", np.zeros(4))]
    )
