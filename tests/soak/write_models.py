# SPDX-License-Identifier: Apache-2.0
"""Writes a model of one node for every operator and dtype that the soak program lists, and one
whose attribute is not a number, which has to be refused.

    python write_models.py PROGRAM FOLDER
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
from onnx import TensorProto, helper

DTYPES = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
}


def one_node(line: str, element_type: int, changed: dict[str, float]) -> onnx.ModelProto:
    """The model of a line like ``Swish elementwise 1 1 beta=1.875``. Shapes are left open."""
    name, _, inputs, outputs, *pairs = line.split()
    attributes = {key: float(value) for key, value in (pair.split("=") for pair in pairs)}
    x = [f"x{i}" for i in range(int(inputs))]
    y = [f"y{i}" for i in range(int(outputs))]
    node = helper.make_node(name, x, y, "node", domain="myops", **attributes | changed)
    graph = helper.make_graph(
        [node],
        name,
        [helper.make_tensor_value_info(n, element_type, None) for n in x],
        [helper.make_tensor_value_info(n, element_type, None) for n in y],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("myops", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def main(program: str, folder: Path) -> None:
    done = subprocess.run([program, "--list"], capture_output=True, text=True, check=True)
    folder.mkdir(parents=True, exist_ok=True)
    refused = None
    for line in done.stdout.splitlines():
        for dtype, element_type in DTYPES.items():
            model = one_node(line, element_type, {})
            onnx.save(model, str(folder / f"{line.split()[0]}.{dtype}.onnx"))
        if "=" in line and refused is None:
            name = line.split()[4].split("=")[0]
            refused = one_node(line, TensorProto.FLOAT, {name: float("nan")})
    assert refused is not None, "an operator should have an attribute"
    onnx.save(refused, str(folder / "refused.onnx"))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
