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


def synthesize(
    model: ModelProto, dims: Mapping[str, int] | None = None, seed: int = 0
) -> dict[str, npt.NDArray[Any]]:
    """Inputs that fit a model's signature: standard normal floats, zeros for the rest.

    Args:
        model: the model.
        dims: sizes of symbolic dims by name; 2 for those not named.
        seed: of the random generator.

    Raises:
        UsageError: ``dims`` names a symbol that the model does not have, or the model takes what
            numpy has no type for.
    """
    rng = np.random.default_rng(seed)
    given = dict(dims or {})
    symbols: set[str] = set()
    inputs: dict[str, npt.NDArray[Any]] = {}
    for value in required(model):
        shape = []
        for dim in onnx_model.dims(value) or []:
            if isinstance(dim, str):
                symbols.add(dim)
            if isinstance(dim, int) and dim >= 0:  # some exporters write -1 for a free dim
                shape.append(dim)
            else:
                shape.append(given.get(str(dim), 2))
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
    unknown = set(given) - symbols
    if unknown:
        raise UsageError(
            WHERE,
            f"dims should name symbolic dims of the model ({', '.join(sorted(symbols)) or 'none'})",
            ", ".join(sorted(unknown)),
            "Correct the names",
        )
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
