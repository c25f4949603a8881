# SPDX-License-Identifier: Apache-2.0
"""A model repository for NVIDIA Triton Inference Server: its config.pbtxt, with dynamic batching
where the model allows it.

Fields are those of ``inference.ModelConfig`` in Triton's model_config.proto.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, TensorProto, ValueInfoProto

from myops._errors import ModelError, UsageError
from myops.onnx import model as onnx_model
from myops.onnx.inputs import required
from myops.pack.place import WHERE
from myops.verify.compare import Tolerance, compare, is_float

FOLDER = "triton"
VERSION = "1"
MAX_BATCH_SIZE = 32
"""Requests Triton may put together, unless asked for another number."""

Arrays = Mapping[str, npt.NDArray[Any]]

_DTYPES: dict[int, str] = {
    TensorProto.BOOL: "TYPE_BOOL",
    TensorProto.UINT8: "TYPE_UINT8",
    TensorProto.UINT16: "TYPE_UINT16",
    TensorProto.UINT32: "TYPE_UINT32",
    TensorProto.UINT64: "TYPE_UINT64",
    TensorProto.INT8: "TYPE_INT8",
    TensorProto.INT16: "TYPE_INT16",
    TensorProto.INT32: "TYPE_INT32",
    TensorProto.INT64: "TYPE_INT64",
    TensorProto.FLOAT16: "TYPE_FP16",
    TensorProto.FLOAT: "TYPE_FP32",
    TensorProto.DOUBLE: "TYPE_FP64",
    TensorProto.STRING: "TYPE_STRING",
    TensorProto.BFLOAT16: "TYPE_BF16",
}


@dataclass(frozen=True)
class Config:
    """What a config.pbtxt says.

    Attributes:
        name: of the model, and of its folder.
        text: the file's content.
        max_batch_size: 0 where Triton must not put requests together.
        why_no_batching: the reason, empty where it may.
    """

    name: str
    text: str
    max_batch_size: int
    why_no_batching: str


def model_name(source: Path) -> str:
    """The file's stem, with a safe letter in the place of each that URLs and shells mind."""
    return re.sub(r"[^\w.-]", "_", source.stem, flags=re.ASCII)


def check_batch_size(size: int) -> None:
    """Raises ``UsageError`` for a number that is none of requests."""
    if size < 1:
        raise UsageError(WHERE, "max_batch_size should be at least 1", str(size), "Raise it")


def _tensor(value: ValueInfoProto, batched: bool) -> str:
    element_type = value.type.tensor_type.elem_type
    dims = onnx_model.dims(value)
    if element_type not in _DTYPES or dims is None:
        kind = TensorProto.DataType.Name(element_type)
        raise ModelError(
            WHERE,
            "Triton needs tensors of a type it has and of a known rank",
            f"{value.name!r} of type {kind} and {'unknown' if dims is None else 'known'} rank",
            "Export the model with declared outputs, or pack it without --triton",
        )
    shape = [dim if isinstance(dim, int) else -1 for dim in dims[batched:]]
    lines = [f"name: {json.dumps(value.name, ensure_ascii=False)}"]
    lines.append(f"data_type: {_DTYPES[element_type]}")
    # A tensor of no dims is one element to Triton's clients.
    lines.append(f"dims: [ {', '.join(map(str, shape or [1]))} ]")
    if not shape:
        lines.append("reshape { shape: [ ] }")
    return "  {\n" + "".join(f"    {line}\n" for line in lines) + "  }"


def _tensors(field: str, values: Iterable[ValueInfoProto], batched: bool) -> str:
    return f"{field} [\n" + ",\n".join(_tensor(value, batched) for value in values) + "\n]\n"


def _declared(model: ModelProto) -> str:
    """Why the signature rules batching out; empty if it does not."""
    symbols = set()
    for value in required(model):
        dims = onnx_model.dims(value)
        if not dims or isinstance(dims[0], int):
            return f"the first dim of input {value.name!r} is not symbolic"
        symbols.add(dims[0])
    if len(symbols) != 1 or None in symbols:
        return "the inputs' first dims do not have one name in common"
    for value in model.graph.output:
        dims = onnx_model.dims(value)
        if not dims or isinstance(dims[0], int):
            return f"the first dim of output {value.name!r} is not symbolic"
        if isinstance(dims[0], str) and dims[0] not in symbols:
            return f"the first dim of output {value.name!r} has another name than the inputs'"
    return ""


def _two_rows(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if len(array) > 1 or array.size == 0:
        return array
    return np.concatenate([array, np.roll(array, 1, axis=-1) if array.ndim > 1 else array])


def why_rows_differ(
    run: Callable[[Arrays], Mapping[str, npt.NDArray[Any]]],
    inputs: Arrays,
    limits: Mapping[str, Tolerance],
) -> str:
    """Why requests must not be put together: a row's results depend on the other rows.

    Args:
        run: the model, arrays by name.
        inputs: arrays whose first dim is the batch.
        limits: how far an output may be off. Two results of one row may be twice that apart.

    Returns:
        The reason; empty if each row gives the same alone.
    """
    batch = {name: _two_rows(array) for name, array in inputs.items()}
    rows = min((len(array) for array in batch.values()), default=0)
    try:
        together = run(batch)
        for row in range(rows):
            alone = run({name: array[row : row + 1] for name, array in batch.items()})
            for name, expected in alone.items():
                if len(together[name]) != rows or len(expected) != 1:
                    return f"output {name!r} does not have a row per row of the inputs"
                limit = Tolerance(absolute=2 * limits[name].absolute)
                dtype = expected.dtype.name if is_float(expected) else "float64"
                received = together[name][row : row + 1]
                if not compare(received, expected.astype(np.float64), dtype, limit).ok:
                    return f"output {name!r} of a row depends on the other rows"
    except Exception as error:  # what ONNX Runtime raises where a size is fixed inside
        return f"it does not run on one row alone: {' '.join(str(error).split())[:160]}"
    return ""


def config(
    model: ModelProto,
    name: str,
    plugins: Sequence[str],
    max_batch_size: int,
    why_not: Callable[[], str],
) -> Config:
    """The config.pbtxt of a model.

    Args:
        model: the model.
        name: what Triton shall call it.
        plugins: file names of the op libraries. Without a slash, so that the system's
            loader looks for it where LD_LIBRARY_PATH says, and the repository may lie anywhere.
        max_batch_size: the most requests to put together.
        why_not: says why rows may not be put together, empty if they may; asked only where the
            signature allows it.

    Raises:
        ModelError: Triton cannot declare one of the model's tensors.
    """
    reason = _declared(model) or why_not()
    size = 0 if reason else max_batch_size
    text = (
        f"name: {json.dumps(name)}\n"
        'platform: "onnxruntime_onnx"\n'
        'backend: "onnxruntime"\n'
        f"max_batch_size: {size}\n"
        + _tensors("input", required(model), bool(size))
        + _tensors("output", model.graph.output, bool(size))
    )
    if size:
        text += "dynamic_batching { }\n"
    if plugins:
        names = ", ".join(map(json.dumps, plugins))
        text += f"model_operations {{ op_library_filename: [ {names} ] }}\n"
    return Config(name, text, size, reason)
