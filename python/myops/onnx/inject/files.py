# SPDX-License-Identifier: Apache-2.0
"""Files around an injection: external data that has to lie beside a model, a folder to try in,
writing that leaves either the old file or a whole new one."""

from __future__ import annotations

import contextlib
import errno
import filecmp
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


def require_data(model: ModelProto, base: Path) -> None:
    """Raises ``ModelError`` where a file of external data is missing."""
    for location in locations(model):
        if not (base / location).is_file():
            raise ModelError(
                WHERE,
                "the model's external data should lie beside it",
                f"{base / location}, which does not exist",
                "Copy the data file there",
            )


def copy_data(source: Path, target: Path) -> None:
    """Copies a file, leaves its holes out, and shares its blocks where the file system can. Links
    would be cheaper, but onnx takes linked data for an attack and does not load it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        _copy_ranges(source, target)
    except OSError:  # a file system that cannot tell holes, or another one
        shutil.copyfile(source, target)


def _copy_ranges(source: Path, target: Path) -> None:
    with source.open("rb") as reader, target.open("wb") as writer:
        size = os.fstat(reader.fileno()).st_size
        writer.truncate(size)
        at = 0
        while at < size:
            try:
                at = os.lseek(reader.fileno(), at, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # a hole up to the end
                    break
                raise
            end = os.lseek(reader.fileno(), at, os.SEEK_HOLE)
            while at < end:
                at += os.copy_file_range(reader.fileno(), writer.fileno(), end - at, at, at)


class Workspace:
    """Temporary files in a folder in which the model's external data lies."""

    def __init__(self, folder: Path, prefix: str) -> None:
        self._folder, self._prefix = folder, prefix
        self._made: list[Path] = []

    def write(self, name: str, model: ModelProto) -> Path:
        """Writes a model under a name of its own."""
        path = self._folder / f".{self._prefix}.{name}"
        self._made.append(path)
        path.write_bytes(model.SerializeToString())
        return path

    def clean(self) -> None:
        for path in self._made:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def workspace(model: ModelProto, base: Path | None, output: Path | None) -> Iterator[Workspace]:
    """A place for trials.

    Args:
        model: what is tried.
        base: the folder of its external data; None if there is none to be read.
        output: the file that will be written, in the folder of the data; None if there will be
            none. Then the place is the system's temporary folder, with a copy of the data.
    """
    if output is not None:
        space = Workspace(output.parent, f"{output.name}.{os.getpid()}")
        try:
            yield space
        finally:
            space.clean()
        return
    with tempfile.TemporaryDirectory(prefix="myops-inject.") as name:
        if base is not None:
            for location in locations(model):
                copy_data(base / location, Path(name) / location)
        yield Workspace(Path(name), "trial")


def _place(source: Path, folder: Path, location: str, stem: str) -> tuple[str, Path | None]:
    """Lays a data file into a folder: under which name, and the file if it was made."""
    names = [location, f"{stem}.data", *(f"{stem}.{number}.data" for number in range(1, 100))]
    for name in names:
        target = folder / name
        if not target.exists():
            copy_data(source, target)
            return name, target
        if target.samefile(source) or filecmp.cmp(source, target, shallow=False):
            return name, None
    raise ModelError(
        WHERE, f"there should be a free name for {location}", str(folder), "Choose another folder"
    )


@contextlib.contextmanager
def placed_data(model: ModelProto, base: Path, output: Path) -> Iterator[None]:
    """Lays the external data beside a file to be written, and re-points the model, in place, where
    a name is taken by other data. Takes it away again when the block ends with an error."""
    made: list[Path] = []
    try:
        if output.parent.resolve() != base.resolve():
            names: dict[str, str] = {}
            for location in locations(model):
                name, path = _place(base / location, output.parent, location, output.name)
                names[location] = name
                made += [path] if path is not None else []
            point_to(model, names)
        yield
    except BaseException:
        for path in made:
            path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # folders that hold something else stay
                while path.parent != output.parent:
                    path = path.parent
                    path.rmdir()
        raise


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
