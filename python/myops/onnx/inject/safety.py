# SPDX-License-Identifier: Apache-2.0
"""May a match be replaced? Each check gives the obstacle in words, or nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from myops.onnx import model as onnx_model
from myops.onnx.inject import native, shapes
from myops.onnx.inject.graph import Scope, label
from myops.onnx.inject.match import Match
from myops.onnx.inject.matcher import Matcher
from myops.spec import OpSpec

HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)


@dataclass(frozen=True)
class Site:
    """What is cut out of a scope.

    Attributes:
        nodes: indices of the nodes.
        inputs: tensors in the order of the operator's inputs.
        outputs: tensors in the order of the operator's outputs.
        element_type: of all of them.
        last: index of the node that makes the first output.
    """

    nodes: frozenset[int]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    element_type: int
    last: int


@dataclass(frozen=True)
class Verdict:
    """The fields of a candidate that follow from its match, see there."""

    plain: Site
    island: Site | None
    numeric: bool
    refused: str
    refused_for: Mapping[str, str]


def _name(element_type: int) -> str:
    if not element_type:
        return "unknown"
    name: str = TensorProto.DataType.Name(element_type).lower()
    return onnx_model.DTYPES.get(element_type, name)


def _plain_site(scope: Scope, spec: OpSpec, match: Match, index: int) -> tuple[Site, str]:
    output = scope.nodes[index].output[0]
    kind = scope.type_of(output)
    inputs = []
    problem = ""
    for name in spec.inputs:
        tensor = match.leaves[name]
        if kind and scope.type_of(tensor) != kind:
            before = _before_cast(scope, tensor)
            if before is not None and scope.type_of(before) == kind:
                tensor = before
            else:
                problem = (
                    f"mixed element types: {_name(scope.type_of(tensor))} in, {_name(kind)} out"
                )
        inputs.append(tensor)
    outputs = (output, *(match.results[name] for name in spec.outputs[1:]))
    return Site(match.nodes, tuple(inputs), outputs, kind, index), problem


def _before_cast(scope: Scope, tensor: str) -> str | None:
    node = scope.producer(tensor)
    if node is None or node.op_type != "Cast":
        return None
    name: str = node.input[0]
    return name


def _island(scope: Scope, site: Site) -> Site | None:
    """The site with the casts from and to one half type around it."""
    if site.element_type != TensorProto.FLOAT or len(site.outputs) > 1:
        return None
    output = site.outputs[0]
    readers = scope.readers.get(output, [])
    if len(readers) != 1 or output in scope.outputs or output in scope.captured:
        return None
    cast = scope.nodes[readers[0]]
    half = scope.type_of(cast.output[0]) if cast.op_type == "Cast" else 0
    if half not in HALVES:
        return None
    before = [_before_cast(scope, tensor) for tensor in site.inputs]
    if any(name is None or scope.type_of(name) != half for name in before):
        return None
    inputs = tuple(name for name in before if name is not None)
    nodes = site.nodes | {readers[0]}
    return Site(nodes, inputs, (cast.output[0],), half, readers[0])


def _exposed(scope: Scope, nodes: frozenset[int], outputs: Sequence[str]) -> Iterator[str]:
    """Inner tensors that something else needs."""
    what = "graph" if not scope.path.startswith("function") else "function"
    for index in sorted(nodes):
        for tensor in filter(None, scope.nodes[index].output):
            if tensor in outputs:
                continue
            if tensor in scope.outputs:
                yield f"inner tensor {tensor!r} is an output of the {what}"
            for reader in scope.readers.get(tensor, []):
                if reader not in nodes:
                    yield (
                        f"inner tensor {tensor!r} is also read by node "
                        f"{label(scope.nodes[reader])!r}"
                    )
            for reader in scope.captured.get(tensor, []):
                yield (
                    f"inner tensor {tensor!r} is captured by the graph inside node "
                    f"{label(scope.nodes[reader])!r}"
                )


def _shape_problem(scope: Scope, spec: OpSpec, match: Match, site: Site) -> str:
    x = site.inputs[0]
    dims = scope.dims_of(x)
    known = shapes.rank(scope, x)
    if match.rank > (known or 0):
        what = "unknown rank" if known is None else f"rank {known}"
        return f"the shape may change: a constant of rank {match.rank} meets a tensor of {what}"
    for name, tensor in zip(spec.inputs[1:], site.inputs[1:], strict=True):
        other = scope.dims_of(tensor)
        if spec.kind == "norm" and name == spec.inputs[-1]:
            row = None if dims is None or not dims else dims[-1]
            if other is None or len(other) != 1 or row is None or other[0] != row:
                return (
                    f"{name} of shape {shapes.text(other)} is not provably as long as a row of "
                    f"{shapes.text(dims)}"
                )
        elif spec.broadcasts:
            if other is None or dims is None or not shapes.broadcasts(other, dims):
                kind = "per-channel coefficient" if name == "beta" else name
                return (
                    f"{kind} of shape {shapes.text(other)} may change the shape {shapes.text(dims)}"
                )
        elif not shapes.same(scope, x, tensor):
            return (
                f"the shape may change: {name} is {shapes.text(other)}, "
                f"{spec.inputs[0]} is {shapes.text(dims)}"
            )
    return ""


def _attribute_problem(spec: OpSpec, match: Match) -> str:
    lowest = {attribute.name: attribute.lowest for attribute in spec.attributes}
    for name, value in match.parameters.items():
        with np.errstate(over="ignore"):
            if not math.isfinite(np.float32(value)):
                return f"{name} is {value}, which is no finite float32"
        if value < lowest[name]:
            return f"{name} is {value}, which is below {lowest[name]:g}"
    return ""


def _layer_norm(scope: Scope, spec: OpSpec, site: Site) -> str:
    """A mean that was taken off before: ONNX Runtime fuses the whole LayerNormalization."""
    node = scope.producer(site.inputs[0])
    if spec.kind != "norm" or node is None or node.op_type != "Sub":
        return ""
    mean = scope.producer(node.input[1])
    if mean is None or mean.op_type != "ReduceMean":
        return ""
    return "it is part of a LayerNormalization, which ONNX Runtime fuses as a whole"


def _overridable_input(matcher: Matcher, site: Site, spec: OpSpec) -> str:
    for name, tensor in zip(spec.inputs[1:], site.inputs[1:], strict=True):
        found = matcher.constant(tensor)
        # A weight is an input of ours as it was one before; a coefficient was meant to be fixed.
        if found is not None and found.overridable and spec.kind != "norm":
            return f"a caller may override the initializer {tensor!r}, which is the {name}"
    return ""


def _order_problem(scope: Scope, site: Site) -> str:
    """One node for all results has to stand behind every input and before every reader."""
    if len(site.outputs) == 1:
        return ""
    ready = max((scope.producers.get(name, -1) for name in site.inputs), default=-1)
    readers = [
        reader
        for name in site.outputs
        for reader in (*scope.readers.get(name, ()), *scope.captured.get(name, ()))
        if reader not in site.nodes
    ]
    if readers and min(readers) <= ready:
        return f"node {label(scope.nodes[min(readers)])!r} reads a result before all inputs exist"
    return ""


def changes_halves(scope: Scope, match: Match, site: Site) -> bool:
    """Whether intermediate values are rounded to a half type, which one node does not do."""
    for index in match.casts:
        if index < 0:
            return True
        cast = scope.nodes[index]
        if scope.type_of(cast.input[0]) != scope.type_of(cast.output[0]):
            return True
    return site.element_type in HALVES and len(site.nodes) > 1


def _inexact(match: Match, kind: int) -> str:
    """An attribute that float64 would notice to be float32."""
    if kind == TensorProto.DOUBLE:
        for name, value in match.parameters.items():
            if float(np.float32(value)) != value:
                return name
    return ""


def judge(
    scope: Scope, matcher: Matcher, spec: OpSpec, match: Match, index: int, allow: bool
) -> Verdict:
    """How to replace a match, and why not: for any target, and by target."""
    plain, problem = _plain_site(scope, spec, match, index)
    island = _island(scope, plain)
    kind = plain.element_type
    numeric = changes_halves(scope, match, plain)
    reasons = [*match.obstacles]
    if not reasons:
        if kind not in onnx_model.DTYPES:
            reasons.append(f"the element type is {_name(kind)}")
        reasons += [problem] if problem and kind else []
        reasons += _exposed(scope, plain.nodes, plain.outputs)
        reasons += filter(
            None,
            (
                _layer_norm(scope, spec, plain),
                _overridable_input(matcher, plain, spec),
                _shape_problem(scope, spec, match, plain),
                _attribute_problem(spec, match),
                _order_problem(scope, plain),
            ),
        )
        if numeric and not allow and not reasons:
            half = _name(kind) if kind in HALVES else "half-precision"
            reasons.append(
                f"{half} results would change: an intermediate value is rounded to a half type "
                "(--allow-numeric-change)"
            )
    by_target: dict[str, str] = {}
    inexact = _inexact(match, kind)
    if not reasons:
        if inexact and not allow:
            by_target["custom"] = (
                f"{inexact} = {match.parameters[inexact]!r} is no float32, in which ONNX keeps "
                "attributes (--allow-numeric-change)"
            )
        why = native.obstacle(scope, matcher, spec, match, plain)
        if why:
            by_target["native"] = why
    return Verdict(plain, island, numeric or bool(inexact), "; ".join(reasons), by_target)
