# SPDX-License-Identifier: Apache-2.0
"""Does an exported file hold what was asked for? Exporters drop operators, opsets and dim names
without an error; here each difference is one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import onnx
from onnx import ModelProto

from myops._errors import ExportError
from myops.onnx import functions
from myops.onnx import model as onnx_model
from myops.spec import DOMAIN, DOMAIN_VERSION, SPECS

WHERE = "myops.onnx.export"


def node_counts(model: ModelProto) -> Counter[str]:
    """How many nodes of each ``myops`` operator the model holds."""
    return Counter(node.op_type for node in onnx_model.our_nodes(model))


def _domain_of(name: str) -> str:
    return next((spec.namespace for spec in SPECS if spec.name == name), DOMAIN)


def _check_counts(model: ModelProto, fewest: Counter[str], most: Counter[str]) -> None:
    found = node_counts(model)
    for name in sorted(set(most) | set(found)):
        if not fewest[name] <= found[name] <= most[name]:
            wanted = f"{fewest[name]} to {most[name]}"
            raise ExportError(
                WHERE,
                f"the file should hold {most[name] if fewest[name] == most[name] else wanted} "
                f"{_domain_of(name)}::{name} nodes, one per call in the traced model",
                f"{found[name]}",
                "Call the operators through myops.functional or myops.nn, outside of any "
                "torch.autograd.Function of your own",
            )


def _check_domain(model: ModelProto, mode: str) -> None:
    nodes = onnx_model.our_nodes(model)
    domains = SPECS.namespaces()
    versions = {entry.domain: entry.version for entry in model.opset_import}
    if mode == "native":
        left = [node.op_type for node in nodes]
        containers = (*model.functions, *model.opset_import)
        if left or any(entry.domain in domains for entry in containers):
            raise ExportError(
                WHERE,
                "a native file should hold standard operators only",
                f"nodes {left}, imports {versions}",
                "Report this model as a bug of myops",
            )
    for domain in sorted({node.domain for node in nodes}):
        if versions.get(domain) != DOMAIN_VERSION:
            raise ExportError(
                WHERE,
                f"the file should import domain {domain} at version {DOMAIN_VERSION}",
                f"version {versions.get(domain)}",
                "Report this model as a bug of myops",
            )
    held = {f.name for f in model.functions if f.domain in domains}
    if mode == "portable" and held != set(node_counts(model)):
        raise ExportError(
            WHERE,
            f"a portable file should hold a function for {sorted(node_counts(model))}",
            f"functions {sorted(held)}",
            "Report this model as a bug of myops",
        )


def _check_opset(model: ModelProto, opset: int) -> None:
    delivered = onnx_model.opset(model)
    if delivered != opset:
        raise ExportError(
            WHERE,
            f"the file should be at opset {opset}, as asked",
            f"opset {delivered}",
            "Ask for an opset the exporter delivers, or use another exporter",
        )


def _check_dynamic(model: ModelProto, dynamic: Mapping[str, Mapping[int, str]]) -> None:
    inputs = {value.name: onnx_model.dims(value) for value in model.graph.input}
    for name, axes in dynamic.items():
        found = inputs.get(name)
        for axis, wanted in axes.items():
            actual = found[axis] if found is not None and axis < len(found) else None
            if actual != wanted:
                raise ExportError(
                    WHERE,
                    f"dim {axis} of input {name} should be the symbol {wanted!r}",
                    f"{actual!r}",
                    "Export with a size above 1 in that dim, and check that the model does not "
                    "fix it",
                )


def _check_dims_across_nodes(model: ModelProto) -> None:
    for graph in onnx_model.graphs(model.graph):
        known = {
            value.name: onnx_model.dims(value)
            for value in (*graph.input, *graph.value_info, *graph.output)
        }
        for node in graph.node:
            spec = SPECS.of_node(node.domain, node.op_type)
            if spec is None or spec.kind == "custom":
                continue
            before, after = known.get(node.input[0]), known.get(node.output[0])
            if before is not None and after is not None and before != after:
                raise ExportError(
                    WHERE,
                    f"the dims before and after node {node.name!r} should be the same",
                    f"{before} before and {after} after",
                    "Use the other exporter, and report this model",
                )


def check_file(
    path: Path,
    mode: str,
    opset: int,
    expected: tuple[Counter[str], Counter[str]],
    dynamic: Mapping[str, Mapping[int, str]],
) -> ModelProto:
    """Reads an exported file back and checks it.

    Args:
        path: the file.
        mode: "native", "custom" or "portable".
        opset: the default opset it must be at.
        expected: the fewest and the most nodes per ONNX operator name.
        dynamic: input name -> dim -> name.

    Returns:
        The model, without external data.

    Raises:
        ExportError: something differs.
    """
    model = onnx_model.load(path, weights=False)
    try:
        onnx.checker.check_model(str(path), full_check=mode != "custom")
        if mode == "custom":
            # The checker knows no type behind our nodes: bfloat16 at opset 9 would pass.
            typed = onnx_model.without_weights(model)
            functions.add_pass_through_functions(typed)
            onnx.shape_inference.infer_shapes(typed, check_type=True, strict_mode=True)
    except Exception as error:  # the checker raises several unrelated kinds
        raise ExportError(
            WHERE,
            "the exported file should pass onnx.checker",
            " ".join(str(error).split()),
            "Try the other exporter or another opset, and report this model",
        ) from error
    if mode != "native":
        _check_counts(model, *expected)
    _check_domain(model, mode)
    _check_opset(model, opset)
    _check_dynamic(model, dynamic)
    _check_dims_across_nodes(model)
    return model
