# SPDX-License-Identifier: Apache-2.0
"""The value of a tensor that is the same in every run: from an initializer, a Constant node in any
of its forms, or one of these through Identity and Cast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, TensorProto, helper, numpy_helper
from onnx.external_data_helper import load_external_data_for_tensor, uses_external_data

from myops.onnx.inject.graph import Scope

# No coefficient of ours is longer; longer tensors are weights, which stay where they are.
_LONGEST = 1 << 10


@dataclass(frozen=True)
class Constant:
    """A constant tensor.

    Attributes:
        value: its elements, None where there are too many to look at.
        dims: its shape.
        overridable: name of the initializer a caller may replace; then it is none.
    """

    value: npt.NDArray[Any] | None
    dims: tuple[int, ...]
    overridable: str = ""

    @property
    def scalar(self) -> float | None:
        """The element of a constant of size 1."""
        if self.value is None or self.value.size != 1 or self.value.dtype.kind not in "fiuV":
            return None
        return float(self.value.astype(np.float64).reshape(()))


def _of_tensor(tensor: TensorProto, base: str) -> Constant:
    dims = tuple(tensor.dims)
    if np.prod(dims, initial=1) > _LONGEST or tensor.data_type == TensorProto.STRING:
        return Constant(None, dims)
    if uses_external_data(tensor):
        if not base:
            return Constant(None, dims)
        copy = TensorProto()
        copy.CopyFrom(tensor)
        load_external_data_for_tensor(copy, base)
        tensor = copy
    return Constant(numpy_helper.to_array(tensor), dims)


def _of_node(node: NodeProto, base: str) -> Constant | None:
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            return None  # differs from call to call
        if attribute.name == "value":
            return _of_tensor(attribute.t, base)
        if attribute.name == "sparse_value":
            return Constant(None, tuple(attribute.sparse_tensor.dims))
        if attribute.name in ("value_float", "value_floats"):
            array = np.asarray(helper.get_attribute_value(attribute), np.float32)
            return Constant(array, array.shape)
        if attribute.name in ("value_int", "value_ints"):
            array = np.asarray(helper.get_attribute_value(attribute), np.int64)
            return Constant(array, array.shape)
    return None


def _cast(constant: Constant, node: NodeProto) -> Constant | None:
    to = next((a.i for a in node.attribute if a.name == "to"), 0)
    if not to or constant.value is None:
        return None
    with np.errstate(all="ignore"):
        value = constant.value.astype(helper.tensor_dtype_to_np_dtype(to))
    return Constant(value, constant.dims, constant.overridable)


def constant(scope: Scope, tensor: str, base: str) -> Constant | None:
    """The constant behind a tensor, None where there is none.

    Args:
        scope: where the tensor is read.
        tensor: its name.
        base: folder of the model's external data; empty if there is none.
    """
    owner = scope.owner(tensor)
    if owner is None:
        return None
    if tensor in owner.initializers:
        found = _of_tensor(owner.initializers[tensor], base)
        if tensor in owner.overridable:
            return Constant(found.value, found.dims, tensor)
        return found
    node = owner.producer(tensor)
    if node is None or node.domain not in ("", "ai.onnx"):
        return None
    if node.op_type == "Constant":
        return _of_node(node, base)
    if node.op_type in ("Identity", "Cast"):
        below = constant(owner, node.input[0], base)
        if below is None or node.op_type == "Identity":
            return below
        return _cast(below, node)
    return None
