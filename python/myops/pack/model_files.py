# SPDX-License-Identifier: Apache-2.0
"""A model and its weights, copied into a folder of their own: names made the same for every model,
external data pointed to its new place, and no path of the machine they come from."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

from onnx import ModelProto

from myops._errors import ModelError
from myops.onnx import model as onnx_model
from myops.pack.place import WHERE, copy

MODEL = "model.onnx"
"""The name that NVIDIA Triton expects, too."""

# Exporters note the source lines a node comes from.
_ABSOLUTE = re.compile(r"(?:^|[\s\"'(=,:\[])(?:/[\w.+@~-]+){2,}|\b[A-Za-z]:\\")


def _data_file(source: Path, location: str) -> Path:
    place = PurePosixPath(location)
    # A foreign model is not to name just any file of this machine.
    if place.is_absolute() or ".." in place.parts or not place.parts:
        raise ModelError(
            WHERE,
            "a model's external data should lie in its folder or below",
            f"{source} with data in {location!r}",
            "Save the model again with onnx.save_model(..., location=...)",
        )
    path = source.parent / place
    if not path.is_file():
        raise ModelError(
            WHERE,
            "a model's external data should lie beside it",
            f"{source}, but no file {path}",
            "Copy it there, or export the model again",
        )
    return path


def remove_paths(model: ModelProto) -> int:
    """Removes doc strings and metadata that hold absolute paths, and counts them."""
    count = 0
    for message in onnx_model.messages(model):
        if _ABSOLUTE.search(getattr(message, "doc_string", "")):
            message.doc_string = ""
            count += 1
        notes: Any = getattr(message, "metadata_props", ())
        for index in reversed(range(len(notes))):
            if _ABSOLUTE.search(notes[index].value):
                del notes[index]
                count += 1
    return count


def copy_model(source: Path, folder: Path) -> tuple[ModelProto, int]:
    """Copies a model as ``model.onnx``, and its external data as ``model.onnx.data``.

    Data is copied as a stream, never read whole. The file's bytes stay the same where nothing in
    them has to change.

    Returns:
        The model as copied, without external data, and how many notes with paths were left out.

    Raises:
        ModelError: it is no model, or its external data is missing or lies elsewhere.
    """
    model = onnx_model.load(source, weights=False)
    names: dict[str, str] = {}
    for entry in onnx_model.external_locations(model):
        if entry.value not in names:
            suffix = f".{len(names)}" if names else ""
            names[entry.value] = f"{MODEL}.data{suffix}"
            copy(_data_file(source, entry.value), folder / names[entry.value])
        entry.value = names[entry.value]
    removed = remove_paths(model)
    if removed or any(old != new for old, new in names.items()):
        (folder / MODEL).write_bytes(model.SerializeToString())
    else:
        copy(source, folder / MODEL)
    return model, removed
