# SPDX-License-Identifier: Apache-2.0
"""Puts the chosen replacements into a copy of the model. Everything else stays as it is: names,
order, metadata, annotations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, helper

from myops.onnx import functions
from myops.onnx import model as onnx_model
from myops.onnx.inject import native
from myops.onnx.inject.candidates import CUSTOM, Candidate
from myops.onnx.inject.graph import Scope
from myops.spec import DOMAIN_VERSION, SPECS, OpSpec

# What only prepares a value: without a reader it is dead.
_PREPARES = ("Constant", "Identity", "Cast", "DequantizeLinear")


def _containers(graph: GraphProto | FunctionProto) -> Iterator[GraphProto | FunctionProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            inner = [attribute.g] if attribute.HasField("g") else list(attribute.graphs)
            for below in inner:
                yield from _containers(below)


def containers(model: ModelProto) -> list[GraphProto | FunctionProto]:
    """The graphs and functions of a model in the order of ``graph.scopes``."""
    found = list(_containers(model.graph))
    domains = SPECS.namespaces()
    for function in model.functions:
        if function.domain not in domains:
            found += _containers(function)
    return found


def _prefix(scope: Scope, output: str) -> str:
    """Of names that the scope and those around it do not have yet."""
    taken: set[str] = set()
    at: Scope | None = scope
    while at is not None:
        taken |= at.producers.keys() | at.inputs | at.initializers.keys() | at.captured.keys()
        at = at.parent
    prefix = f"{output}/"
    while any(name.startswith(prefix) for name in taken):
        prefix += "myops/"
    return prefix


def custom_node(
    spec: OpSpec,
    inputs: Sequence[str],
    outputs: Sequence[str],
    parameters: Mapping[str, float],
    name: str,
) -> NodeProto:
    """Our node, with all attributes written."""
    node: NodeProto = helper.make_node(spec.name, inputs, outputs, name=name, domain=spec.namespace)
    for attribute in spec.attributes:
        value = float(parameters.get(attribute.name, attribute.default))
        node.attribute.append(helper.make_attribute(attribute.name, value))
    return node


def replacement(candidate: Candidate) -> list[NodeProto]:
    """The nodes of a candidate's choice. The last takes over the name and the documentation of the
    node that made the result before."""
    scope, spec = candidate.scope, candidate.spec
    site = candidate.site(candidate.choice)
    before = scope.nodes[site.last]
    name = before.name or f"{spec.namespace}_{spec.name}_{site.outputs[0]}"
    parameters = candidate.match.parameters
    if candidate.choice == CUSTOM:
        made = [custom_node(spec, site.inputs, site.outputs, parameters, name)]
    else:
        prefix = _prefix(scope, site.outputs[0])
        made = native.nodes(
            spec,
            scope.opset,
            site.element_type,
            site.inputs,
            site.outputs,
            parameters,
            prefix,
        )
        for node in made:
            if site.outputs[0] in node.output:
                node.name = name
    made[-1].doc_string = before.doc_string
    if hasattr(before, "metadata_props"):
        made[-1].metadata_props.extend(before.metadata_props)
    return made


def _position(candidate: Candidate) -> int:
    """Where the replacement stands: before the node at this index of the old list."""
    site, scope = candidate.site(candidate.choice), candidate.scope
    readers: list[int] = [
        reader
        for name in site.outputs[1:]
        for reader in (*scope.readers.get(name, ()), *scope.captured.get(name, ()))
        if reader not in site.nodes
    ]
    return min([site.last, *readers])


def _names_read(container: GraphProto | FunctionProto) -> set[str]:
    found = {name for node in onnx_model.nodes(container) for name in node.input}
    for inner in _containers(container):
        if isinstance(inner, GraphProto):
            found |= {value.name for value in inner.output}
        else:
            found |= set(inner.output)
    return found


def _without(container: GraphProto | FunctionProto, field: str, dead: set[str]) -> None:
    entries = getattr(container, field, None)
    if entries is None:
        return
    for i in reversed(range(len(entries))):
        entry = entries[i]
        if getattr(entry, "name", None) in dead or getattr(entry, "tensor_name", None) in dead:
            del entries[i]


def _drop_dead(container: GraphProto | FunctionProto, loose: set[str]) -> set[str]:
    """Removes what only prepared values for removed nodes; returns the tensors that went."""
    gone: set[str] = set()
    while True:
        read = _names_read(container)
        dead = [
            i
            for i, node in enumerate(container.node)
            if node.op_type in _PREPARES
            and set(node.output) <= loose
            and not set(node.output) & read
        ]
        if not dead:
            break
        for i in reversed(dead):
            gone |= set(container.node[i].output)
            loose |= set(container.node[i].input)
            del container.node[i]
    if isinstance(container, GraphProto):
        unread = loose - _names_read(container) - {value.name for value in container.input}
        _without(container, "initializer", unread)
        gone |= unread
    return gone


def _edit(container: GraphProto | FunctionProto, candidates: Sequence[Candidate]) -> None:
    added: dict[int, list[NodeProto]] = {}
    removed: set[int] = set()
    for candidate in candidates:
        removed |= candidate.site(candidate.choice).nodes
        added.setdefault(_position(candidate), []).extend(replacement(candidate))
    kept: list[NodeProto] = []
    gone: set[str] = set()
    loose: set[str] = set()
    for i, node in enumerate(container.node):
        kept += added.get(i, [])
        if i in removed:
            gone |= set(node.output)
            loose |= set(node.input)
        else:
            kept.append(node)
    del container.node[:]
    container.node.extend(kept)
    gone -= {name for made in added.values() for node in made for name in node.output}
    gone |= _drop_dead(container, loose - {""})
    for name in ("value_info", "quantization_annotation"):
        _without(container, name, gone)


def _import(imports: Any, domain: str) -> None:
    if not any(entry.domain == domain for entry in imports):
        imports.append(helper.make_opsetid(domain, DOMAIN_VERSION))


def _add_functions(
    model: ModelProto, model_scopes: Sequence[Scope], chosen: Sequence[Candidate]
) -> None:
    """A function for each operator, for the element types of new nodes and of those that were
    there."""
    specs: dict[tuple[str, str], OpSpec] = {}
    found: dict[tuple[str, str], set[int]] = {}
    for candidate in chosen:
        key = (candidate.spec.namespace, candidate.spec.name)
        specs[key] = candidate.spec
        found.setdefault(key, set()).add(candidate.site(CUSTOM).element_type)
    for scope in model_scopes:
        for node in scope.nodes:
            if (node.domain, node.op_type) in found:
                found[node.domain, node.op_type].add(scope.type_of(node.input[0]))
    opset = onnx_model.opset(model) or 1
    for key, kinds in found.items():
        made = functions.function_proto(specs[key], sorted(kinds - {0}), opset)
        for i, function in enumerate(model.functions):
            if (function.domain, function.name) == key:
                model.functions[i].CopyFrom(made)
                break
        else:
            model.functions.append(made)


def rewrite(
    model: ModelProto, model_scopes: Sequence[Scope], candidates: Sequence[Candidate]
) -> ModelProto:
    """A copy of the model with every candidate's choice in place.

    Args:
        model: stays as it is.
        model_scopes: of the model.
        candidates: of the model; those without a choice are left alone.
    """
    copy = ModelProto()
    copy.CopyFrom(model)
    chosen = [c for c in candidates if c.choice]
    numbers = {id(scope): i for i, scope in enumerate(model_scopes)}
    by_scope: dict[int, list[Candidate]] = {}
    for candidate in chosen:
        by_scope.setdefault(numbers[id(candidate.scope)], []).append(candidate)
    places = containers(copy)
    # Inner graphs come after those around them: an outer edit copies what the inner one made.
    for number in sorted(by_scope, reverse=True):
        _edit(places[number], by_scope[number])
    custom = [c for c in chosen if c.choice == CUSTOM]
    if custom:
        for candidate in custom:
            domain = candidate.spec.namespace
            _import(copy.opset_import, domain)
            outer = candidate.scope
            while outer.parent is not None:
                outer = outer.parent
            if isinstance(outer.proto, FunctionProto):
                for function in copy.functions:
                    if (function.domain, function.name) == (outer.proto.domain, outer.proto.name):
                        _import(function.opset_import, domain)
        _add_functions(copy, model_scopes, custom)
    return copy
