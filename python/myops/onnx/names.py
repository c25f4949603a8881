# SPDX-License-Identifier: Apache-2.0
"""Names for nodes that have none: what ONNX Runtime reports of them cannot be told apart."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from myops._errors import ModelError
from myops.onnx import model as onnx_model


def name_nodes(model: ModelProto) -> int:
    """Gives every unnamed node, those of inner graphs and functions included, a name made of its
    operator and first output. Names stay unique in the model.

    Returns:
        How many got one.
    """
    every: list[NodeProto] = list(onnx_model.nodes(model.graph))
    for function in model.functions:
        every += onnx_model.nodes(function)
    taken = {node.name for node in every}
    unnamed = [node for node in every if not node.name]
    for node in unnamed:
        output = next((name for name in node.output if name), "")
        base = name = f"{node.op_type}_{output}" if output else node.op_type
        number = 1
        while name in taken:
            number += 1
            name = f"{base}_{number}"
        taken.add(name)
        node.name = name
    return len(unnamed)


def _tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t


def has_external_data(model: ModelProto) -> bool:
    """Whether a tensor's data is in another file."""
    return any(
        tensor.data_location == TensorProto.EXTERNAL
        for graph in onnx_model.graphs(model.graph)
        for tensor in _tensors(graph)
    )


@contextlib.contextmanager
def named(model: str | os.PathLike[str]) -> Iterator[tuple[Path, ModelProto, int]]:
    """The model with all nodes named, in a temporary copy where that takes one.

    The copy of a model with external data stands beside the model for as long as the block runs,
    because ONNX Runtime looks for the data there and nowhere else; its data is not copied.

    Yields:
        path of the file to load, its protobuf without external data, and how many nodes had no
        name. Where that is 0, the path is the model's own.

    Raises:
        ModelError: the file is not a usable model, or there is no place for the copy.
    """
    path = Path(model)
    proto = onnx_model.load(path, weights=False)
    count = name_nodes(proto)
    if not count:
        yield path, proto, 0
        return
    place = path.resolve().parent if has_external_data(proto) else None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=".onnx", dir=place)
    except OSError as error:
        raise ModelError(
            "myops.onnx",
            f"{count} nodes have no name, and a copy that names them should fit beside the model",
            f"{type(error).__name__}: {error}",
            "Copy the model and its data to a folder you can write to",
        ) from error
    os.close(handle)
    copy = Path(name)
    try:
        onnx.save(proto, name)
        yield copy, proto, count
    finally:
        copy.unlink()
