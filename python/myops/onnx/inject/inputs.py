# SPDX-License-Identifier: Apache-2.0
"""Inputs to run a model on: given, or made up from its signature."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, TensorProto, ValueInfoProto, helper

from myops.onnx import model as onnx_model
from myops.onnx.inputs import check_dims, given_size, load_inputs, required

Arrays = dict[str, npt.NDArray[Any]]

# Sizes of dims that have none, from the likeliest to run: networks halve images several times, and
# some fix a size by what they do.
SIZES = (64, 32, 224, 48, 640, 128, 8, 2, 1)


def _shape(value: ValueInfoProto, dims: Mapping[str, int], size: int) -> list[int]:
    shape = []
    for axis, dim in enumerate(onnx_model.dims(value) or []):
        named = given_size(value, axis, dim, dims)
        if named is not None:
            shape.append(named)
        elif isinstance(dim, int) and dim > 0:
            shape.append(dim)
        else:
            shape.append(1 if axis == 0 else size)
    return shape


def _array(value: ValueInfoProto, shape: list[int], fill: int, seed: int) -> npt.NDArray[Any]:
    kind = value.type.tensor_type.elem_type
    if kind == TensorProto.STRING:
        return np.full(shape, "", dtype=object)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    if np.issubdtype(dtype, np.floating):
        return np.asarray(np.random.default_rng(seed).standard_normal(shape), dtype=dtype)
    return np.full(shape, fill, dtype=dtype)


def describe(arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """Names and shapes, for people."""
    return ", ".join(f"{name}{list(array.shape)}" for name, array in arrays.items())


def proposals(
    model: ModelProto,
    inputs: Mapping[str, npt.NDArray[Any]] | str | os.PathLike[str] | None,
    dims: Mapping[str, int],
) -> Iterator[Arrays]:
    """Inputs to try, the first that runs is right.

    Floats are standard normal, the same in every run; integers 1, then 0. A dim without a size is 1
    in front and one of ``SIZES`` elsewhere.

    Raises:
        UsageError: what is given does not fit the model.
    """
    if inputs is not None:
        yield load_inputs(inputs, model, None)
        return
    complete = check_dims(model, dims)
    for size in SIZES[:1] if complete else SIZES:
        for fill in (1, 0):
            yield {
                value.name: _array(value, _shape(value, dims, size), fill, seed)
                for seed, value in enumerate(required(model))
            }
