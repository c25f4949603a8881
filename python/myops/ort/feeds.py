# SPDX-License-Identifier: Apache-2.0
"""Inputs and outputs of sessions in every dtype: numpy has no bfloat16 of its own."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from myops._errors import UsageError

if TYPE_CHECKING:
    from onnx import ModelProto

Arrays = Mapping[str, npt.NDArray[Any]]

WHERE = "myops.ort"


def model_inputs(
    model: ModelProto,
    inputs: Arrays | str | os.PathLike[str] | None = None,
    dims: Mapping[str, int] | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """The arrays to run a model on.

    Args:
        model: its protobuf; weights are not needed.
        inputs: arrays by input name, or an .npz file; made up from the model's signature if None.
        dims: sizes of symbolic dims for made-up inputs; 2 if not named.

    Raises:
        UsageError: the inputs do not fit, or ``dims`` names a dim the model does not have.
    """
    from myops.onnx.inputs import load_inputs

    return load_inputs(inputs, model, dims)


def ort_values(arrays: Arrays) -> dict[str, Any]:
    """``arrays`` as ``OrtValue``s. They may share the arrays' memory, which must live as long."""
    from onnxruntime import OrtValue

    values = {}
    for name, array in arrays.items():
        few = np.ascontiguousarray(array)
        if few.dtype.name == "bfloat16":
            from onnx import TensorProto

            values[name] = OrtValue.ortvalue_from_numpy_with_onnx_type(
                few.view(np.uint16), TensorProto.BFLOAT16
            )
        else:
            values[name] = OrtValue.ortvalue_from_numpy(few)
    return values


def to_numpy(value: Any) -> npt.NDArray[Any]:
    """An ``OrtValue`` tensor on the CPU as an array of its own; bfloat16 becomes float32."""
    if value.data_type() != "tensor(bfloat16)":
        return np.array(value.numpy())
    shape = value.shape()
    count = int(np.prod(shape, dtype=np.int64))
    if not count:
        return np.zeros(shape, np.float32)
    raw = np.array((ctypes.c_uint16 * count).from_address(value.data_ptr()), np.uint32)
    result: npt.NDArray[Any] = (raw << 16).view(np.float32).reshape(shape)
    return result


def runner(session: Any, arrays: Arrays) -> Callable[[], list[Any]]:
    """A call of ``session`` on ``arrays`` that returns its outputs as ``OrtValue``s.

    Raises (when called):
        UsageError: the model does not run on them.
    """
    values = ort_values(arrays)

    def run(_kept_alive: Arrays = arrays) -> list[Any]:
        outputs: list[Any] = session.run_with_ort_values(None, values)
        return outputs

    return run


def check_run(run: Callable[[], list[Any]], arrays: Arrays, what: str) -> list[Any]:
    """Calls ``run`` for the first time and says in plain words when the model refuses its inputs.

    Raises:
        UsageError: it does.
    """
    try:
        return run()
    except Exception as error:  # onnxruntime raises many kinds
        shapes = ", ".join(f"{n} {a.dtype}{list(a.shape)}" for n, a in arrays.items())
        raise UsageError(
            WHERE,
            f"{what} should run on its inputs ({shapes})",
            " ".join(str(error).split()),
            "Give sizes of symbolic dims (--dim name=size) or real inputs (--inputs x.npz)",
        ) from error
