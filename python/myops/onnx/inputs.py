# SPDX-License-Identifier: Apache-2.0
"""Inputs to run a model on: given, or made up from its signature."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, TensorProto, ValueInfoProto, helper

from myops._errors import UsageError
from myops.onnx import model as onnx_model

WHERE = "myops.inputs"

NHWC_TO_NCHW = (0, 3, 1, 2)
NCHW_TO_NHWC = (0, 2, 3, 1)


def required(model: ModelProto) -> list[ValueInfoProto]:
    """The inputs that have no default."""
    initializers = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in initializers]


def given_size(
    value: ValueInfoProto, axis: int, dim: int | str | None, dims: Mapping[str, int]
) -> int | None:
    """What ``dims`` says of a dim of an input, as ``name.axis`` or by its symbol."""
    by_symbol = dims.get(dim) if isinstance(dim, str) else None
    return dims.get(f"{value.name}.{axis}", by_symbol)


def check_dims(model: ModelProto, dims: Mapping[str, int]) -> bool:
    """Whether every open dim of the required inputs is given.

    Raises:
        UsageError: ``dims`` names what the model does not have.
    """
    known: dict[str, None] = {}
    complete = True
    for value in required(model):
        for axis, dim in enumerate(onnx_model.dims(value) or []):
            if isinstance(dim, str):
                known[dim] = None
            known[f"{value.name}.{axis}"] = None
            is_open = not isinstance(dim, int) or dim < 1
            complete &= not is_open or given_size(value, axis, dim, dims) is not None
    unknown = [name for name in dims if name not in known]
    if unknown:
        raise UsageError(
            WHERE,
            "dims should name symbolic dims of the model, or dims of its inputs as name.axis: "
            f"{', '.join(known) or 'none'}",
            ", ".join(unknown),
            "Correct the names",
        )
    return complete


def synthesize(
    model: ModelProto, dims: Mapping[str, int] | None = None, seed: int = 0
) -> dict[str, npt.NDArray[Any]]:
    """Inputs that fit a model's signature: standard normal floats, zeros for the rest.

    Args:
        model: the model.
        dims: sizes of symbolic dims by name, or of an input's dim as ``name.axis``; 2 for open
            dims not given.
        seed: of the random generator.

    Raises:
        UsageError: ``dims`` names what the model does not have, or the model takes what numpy has
            no type for.
    """
    rng = np.random.default_rng(seed)
    given = dict(dims or {})
    check_dims(model, given)
    inputs: dict[str, npt.NDArray[Any]] = {}
    for value in required(model):
        shape = []
        for axis, dim in enumerate(onnx_model.dims(value) or []):
            size = given_size(value, axis, dim, given)
            if size is None:  # some exporters write -1 for a free dim
                size = dim if isinstance(dim, int) and dim >= 0 else 2
            shape.append(size)
        element_type = value.type.tensor_type.elem_type
        if element_type in (TensorProto.UNDEFINED, TensorProto.BFLOAT16):
            raise UsageError(
                WHERE,
                "every input should be a tensor of a type that numpy has",
                f"{value.name!r}, which is not",
                "Cast it inside the model, and verify it with float32 inputs",
            )
        dtype = helper.tensor_dtype_to_np_dtype(element_type)
        if np.issubdtype(dtype, np.floating):
            inputs[value.name] = np.asarray(rng.standard_normal(shape), dtype=dtype)
        else:
            inputs[value.name] = np.zeros(shape, dtype=dtype)
    return inputs


def read_npz(path: str | os.PathLike[str]) -> dict[str, npt.NDArray[Any]]:
    """All arrays of an .npz file.

    Raises:
        UsageError: it is not one.
    """
    try:
        with np.load(Path(path)) as archive:
            return dict(archive.items())
    except Exception as error:
        raise UsageError(
            WHERE,
            "inputs should be an .npz file of arrays named like the model's inputs",
            f"{path}: {type(error).__name__}: {error}",
            "Write one with numpy.savez",
        ) from error


def _fits(shape: tuple[int, ...], dims: list[int | str | None]) -> bool:
    return len(shape) == len(dims) and all(
        not isinstance(dim, int) or dim in (size, -1) for dim, size in zip(dims, shape, strict=True)
    )


def _check_shape(value: ValueInfoProto, array: npt.NDArray[Any]) -> None:
    dims = onnx_model.dims(value)
    if dims is None or _fits(array.shape, dims):
        return
    remedy = "Give an input of that shape"
    if array.ndim == 4:
        for order, layout in ((NHWC_TO_NCHW, "NHWC"), (NCHW_TO_NHWC, "NCHW")):
            if _fits(tuple(array.shape[axis] for axis in order), dims):
                remedy = (
                    f"This looks like {layout} for a model of the other layout: transpose it with "
                    f"numpy.transpose(x, {order})"
                )
                break
    wanted = [dim if dim is not None else "?" for dim in dims]
    raise UsageError(
        WHERE,
        f"input {value.name!r} should have the shape {wanted}",
        str(list(array.shape)),
        remedy,
    )


def load_inputs(
    inputs: Mapping[str, npt.NDArray[Any]] | str | os.PathLike[str] | None,
    model: ModelProto,
    dims: Mapping[str, int] | None,
) -> dict[str, npt.NDArray[Any]]:
    """The inputs by name: arrays, those of an .npz file, or made-up ones for None.

    Strides are kept: a transposed array reaches torch as a non-contiguous tensor.

    Raises:
        UsageError: names, shapes or dtypes do not fit the model.
    """
    if inputs is None:
        return synthesize(model, dims)
    if not isinstance(inputs, Mapping):
        inputs = read_npz(inputs)
    values = {value.name: value for value in required(model)}
    if set(inputs) != set(values):
        raise UsageError(
            WHERE,
            f"inputs should be named {', '.join(sorted(values))}",
            ", ".join(sorted(inputs)) or "none",
            "Rename the arrays",
        )
    arrays = {name: np.asarray(array) for name, array in inputs.items()}
    for name, array in arrays.items():
        _check_shape(values[name], array)
        element_type = values[name].type.tensor_type.elem_type
        wanted = helper.tensor_dtype_to_np_dtype(element_type)
        if array.dtype != wanted:
            raise UsageError(
                WHERE,
                f"input {name!r} should be {wanted}, as the model declares",
                str(array.dtype),
                f"Convert it with .astype(numpy.{wanted}); float64 is numpy's default",
            )
    return arrays
