# SPDX-License-Identifier: Apache-2.0
"""Reading, walking and writing ONNX protobufs."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    StringStringEntryProto,
    TensorProto,
)

from myops._errors import ModelError
from myops.spec import SPECS

DTYPES: dict[int, str] = {
    TensorProto.FLOAT: "float32",
    TensorProto.DOUBLE: "float64",
    TensorProto.FLOAT16: "float16",
    TensorProto.BFLOAT16: "bfloat16",
}
"""ONNX element types the operators take, with numpy's names."""

# Protobuf cannot serialise more than 2 GiB; above this the weights go into a file of their own.
_SINGLE_FILE_LIMIT = 1_500_000_000


def load(path: str | os.PathLike[str], *, weights: bool = True) -> ModelProto:
    """Reads a model.

    Raises:
        ModelError: the file is missing or not an ONNX model, or its external data is missing.
    """
    path = Path(path)
    if not path.is_file():
        raise ModelError("myops.onnx", "the model file should exist", str(path), "Check the path")
    try:
        model = onnx.load(str(path), load_external_data=weights)
    except Exception as error:  # protobuf and onnx raise many kinds
        raise ModelError(
            "myops.onnx",
            "the file should be a whole ONNX model",
            f"{path}: {type(error).__name__}: {' '.join(str(error).split())}",
            "Export or copy it again, with its external data beside it",
        ) from error
    if not model.HasField("graph"):
        raise ModelError(
            "myops.onnx",
            "the file should be an ONNX model",
            f"{path}, which holds no graph",
            "Name an .onnx file",
        )
    return model


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs in a node's attributes (If, Loop, Scan)."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from attribute.graphs


def graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """``graph`` and every graph inside it."""
    yield graph
    for node in graph.node:
        for inner in subgraphs(node):
            yield from graphs(inner)


def nodes(container: GraphProto | FunctionProto) -> Iterator[NodeProto]:
    """Every node, those of inner graphs included."""
    for node in container.node:
        yield node
        for inner in subgraphs(node):
            yield from nodes(inner)


def messages(message: Any) -> Iterator[Any]:
    """A protobuf message and every message inside it, wherever it is."""
    yield message
    for field, value in message.ListFields():
        if hasattr(value, "ListFields"):
            yield from messages(value)
        elif field.message_type is not None:
            for inner in value:
                yield from messages(inner)


def external_locations(model: ModelProto) -> list[StringStringEntryProto]:
    """The entries that name the files in which the data of tensors lies, one per tensor. Names are
    relative to the model's folder."""
    return [
        entry
        for tensor in messages(model)
        if isinstance(tensor, TensorProto) and tensor.data_location == TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    ]


def our_nodes(model: ModelProto) -> list[NodeProto]:
    """The nodes of our domains in the main graph, its inner graphs and other functions."""
    domains = SPECS.namespaces()
    found = [node for node in nodes(model.graph) if node.domain in domains]
    for function in model.functions:
        if function.domain not in domains:
            found += [node for node in nodes(function) if node.domain in domains]
    return found


def opset(model: ModelProto, domain: str = "") -> int | None:
    """The version at which the model imports ``domain``."""
    names = ("", "ai.onnx") if domain == "" else (domain,)
    for entry in model.opset_import:
        if entry.domain in names:
            version: int = entry.version
            return version
    return None


def without_weights(model: ModelProto) -> ModelProto:
    """A copy whose large initializers hold no data: enough for types and shapes."""
    small = ModelProto()
    small.CopyFrom(model)
    for graph in graphs(small.graph):
        for tensor in graph.initializer:
            if np.prod(list(tensor.dims), initial=1) > 1024:
                tensor.ClearField("raw_data")
                tensor.ClearField("float_data")
                tensor.ClearField("double_data")
                tensor.ClearField("int32_data")
    return small


def element_types(model: ModelProto) -> dict[str, int]:
    """Element type of every tensor that type inference reaches, inner graphs included."""
    from myops.onnx.functions import add_pass_through_functions

    copy = without_weights(model)
    add_pass_through_functions(copy)
    with contextlib.suppress(onnx.shape_inference.InferenceError):
        copy = onnx.shape_inference.infer_shapes(copy)
    types: dict[str, int] = {}
    for graph in graphs(copy.graph):
        for value in (*graph.input, *graph.value_info, *graph.output):
            if value.type.HasField("tensor_type"):
                types[value.name] = value.type.tensor_type.elem_type
        for tensor in graph.initializer:
            types[tensor.name] = tensor.data_type
    return types


def dims(value: onnx.ValueInfoProto) -> list[int | str | None] | None:
    """The dims of a tensor: a number, a name, or None where unnamed; None for an unknown rank."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return [
        dim.dim_value if dim.HasField("dim_value") else (dim.dim_param or None)
        for dim in tensor.shape.dim
    ]


@contextlib.contextmanager
def staged(path: Path) -> Iterator[Path]:
    """A temporary folder beside ``path``. What the block leaves there is moved over when it ends
    without an error: other files first, the one named like ``path`` last."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        yield Path(folder)
        files = sorted(Path(folder).iterdir(), key=lambda file: file.name == path.name)
        for file in files:
            file.replace(path.parent / file.name)


def fits_one_message(model: ModelProto) -> bool:
    """Whether the model may be serialised with its weights inside."""
    return bool(model.ByteSize() < _SINGLE_FILE_LIMIT)


def write(model: ModelProto, folder: Path, name: str) -> Path:
    """Writes ``name`` into ``folder``, with the weights in ``name.data`` where they are too big."""
    target = folder / name
    if fits_one_message(model):
        onnx.save(model, str(target))
    else:
        onnx.save(
            model,
            str(target),
            save_as_external_data=True,
            all_tensors_to_one_file=True,
            location=f"{name}.data",
        )
    return target
