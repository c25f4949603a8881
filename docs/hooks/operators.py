# SPDX-License-Identifier: Apache-2.0
"""Writes the operator reference, with a picture of each function and its derivative, from the
specs. Run by mkdocs."""

from __future__ import annotations

import io

import matplotlib
import mkdocs_gen_files
import numpy as np
from matplotlib.figure import Figure
from myops.norm_spec import derived
from myops.onnx import functions
from myops.spec import DOMAIN, ELEMENTWISE, NORMS, SPECS, OpSpec
from onnx import AttributeProto, TensorProto, helper, numpy_helper

matplotlib.use("Agg")

POINTS = np.linspace(-6.0, 6.0, 601)
STEP = 1e-4
HAND_WRITTEN = ("quick_gelu", "swish_per_channel", "split_gate", "rms_norm")
COEFFICIENTS = (0.5, 1.0, 1.702)


def _value(spec: OpSpec, first: np.ndarray, other: float) -> np.ndarray:
    """The reference at ``first``. ``other`` is the value of every further input, or of the first
    attribute where there is none. A norm gets rows of four elements, of which the first one varies
    and the rest are ``other``."""
    if spec.kind == "norm":
        rows = np.full((first.size, 4), other)
        rows[:, 0] = first
        zeros = [np.zeros_like(rows)] * (len(spec.inputs) - 2)
        result = spec.reference(rows, *zeros, np.ones(4), **spec.defaults())
        y = result[0] if isinstance(result, tuple) else result
        return np.asarray(y[:, 0])
    others = [np.full_like(first, other) for _ in spec.inputs[1:]]
    attributes = spec.defaults()
    if not others and attributes:
        attributes[next(iter(attributes))] = other
    return np.asarray(spec.reference(first, *others, **attributes))


def _varied(spec: OpSpec) -> str | None:
    """What the curves of a picture differ in; nothing for a function of one number."""
    if spec.kind == "norm":
        return "the rest of the row"
    names = (*spec.inputs[1:], *spec.defaults())
    return names[0] if names else None


def _picture(spec: OpSpec) -> bytes:
    figure = Figure(figsize=(7, 3), layout="constrained")
    plots = figure.subplots(1, 2)
    varied = _varied(spec)
    for value in COEFFICIENTS if varied else (1.0,):
        label = f"{varied} = {value:g}" if varied else None
        plots[0].plot(POINTS, _value(spec, POINTS, value), label=label)
        rise = _value(spec, POINTS + STEP, value) - _value(spec, POINTS - STEP, value)
        plots[1].plot(POINTS, rise / (2 * STEP), label=label)
    first, output = spec.inputs[0], spec.outputs[0]
    for plot, title in zip(plots, (output, f"d{output} / d{first}"), strict=True):
        plot.set_title(title, fontsize=10)
        plot.set_xlabel(first)
        plot.grid(alpha=0.3)
        plot.axhline(0, color="gray", linewidth=0.6)
        if varied:
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
    return f"| property | value |\n|---|---|\n{lines}"


def _argument(attribute: AttributeProto) -> str:
    if attribute.ref_attr_name:
        return attribute.ref_attr_name
    value = helper.get_attribute_value(attribute)
    if isinstance(value, TensorProto):
        return f"{numpy_helper.to_array(value).item():g}"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return f"{attribute.name}={text}"


def _body(spec: OpSpec) -> str:
    """The function for float32, a line per node."""
    lines = []
    for node in functions.function_proto(spec, [TensorProto.FLOAT], 18).node:
        arguments = [*node.input, *map(_argument, node.attribute)]
        lines.append(f"{', '.join(node.output)} = {node.op_type}({', '.join(arguments)})")
    return "\n".join(lines)


def _functions() -> str:
    """The page of what there is for torch: what the specs give, and what is written by hand."""
    import myops.functional
    import myops.nn

    specs = (*ELEMENTWISE, *derived(NORMS))
    page = ["# Functions and modules\n"]
    for module, names in (
        ("myops.functional", [*(spec.torch_name for spec in specs), *HAND_WRITTEN]),
        ("myops.nn", [name for name in myops.nn.__all__ if name != "Operator"]),
    ):
        options = f"inherited_members: false, members: [{', '.join(names)}]"
        page.append(f"::: {module}\n    options: {{{options}}}\n")
    return "\n".join(page)


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
    with mkdocs_gen_files.open("reference/functional.md", "w") as file:
        file.write(_functions())


main()
