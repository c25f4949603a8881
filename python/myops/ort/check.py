# SPDX-License-Identifier: Apache-2.0
"""Compares a model's ``myops`` nodes with what the plugin offers, before ONNX Runtime sees them:
its own messages name neither the reason nor the remedy."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import ModelProto, NodeProto

from myops import _build_info
from myops._errors import ModelError
from myops.onnx import model as onnx_model
from myops.spec import DOMAIN, DOMAIN_VERSION, SPECS

WHERE = "myops.ort"

_OFFERED = {op["name"]: op for op in _build_info.ops()}


def _offered(domain: str) -> dict[str, Any]:
    """What the plugin of a domain has, by name: ours says it itself, others say it in Python."""
    if domain == DOMAIN:
        return _OFFERED
    return {
        spec.name: {
            "inputs": spec.inputs,
            "outputs": spec.outputs,
            "attributes": spec.defaults(),
        }
        for spec in SPECS
        if spec.namespace == domain
    }


def _label(node: NodeProto) -> str:
    return f"{node.domain}::{node.op_type} (node {node.name or node.output[0]!r})"


@dataclass(frozen=True)
class Problem:
    """Why the model does not load as it should. ``id`` is that of ``myops doctor``."""

    id: str
    rule: str
    received: str
    remedy: str


def _domain_spelling(model: ModelProto, functions: set[tuple[str, str]]) -> Iterator[Problem]:
    for node in onnx_model.nodes(model.graph):
        if node.domain in SPECS.namespaces() or (node.domain, node.op_type) in functions:
            continue
        close = difflib.get_close_matches(node.domain.lower(), [DOMAIN], cutoff=0.75)
        known_op = node.op_type in _OFFERED
        if node.domain.lower() == DOMAIN or (close and known_op):
            yield Problem(
                "domain-case",
                f"the domain of our operators is {DOMAIN!r}, in this case",
                _label(node),
                f"Write the node and the import with domain {DOMAIN!r}",
            )


def _import(model: ModelProto, node: NodeProto) -> Iterator[Problem]:
    domain = node.domain
    versions = [entry.version for entry in model.opset_import if entry.domain == domain]
    if versions == [DOMAIN_VERSION]:
        return
    kinds = {0: "domain-not-imported", 1: "domain-version"}
    yield Problem(
        kinds.get(len(versions), "domain-imported-twice"),
        f"the model should import domain {domain!r} once, at version {DOMAIN_VERSION}",
        f"{len(versions)} imports (versions {versions}) and node {_label(node)}",
        f"Add opset_import(domain={domain!r}, version={DOMAIN_VERSION})"
        if not versions
        else f"Leave one opset_import(domain={domain!r}, version={DOMAIN_VERSION})",
    )


def _node(node: NodeProto, types: dict[str, int]) -> Iterator[Problem]:
    known = _offered(node.domain)
    offered = known.get(node.op_type)
    if offered is None:
        lower = {name.lower(): name for name in known}
        close = difflib.get_close_matches(node.op_type.lower(), lower, n=1)
        hint = f"Did you mean {lower[close[0]]}? Correct the name" if close else "Correct the name"
        rule = f"the plugin offers {', '.join(known)}"
        yield Problem("node-unknown", rule, _label(node), hint)
        return
    if "" in node.input:
        yield Problem(
            "node-input-empty",
            f"{node.op_type} takes {len(offered['inputs'])} inputs, none of them optional",
            f"{len(node.input)} with an empty one at {_label(node)}",
            "Leave the empty name out",
        )
    elif len(node.input) != len(offered["inputs"]):
        yield Problem(
            "node-input-count",
            f"{node.op_type} takes {len(offered['inputs'])} inputs",
            f"{len(node.input)} at {_label(node)}",
            "Correct the node",
        )
    if len(node.output) > len(offered["outputs"]):
        yield Problem(
            "node-output-count",
            f"{node.op_type} has {len(offered['outputs'])} outputs",
            f"{len(node.output)} at {_label(node)}",
            "Correct the node",
        )
    yield from _attributes(node, offered["attributes"])
    for name in node.input[:1]:
        element_type = types.get(name, 0)
        if element_type and element_type not in onnx_model.DTYPES:
            dtype = onnx.TensorProto.DataType.Name(element_type).lower()
            yield Problem(
                "node-dtype",
                f"{node.op_type} takes {', '.join(_build_info.dtypes)}",
                f"{dtype} at {_label(node)}",
                "Cast the input to a floating-point type",
            )


def _attributes(node: NodeProto, offered: Mapping[str, float]) -> Iterator[Problem]:
    for attribute in node.attribute:
        if attribute.name not in offered:
            yield Problem(
                "node-attribute-unknown",
                f"the attributes of {node.op_type} are {', '.join(offered) or 'none'}",
                f"{attribute.name!r} at {_label(node)}",
                "Correct the attribute's name",
            )
        elif attribute.type != onnx.AttributeProto.FLOAT:
            kind = onnx.AttributeProto.AttributeType.Name(attribute.type)
            yield Problem(
                "node-attribute-type",
                f"attribute {attribute.name} of {node.op_type} should be a float",
                f"{kind} at {_label(node)}",
                "Write it as a float attribute",
            )


def problems(model: ModelProto, with_plugin: bool = True) -> Iterator[Problem]:
    """Everything that keeps the ``myops`` nodes of a model from running as meant, worst first.

    Args:
        model: may be without its weights.
        with_plugin: whether the plugin is registered; without it every ``myops`` node needs a
            model-local function.
    """
    functions = {(function.domain, function.name) for function in model.functions}
    yield from _domain_spelling(model, functions)
    ours = onnx_model.our_nodes(model)
    if not ours:
        return
    for node in {node.domain: node for node in reversed(ours)}.values():
        yield from _import(model, node)
    for node in ours if not with_plugin else ():
        if (node.domain, node.op_type) not in functions:
            yield Problem(
                "plugin-not-registered",
                "without the plugin the model should hold a function for each of our nodes",
                f"{_label(node)} and no such function",
                "Register the plugin with myops.ort.session, or export with mode='portable'",
            )
    types = onnx_model.element_types(model)
    for node in ours:
        yield from _node(node, types)


def _load(model: str | os.PathLike[str] | bytes) -> ModelProto:
    if isinstance(model, bytes):
        try:
            return onnx.load_from_string(model)
        except Exception as error:
            raise ModelError(
                WHERE,
                "the bytes should be a whole ONNX model",
                f"{len(model)} bytes: {' '.join(str(error).split())}",
                "Export or copy it again",
            ) from error
    return onnx_model.load(model, weights=False)


def has_nodes(model: str | os.PathLike[str] | bytes, domain: str) -> bool:
    """Whether the model, a path or bytes, holds a node of the domain, which is one of ours."""
    return any(node.domain == domain for node in onnx_model.our_nodes(_load(model)))


def check_model(model: str | os.PathLike[str] | bytes, with_plugin: bool = True) -> None:
    """Raises ``ModelError`` for the first of the ``problems``.

    Args:
        model: path or bytes of an .onnx file.
        with_plugin: see ``problems``.
    """
    for problem in problems(_load(model), with_plugin):
        raise ModelError(WHERE, problem.rule, problem.received, problem.remedy)
