# SPDX-License-Identifier: Apache-2.0
"""What a bundle says of itself: its files with their checksums, the model's signature, versions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, ValueInfoProto, helper

from myops.onnx import model as onnx_model
from myops.onnx.inputs import required
from myops.verify.golden_file import sha256

MANIFEST = "manifest.json"
FORMAT = 1  # target/check.py reads this one

_ZEROS = "0" * 64


def signature(value: ValueInfoProto) -> dict[str, Any]:
    """Name, dtype and dims of an input or output; dims are numbers, names, or None where unnamed,
    and None as a whole for an unknown rank."""
    element_type = value.type.tensor_type.elem_type
    known = element_type not in (TensorProto.UNDEFINED, TensorProto.STRING)
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(element_type)).name if known else "object"
    return {"name": value.name, "dtype": dtype, "dims": onnx_model.dims(value)}


def about_model(model: ModelProto, path: str, portable: bool) -> dict[str, Any]:
    """What a user of the bundle wants to know of the model: ``path`` in the bundle, whether it is
    ``portable``, that is, right without the plugin, too, and what stands in the file."""
    operators: dict[str, int] = {}
    for node in onnx_model.our_nodes(model):
        operators[node.op_type] = operators.get(node.op_type, 0) + 1
    return {
        "path": path,
        "ir_version": model.ir_version,
        "opsets": {entry.domain or "ai.onnx": entry.version for entry in model.opset_import},
        "operators": operators,
        "portable": portable,
        "inputs": [signature(value) for value in required(model)],
        "outputs": [signature(value) for value in model.graph.output],
    }


def write(folder: Path, about: Mapping[str, Any]) -> dict[str, Any]:
    """Writes the manifest of a folder that holds everything else already.

    The last entry is the SHA-256 of the manifest with zeros in the place of that number.

    Returns:
        What was written.
    """
    files = [
        {
            "path": path.relative_to(folder).as_posix(),
            "size": path.stat().st_size,
            "sha256": sha256(path),
        }
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]
    content = {"format": FORMAT, **about, "files": files, "manifest_sha256": _ZEROS}
    text = json.dumps(content, indent=1) + "\n"
    number = hashlib.sha256(text.encode()).hexdigest()
    head, _, tail = text.rpartition(_ZEROS)
    (folder / MANIFEST).write_text(head + number + tail, "utf-8")
    return {**content, "manifest_sha256": number}
