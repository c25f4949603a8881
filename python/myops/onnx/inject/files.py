# SPDX-License-Identifier: Apache-2.0
"""Files around an injection: external data that has to lie beside a model, a folder to try in,
writing that leaves either the old file or a whole new one."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, TensorProto
from onnx.external_data_helper import uses_external_data

from myops._errors import ModelError
from myops.onnx import model as onnx_model

WHERE = "myops.onnx.inject"


def _tensors_of(container: GraphProto | FunctionProto) -> Iterator[TensorProto]:
    if isinstance(container, GraphProto):
        for graph in onnx_model.graphs(container):
            yield from graph.initializer
            for sparse in graph.sparse_initializer:
                yield sparse.values
                yield sparse.indices
    for node in onnx_model.nodes(container):
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                yield attribute.t
            elif attribute.type == AttributeProto.TENSORS:
                yield from attribute.tensors


def external_tensors(model: ModelProto) -> list[TensorProto]:
    """The tensors whose data lies in other files."""
    containers: list[GraphProto | FunctionProto] = [model.graph, *model.functions]
    return [t for c in containers for t in _tensors_of(c) if uses_external_data(t)]


def _entry(tensor: TensorProto, key: str) -> str:
    return next((entry.value for entry in tensor.external_data if entry.key == key), "")


def locations(model: ModelProto) -> list[str]:
    """The data files of a model, relative to its folder.

    Raises:
        ModelError: one lies outside of the model's folder.
    """
    found = dict.fromkeys(_entry(tensor, "location") for tensor in external_tensors(model))
    for location in found:
        path = PurePosixPath(location)
        if not location or path.is_absolute() or ".." in path.parts:
            raise ModelError(
                WHERE,
                "external data should lie in the model's folder",
                repr(location),
                "Save the model again with its data beside it",
            )
    return list(found)


def point_to(model: ModelProto, names: dict[str, str]) -> None:
    """Changes the locations of external data, in place."""
    for tensor in external_tensors(model):
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = names.get(entry.value, entry.value)


def weights_size(model: ModelProto, base: Path | None) -> int:
    """Bytes of the model and its data files."""
    size = int(model.ByteSize())
    if base is not None:
        for location in locations(model):
            with contextlib.suppress(OSError):
                size += (base / location).stat().st_size
    return size


def lay_beside(source: Path, target: Path) -> None:
    """The same data under another name: a hard link where the file system can, else a copy."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


@contextlib.contextmanager
def workspace(model: ModelProto, base: Path | None, near: Path | None) -> Iterator[Path]:
    """A temporary folder, in which every file of the model's external data can be found.

    Args:
        model: whose data it is.
        base: the folder the data lies in; None if there is none.
        near: a folder on the file system to use; the system's temporary folder if None.
    """
    if near is not None:
        near.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".myops-inject.", dir=near) as name:
        folder = Path(name)
        if base is not None:
            for location in locations(model):
                if not (base / location).is_file():
                    raise ModelError(
                        WHERE,
                        "the model's external data should lie beside it",
                        f"{base / location}, which does not exist",
                        "Copy the data file there",
                    )
                lay_beside(base / location, folder / location)
        yield folder


def _free_name(folder: Path, stem: str, location: str) -> str:
    for number in range(1000):
        name = f"{stem}.{number}.data" if number else f"{stem}.data"
        if not (folder / name).exists():
            return name
    raise ModelError(
        WHERE, f"there should be a free name for {location}", str(folder), "Choose another folder"
    )


def place_data(model: ModelProto, base: Path, output: Path) -> list[Path]:
    """Puts the external data beside a file to be written, and re-points the model, in place, where
    a name is taken by other data. Data that lies there already is shared.

    Returns:
        The files that were made.
    """
    folder = output.parent
    if folder.resolve() == base.resolve():
        return []
    made: list[Path] = []
    names: dict[str, str] = {}
    for location in locations(model):
        source, target = base / location, folder / location
        if target.exists():
            if target.samefile(source):
                continue
            names[location] = _free_name(folder, output.name, location)
            target = folder / names[location]
        lay_beside(source, target)
        made.append(target)
    point_to(model, names)
    return made


def write_bytes(path: Path, data: bytes) -> None:
    """Through a temporary file beside the target."""
    with tempfile.NamedTemporaryFile(
        prefix=f".{path.name}.", dir=path.parent, delete=False
    ) as handle:
        temporary = Path(handle.name)
        try:
            handle.write(data)
            handle.flush()
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _umask() -> int:
    value = os.umask(0)
    os.umask(value)
    return value
