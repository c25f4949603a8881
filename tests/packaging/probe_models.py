# SPDX-License-Identifier: Apache-2.0
"""Models, inputs and exact results for ``runtime_probe.py``, which has no onnx and no torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from myops import _build_info
from myops.spec import DOMAIN, ELEMENTWISE, SPECS, OpSpec
from myops.verify import operators
from onnx import TensorProto, helper

# The plugin rounds once, a composed body at every step, in float32 for the halves.
FUSED = {"float32": 1e-6, "float64": 1e-14, "float16": 1e-3, "bfloat16": 8e-3}
FALLBACK = {"float32": 2e-5, "float64": 1e-12, "float16": 2e-3, "bfloat16": 1.6e-2}

ELEMENT_TYPES = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
}


def _inputs(spec: OpSpec, dtype: str) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    shape = (4, 250) if spec.kind == "norm" else (1000,)
    arrays = {}
    for position, name in enumerate(spec.inputs):
        weight = spec.kind == "norm" and position + 1 == len(spec.inputs)
        values = random.uniform(-4, 6, shape[-1:] if weight else shape)
        arrays[name] = operators.round_to(values, dtype)
    return arrays


def _shape_model(dtype: str) -> onnx.ModelProto:
    """A declared input, an output that is not: what is known there went through the node."""
    node = helper.make_node(ELEMENTWISE[0].name, ["x"], ["y"], "node", domain=DOMAIN)
    graph = helper.make_graph(
        [node],
        "shapes",
        [helper.make_tensor_value_info("x", ELEMENT_TYPES[dtype], ["N", 3, "M"])],
        [onnx.ValueInfoProto(name="y")],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def write(folder: Path) -> None:
    """Writes a portable model, inputs and results for every operator and dtype, and
    ``cases.json``, which lists them."""
    cases: list[dict[str, Any]] = []
    for spec in SPECS:
        values = {a.name: 2.0**-10 if spec.kind == "norm" else 1.75 for a in spec.attributes}
        for dtype in _build_info.dtypes:
            name = f"{spec.name}.{dtype}"
            onnx.save(operators.one_node_model(spec, dtype, values), str(folder / f"{name}.onnx"))
            inputs = _inputs(spec, dtype)
            wide = [inputs[i].astype(np.float64) for i in spec.inputs]
            exact = spec.reference(*wide, **values)
            exact = exact if isinstance(exact, tuple) else (exact,)
            results = {f"exact_{o}": y for o, y in zip(spec.outputs, exact, strict=True)}
            np.savez(folder / f"{name}.npz", **inputs, **results)
            first = spec is ELEMENTWISE[0]
            if first:
                onnx.save(_shape_model(dtype), str(folder / f"shapes.{dtype}.onnx"))
            cases.append(
                {
                    "operator": spec.name,
                    "dtype": dtype,
                    "model": f"{name}.onnx",
                    "data": f"{name}.npz",
                    "inputs": list(spec.inputs),
                    "outputs": list(spec.outputs),
                    "fused": FUSED[dtype],
                    "fallback": FALLBACK[dtype],
                    "threads": first,
                    "shapes": f"shapes.{dtype}.onnx" if first else "",
                }
            )
    (folder / "cases.json").write_text(json.dumps(cases))
