# SPDX-License-Identifier: Apache-2.0
"""What the matcher finds, and what it knows of ONNX's nodes."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import onnx
from onnx import NodeProto, helper

from myops.spellings import ABSENT_ATTRIBUTES

DEFAULT_DOMAINS = ("", "ai.onnx")


@dataclass(frozen=True)
class Match:
    """What a pattern stands for in a scope.

    Attributes:
        leaves: input of the operator -> tensor.
        parameters: attribute -> value.
        results: second result of the operator -> tensor.
        nodes: indices of the nodes it covers.
        casts: those of them that cast between its nodes.
        rank: the highest rank of its constants.
        obstacles: why it must not be replaced; empty unless lenient.
    """

    leaves: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, float] = field(default_factory=dict)
    results: Mapping[str, str] = field(default_factory=dict)
    nodes: frozenset[int] = frozenset()
    casts: frozenset[int] = frozenset()
    rank: int = 0
    obstacles: tuple[str, ...] = ()

    def with_node(self, index: int) -> Match:
        return replace(self, nodes=self.nodes | {index})

    def with_cast(self, index: int) -> Match:
        return replace(self, nodes=self.nodes | {index}, casts=self.casts | {index})

    def with_obstacle(self, text: str) -> Match:
        return replace(self, obstacles=tuple(dict.fromkeys((*self.obstacles, text))))


def is_op(node: NodeProto, *op_types: str) -> bool:
    """Whether a node is one of these standard operators."""
    return node.domain in DEFAULT_DOMAINS and node.op_type in op_types


@functools.lru_cache(maxsize=4096)
def defaults(op_type: str, domain: str, opset: int) -> dict[str, Any]:
    """Attributes that a node has where it does not name them."""
    found: dict[str, Any] = dict(ABSENT_ATTRIBUTES.get((domain, op_type), {}))
    try:
        schema = onnx.defs.get_schema(op_type, opset, domain)
    except Exception:  # onnx has an exception of its own that older versions do not export
        return found
    for name, attribute in schema.attributes.items():
        if attribute.default_value.type:
            found[name] = plain(attribute.default_value)
    return found


def plain(attribute: onnx.AttributeProto) -> Any:
    """An attribute as Python has it, texts as str."""
    value = helper.get_attribute_value(attribute)
    return value.decode() if isinstance(value, bytes) else value
