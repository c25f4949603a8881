# SPDX-License-Identifier: Apache-2.0
"""Random models and inputs around our operators, most of them wrong in some way, and damaged files.
Each must end in a Python exception or in the right numbers.

    python cases.py KIND FIRST COUNT

runs cases FIRST, FIRST + 1, ... and prints the number of each before it starts, so that the one
that ends the process is known, and at the end a JSON object that counts the outcomes.
"""

from __future__ import annotations

import json
import math
import random
import struct
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
from myops.ort import library_path, session
from myops.spec import DOMAIN, SPECS, OpSpec
from onnx import TensorProto, helper

FLOATS = {
    TensorProto.FLOAT: ("float32", 1e-5),
    TensorProto.DOUBLE: ("float64", 1e-12),
    TensorProto.FLOAT16: ("float16", 4e-3),
}
TYPES = (*FLOATS, *FLOATS, *FLOATS, TensorProto.BFLOAT16, TensorProto.INT64, TensorProto.INT8)
TYPES = (*TYPES, TensorProto.BOOL, TensorProto.STRING, TensorProto.UINT16)
VALUES = (1.0, 0.0, -0.0, 1.702, -2.5, 1e-6, 1e38, 3.4e38, 1e-45, math.nan, math.inf, -math.inf)
OTHER_VALUES = (1, 2**62, "1.0", "", [1.0, 2.0], [], [3], ["a"])


class Wrong(Exception):
    """Neither an exception nor the right numbers."""


def by_hand(content: bytes) -> Any:
    """As a user without our Python package: nothing stands between the model and the plugin."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 2
    options.register_custom_ops_library(library_path())
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def random_shape(rng: random.Random, rank: int) -> list[int]:
    largest = {0: 1, 1: 50_000, 2: 300}.get(rank, 6)
    return [0 if rng.random() < 0.08 else rng.randint(1, largest) for _ in range(rank)]


def random_array(rng: random.Random, element_type: int, shape: list[int]) -> np.ndarray:
    values = np.random.default_rng(rng.getrandbits(32)).uniform(-6, 6, shape)
    if rng.random() < 0.3 and values.size:
        values.flat[rng.randrange(values.size)] = rng.choice([math.nan, math.inf, -math.inf, 1e30])
    if element_type == TensorProto.STRING:
        return np.full(shape, "text", dtype=object)
    with np.errstate(all="ignore"):
        return values.astype(helper.tensor_dtype_to_np_dtype(element_type))


def random_attributes(rng: random.Random, spec: OpSpec) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for attribute in spec.attributes:
        if rng.random() < 0.8:
            given[attribute.name] = rng.choice(VALUES if rng.random() < 0.7 else OTHER_VALUES)
    if rng.random() < 0.05:
        given["unknown"] = rng.choice(OTHER_VALUES)
    return given


def random_shapes(rng: random.Random, spec: OpSpec) -> list[list[int]]:
    """Shapes that fit, most of the time."""
    shape = random_shape(rng, rng.randint(0, 8))
    shapes = [list(shape) for _ in spec.inputs]
    if spec.kind == "norm" and shape:
        shapes[-1] = shape[-1:]
    if spec.broadcasts and rng.random() < 0.4:
        shapes[-1] = [size if rng.random() < 0.5 else 1 for size in shape]
        shapes[-1] = shapes[-1][rng.randint(0, len(shape)) :]
    if rng.random() < 0.15:
        shapes[rng.randrange(len(shapes))] = random_shape(rng, rng.randint(0, 8))
    return shapes


def random_model(rng: random.Random) -> tuple[OpSpec, onnx.ModelProto, dict[str, np.ndarray]]:
    spec = rng.choice(SPECS)
    element_type = rng.choice(TYPES)
    types = [element_type] * len(spec.inputs)
    if rng.random() < 0.05:
        types[rng.randrange(len(types))] = rng.choice(TYPES)
    names, outputs = list(spec.inputs), list(spec.outputs)
    if rng.random() < 0.05:  # one too few, one too many, one without a name
        names = rng.choice([names[:-1], [*names, names[0]], ["", *names[1:]], [*names[:-1], ""]])
    if rng.random() < 0.05:
        outputs = rng.choice([[*outputs, "more"], [*outputs[:-1], ""], []])
    attributes = random_attributes(rng, spec)
    node = helper.make_node(spec.name, names, outputs, "node", domain=DOMAIN)
    for name, value in attributes.items():
        node.attribute.append(
            helper.make_attribute(name, value, attr_type=None if value != [] else 6)
        )
    shapes = random_shapes(rng, spec)
    declared = [shape if rng.random() < 0.3 else None for shape in shapes]
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info(name, kind, shape)
            for name, kind, shape in zip(spec.inputs, types, declared, strict=True)
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs if name],
    )
    imports = [helper.make_opsetid("", 18)]
    if rng.random() < 0.98:
        imports.append(helper.make_opsetid(DOMAIN, 1 if rng.random() < 0.97 else 2))
    feeds = {
        name: random_array(rng, kind, shape)
        for name, kind, shape in zip(spec.inputs, types, shapes, strict=True)
    }
    return spec, helper.make_model(graph, opset_imports=imports, ir_version=9), feeds


def exact_results(spec: OpSpec, inputs: list[Any], values: dict[str, Any]) -> tuple[Any, ...]:
    wide = [np.asarray(array, np.float64) for array in inputs]
    if not wide[0].size:  # where there are no rows, or nothing in them
        return (wide[0],) * len(spec.outputs)
    with np.errstate(all="ignore"):
        exact = spec.reference(*wide, **{**spec.defaults(), **values})
    return exact if isinstance(exact, tuple) else (exact,)


def check_numbers(
    spec: OpSpec, model: onnx.ModelProto, feeds: dict[str, np.ndarray], results: list[Any]
) -> None:
    """What came back where the model was accepted."""
    node = model.graph.node[0]
    kind = model.graph.input[0].type.tensor_type.elem_type
    values = {a.name: a.f for a in node.attribute if a.name != "unknown"}
    if kind not in FLOATS or not all(map(math.isfinite, values.values())):
        raise Wrong(f"{spec.name} accepted type {kind} and {values}")
    _, tolerance = FLOATS[kind]
    exact = exact_results(spec, [feeds[name] for name in spec.inputs], values)
    for result, other in zip(results, exact, strict=False):
        if (
            result.shape != feeds[spec.inputs[0]].shape
            or result.dtype != feeds[spec.inputs[0]].dtype
        ):
            raise Wrong(f"{spec.name} gave {result.dtype}{result.shape}")
        # The largest values differ where the storage type overflows or the compute type does.
        fair = np.isfinite(other) & (np.abs(other) < 1e3) & np.isfinite(result)
        error = np.abs(result.astype(np.float64) - other) / (1 + np.abs(other))
        if np.max(error[fair], initial=0) > tolerance * 8:
            raise Wrong(f"{spec.name} {values}: error {np.max(error[fair])}")


def run_model(rng: random.Random) -> str:
    spec, model, feeds = random_model(rng)
    make = by_hand if rng.random() < 0.6 else session
    try:
        loaded = make(model.SerializeToString())
    except Exception:
        return "refused at loading"
    used = {value.name for value in loaded.get_inputs()}
    try:
        results = loaded.run(None, {k: v for k, v in feeds.items() if k in used})
    except Exception:
        return "refused at running"
    check_numbers(spec, model, feeds, results)
    return "right numbers"


def good_model(spec: OpSpec) -> onnx.ModelProto:
    """Two nodes in a row, with weights, names and a function: more places to damage."""
    from myops.onnx.functions import add_functions

    names = [f"w{i}" for i in range(len(spec.inputs) - 1)]
    weights = [helper.make_tensor(n, TensorProto.FLOAT, [8], [0.5] * 8) for n in names]
    values = {a.name: 1.5 for a in spec.attributes}
    first = [f"y{i}" for i in range(len(spec.outputs))]
    second = [f"z{i}" for i in range(len(spec.outputs))]
    # A residual has the shape of x; other inputs are broadcast or, elementwise, of that shape.
    shape = [8] if spec.kind == "elementwise" else [1, 8]
    rows = ["x" if spec.kind == "norm" and n != names[-1] else n for n in names]
    nodes = [
        helper.make_node(spec.name, ["x", *rows], first, "one", domain=DOMAIN, **values),
        helper.make_node(spec.name, ["y0", *rows], second, "two", domain=DOMAIN, **values),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("z0", TensorProto.FLOAT, shape)],
        weights,
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    add_functions(model)
    return model


def damage(rng: random.Random, content: bytes) -> bytes:
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(data)) if data else 0
        match rng.randrange(6 if data else 1):
            case 0:
                data = data[:place]
            case 1:
                data[place] ^= 1 << rng.randrange(8)
            case 2:
                data[place] = rng.randrange(256)
            case 3:
                del data[place : place + rng.randint(1, 9)]
            case 4:
                data[place:place] = rng.randbytes(rng.randint(1, 9))
            case 5:
                data[place : place + 4] = struct.pack("<f", rng.choice(VALUES))
    return bytes(data)


def run_damaged(rng: random.Random) -> str:
    content = damage(rng, good_model(rng.choice(SPECS)).SerializeToString())
    make = by_hand if rng.random() < 0.7 else session
    try:
        loaded = make(content)
    except Exception:
        return "refused at loading"
    feeds = {}
    for value in loaded.get_inputs():
        shape = [n if isinstance(n, int) and 0 <= n < 1000 else 8 for n in value.shape]
        if value.type == "tensor(float)" and math.prod(shape) < 1_000_000:
            feeds[value.name] = np.ones(shape, np.float32)
    try:
        loaded.run(None, feeds)
    except Exception:
        return "refused at running"
    return "ran"


def random_torch(rng: random.Random) -> str:
    """The torch operators, with arguments of any kind."""
    import torch
    from myops import functional  # noqa: F401  (registers them)

    spec = rng.choice(SPECS)
    kind = rng.choice(["float32", "float32", "float64", "float16", "int64", "bool", "complex64"])
    shapes = random_shapes(rng, spec)
    tensors: list[Any] = []
    for shape in shapes:
        tensor = torch.randn(shape).to(getattr(torch, kind))
        if tensor.is_floating_point() and rng.random() < 0.5:
            tensor.requires_grad_()
        if tensor.dim() > 1 and rng.random() < 0.3:
            tensor = tensor.transpose(0, -1).contiguous().transpose(0, -1)
        tensors.append(
            tensor if rng.random() < 0.97 else rng.choice([None, 1.0, "x", tensor.to_sparse()])
        )
    attributes = {
        a.name: rng.choice(VALUES if rng.random() < 0.8 else OTHER_VALUES)
        for a in spec.attributes
        if rng.random() < 0.8
    }
    try:
        y = getattr(torch.ops.myops, spec.torch_name)(*tensors, **attributes)
        y = y[0] if isinstance(y, tuple) else y
        if y.requires_grad:
            y.sum().backward()
    except Exception:
        return "refused"
    if not all(map(math.isfinite, attributes.values())):
        raise Wrong(f"{spec.torch_name} accepted {attributes}")
    if y.shape != tensors[0].shape or y.dtype != tensors[0].dtype:
        raise Wrong(f"{spec.torch_name} gave {y.dtype}{tuple(y.shape)}")
    arrays = [tensor.detach().double().numpy() for tensor in tensors]
    exact = exact_results(spec, arrays, attributes)[0]
    result = y.detach().double().numpy()
    fair = np.isfinite(exact) & np.isfinite(result)
    error = np.abs(result - exact) / (1 + np.abs(exact))
    if np.max(error[fair], initial=0) > (4e-2 if kind == "float16" else 1e-4):
        raise Wrong(f"{spec.torch_name} {kind} {attributes}: error {np.max(error[fair])}")
    return "right numbers"


KINDS: dict[str, Callable[[random.Random], str]] = {
    "models": run_model,
    "damaged": run_damaged,
    "torch": random_torch,
}


def main(kind: str, first: int, count: int) -> None:
    outcomes: Counter[str] = Counter()
    for number in range(first, first + count):
        print(number, flush=True)
        outcomes[KINDS[kind](random.Random(f"{kind} {number}"))] += 1
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
