# SPDX-License-Identifier: Apache-2.0
"""Compares a model's ``myops`` nodes with what the plugin offers, before ONNX Runtime sees them:
its own messages name neither the reason nor the remedy."""

from __future__ import annotations

import difflib
import os
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
        spec.name: {"inputs": spec.inputs, "attributes": spec.defaults()}
        for spec in SPECS
        if spec.namespace == domain
    }


def _label(node: NodeProto) -> str:
    return f"{node.domain}::{node.op_type} (node {node.name or node.output[0]!r})"


def _check_domain_spelling(model: ModelProto, functions: set[tuple[str, str]]) -> None:
    for node in onnx_model.nodes(model.graph):
        if node.domain in SPECS.namespaces() or (node.domain, node.op_type) in functions:
            continue
        close = difflib.get_close_matches(node.domain.lower(), [DOMAIN], cutoff=0.75)
        known_op = node.op_type in _OFFERED
        if node.domain.lower() == DOMAIN or (close and known_op):
            raise ModelError(
                WHERE,
                f"the domain of our operators is {DOMAIN!r}, in this case",
                _label(node),
                f"Write the node and the import with domain {DOMAIN!r}",
            )


def _check_import(model: ModelProto, node: NodeProto) -> None:
    domain = node.domain
    versions = [entry.version for entry in model.opset_import if entry.domain == domain]
    if versions != [DOMAIN_VERSION]:
        raise ModelError(
            WHERE,
            f"the model should import domain {domain!r} once, at version {DOMAIN_VERSION}",
            f"{len(versions)} imports (versions {versions}) and node {_label(node)}",
            f"Add opset_import(domain={domain!r}, version={DOMAIN_VERSION})",
        )


def _check_node(node: NodeProto, types: dict[str, int]) -> None:
    known = _offered(node.domain)
    offered = known.get(node.op_type)
    if offered is None:
        lower = {name.lower(): name for name in known}
        close = difflib.get_close_matches(node.op_type.lower(), lower, n=1)
        hint = f"Did you mean {lower[close[0]]}? Correct the name" if close else "Correct the name"
        raise ModelError(WHERE, f"the plugin offers {', '.join(known)}", _label(node), hint)
    if len(node.input) != len(offered["inputs"]):
        raise ModelError(
            WHERE,
            f"{node.op_type} takes {len(offered['inputs'])} inputs",
            f"{len(node.input)} at {_label(node)}",
            "Correct the node",
        )
    for attribute in node.attribute:
        if attribute.name not in offered["attributes"]:
            raise ModelError(
                WHERE,
                f"the attributes of {node.op_type} are {', '.join(offered['attributes'])}",
                f"{attribute.name!r} at {_label(node)}",
                "Correct the attribute's name",
            )
        if attribute.type != onnx.AttributeProto.FLOAT:
            kind = onnx.AttributeProto.AttributeType.Name(attribute.type)
            raise ModelError(
                WHERE,
                f"attribute {attribute.name} of {node.op_type} should be a float",
                f"{kind} at {_label(node)}",
                "Write it as a float attribute",
            )
    element_type = types.get(node.input[0], 0)
    if element_type and element_type not in onnx_model.DTYPES:
        name = onnx.TensorProto.DataType.Name(element_type).lower()
        raise ModelError(
            WHERE,
            f"{node.op_type} takes {', '.join(_build_info.dtypes)}",
            f"{name} at {_label(node)}",
            "Cast the input to a floating-point type",
        )


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


def has_our_nodes(model: str | os.PathLike[str] | bytes) -> bool:
    """Whether the model, a path or bytes, holds a node of our domain."""
    return bool(onnx_model.our_nodes(_load(model)))


def check_model(model: str | os.PathLike[str] | bytes, with_plugin: bool = True) -> None:
    """Raises ``ModelError`` for the first node that would not load.

    Args:
        model: path or bytes of an .onnx file.
        with_plugin: whether the plugin is registered; without it every ``myops`` node needs a
            model-local function.
    """
    proto = _load(model)
    functions = {(function.domain, function.name) for function in proto.functions}
    _check_domain_spelling(proto, functions)
    ours = onnx_model.our_nodes(proto)
    if not ours:
        return
    for node in {node.domain: node for node in reversed(ours)}.values():
        _check_import(proto, node)
    if not with_plugin:
        for node in ours:
            if (node.domain, node.op_type) not in functions:
                raise ModelError(
                    WHERE,
                    "without the plugin the model should hold a function for each of our nodes",
                    f"{_label(node)} and no such function",
                    "Register the plugin with myops.ort.session, or export with mode='portable'",
                )
    types = onnx_model.element_types(proto)
    for node in ours:
        _check_node(node, types)
