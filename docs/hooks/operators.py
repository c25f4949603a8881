# SPDX-License-Identifier: Apache-2.0
"""Writes the operator reference, with a picture of each function and its derivative, from the
specs. Run by mkdocs."""

from __future__ import annotations

import io

import matplotlib
import mkdocs_gen_files
import numpy as np
from matplotlib.figure import Figure
from myops.onnx import functions
from myops.spec import DOMAIN, SPECS, OpSpec
from onnx import TensorProto

matplotlib.use("Agg")

POINTS = np.linspace(-6.0, 6.0, 601)
STEP = 1e-4
COEFFICIENTS = (0.5, 1.0, 1.702)


def _value(spec: OpSpec, first: np.ndarray, other: float) -> np.ndarray:
    """The reference at ``first``, with ``other`` in every further input. A norm gets rows of four
    elements, of which the first one varies and the rest are ``other``."""
    if spec.kind == "norm":
        rows = np.full((first.size, 4), other)
        rows[:, 0] = first
        zeros = [np.zeros_like(rows)] * (len(spec.inputs) - 2)
        result = spec.reference(rows, *zeros, np.ones(4), **spec.defaults())
        y = result[0] if isinstance(result, tuple) else result
        return np.asarray(y[:, 0])
    others = [np.full_like(first, other) for _ in spec.inputs[1:]]
    return np.asarray(spec.reference(first, *others, **spec.defaults()))


def _picture(spec: OpSpec) -> bytes:
    figure = Figure(figsize=(7, 3), layout="constrained")
    plots = figure.subplots(1, 2)
    # An operator of one input has one curve; others have one for each value of the further inputs.
    values = (1.0,) if spec.kind == "elementwise" and len(spec.inputs) == 1 else COEFFICIENTS
    for value in values:
        label = None
        if len(values) > 1:
            rest = "the others" if spec.kind == "norm" else spec.inputs[1]
            label = f"{rest} = {value:g}"
        plots[0].plot(POINTS, _value(spec, POINTS, value), label=label)
        rise = _value(spec, POINTS + STEP, value) - _value(spec, POINTS - STEP, value)
        plots[1].plot(POINTS, rise / (2 * STEP), label=label)
    first = spec.inputs[0]
    for plot, title in zip(plots, (spec.outputs[0], f"d{spec.outputs[0]} / d{first}"), strict=True):
        plot.set_title(title, fontsize=10)
        plot.set_xlabel(first)
        plot.grid(alpha=0.3)
        plot.axhline(0, color="gray", linewidth=0.6)
        if len(values) > 1:
            plot.legend(fontsize=7)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def _table(spec: OpSpec) -> str:
    rows = [
        ("torch", f"`torch.ops.{DOMAIN}.{spec.torch_name}`"),
        ("ONNX", f"`{DOMAIN}::{spec.name}`, version 1"),
        ("inputs", ", ".join(f"`{name}`" for name in spec.inputs)),
        ("outputs", ", ".join(f"`{name}`" for name in spec.outputs)),
    ]
    rows += [(f"attribute `{a.name}`", f"{a.doc} Default {a.default:g}.") for a in spec.attributes]
    errors = ", ".join(f"{dtype} {ulp:g}" for dtype, ulp in spec.max_ulp.items())
    rows.append(("worst error, ulp", errors))
    if spec.denormals:
        rows.append(
            ("on top of that", f"{spec.denormals} of the smallest numbers, for denormal results")
        )
    lines = "".join(f"| {key} | {value} |\n" for key, value in rows)
    return f"| | |\n|---|---|\n{lines}"


def _body(spec: OpSpec) -> str:
    function = functions.function_proto(spec, [TensorProto.FLOAT], 18)
    nodes = [
        f"{', '.join(node.output)} = {node.op_type}({', '.join(filter(None, node.input))})"
        for node in function.node
    ]
    return "\n".join(nodes)


def main() -> None:
    page = [
        "# Operators\n",
        "Written from the specs. The ONNX body is what a *portable* file holds beside each node, "
        "what a *native* export writes in its place, and what `myops inject` looks for.\n",
    ]
    for spec in SPECS:
        image = f"reference/images/{spec.torch_name}.svg"
        with mkdocs_gen_files.open(image, "wb") as file:
            file.write(_picture(spec))
        page += [
            f"## {spec.name}\n",
            f"{spec.summary}\n",
            f"![{spec.name} and its derivative](images/{spec.torch_name}.svg)\n",
            _table(spec),
            f"{spec.details}\n",
            f"```text\n{_body(spec)}\n```\n",
        ]
    with mkdocs_gen_files.open("reference/operators.md", "w") as file:
        file.write("\n".join(page))


main()
