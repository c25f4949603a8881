# SPDX-License-Identifier: Apache-2.0
"""Running a torch model: as it is, in float64, and with everything it computes on the way."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from myops.onnx.calls import our_operator

if TYPE_CHECKING:
    import torch

Arrays = Mapping[str, npt.NDArray[Any]]


def to_numpy(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """A tensor's values; bfloat16, which numpy has no type for, in float32."""
    import torch

    values = tensor.detach().cpu()
    return np.asarray(values.float() if values.dtype == torch.bfloat16 else values)


def _tensor(array: npt.NDArray[Any], dtype: torch.dtype | None) -> torch.Tensor:
    import torch

    # A copy that keeps the order of the strides: torch warns about arrays it may not write to.
    tensor = torch.from_numpy(np.array(array, order="K"))
    return tensor.to(dtype) if dtype is not None and tensor.is_floating_point() else tensor


def _own_dtype(model: torch.nn.Module) -> torch.dtype | None:
    """The one floating-point dtype of the model's parameters."""
    found = {p.dtype for p in model.parameters() if p.is_floating_point()}
    return found.pop() if len(found) == 1 else None


def _call(model: torch.nn.Module, inputs: Arrays, double: bool) -> list[torch.Tensor]:
    import torch
    from torch.utils import _pytree

    runner = copy.deepcopy(model).eval()
    if double:
        runner = runner.double()
    # A file may have been converted to another dtype than the module's.
    dtype = torch.float64 if double else _own_dtype(runner)
    tensors = {name: _tensor(array, dtype) for name, array in inputs.items()}
    with torch.no_grad():
        outputs = runner(**tensors)
    return [leaf for leaf in _pytree.tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]


def run_torch(
    model: torch.nn.Module, inputs: Arrays, double: bool = False
) -> list[npt.NDArray[Any]]:
    """A copy of the model in evaluation mode on inputs by the names of forward's arguments.

    Args:
        model: stays as it is.
        inputs: their strides are kept.
        double: whether to convert the copy and the inputs to float64.

    Returns:
        The outputs in order, nested ones flat.
    """
    return [to_numpy(tensor) for tensor in _call(model, inputs, double)]


class Trace:
    """What a torch model computes, in float64.

    Attributes:
        calls: attribute values of the calls of our operators, in order: (ONNX name, values).
    """

    def __init__(self, model: torch.nn.Module, inputs: Arrays) -> None:
        import torch
        from torch.utils import _pytree
        from torch.utils._python_dispatch import TorchDispatchMode

        by_size: dict[int, list[npt.NDArray[Any]]] = {}
        calls: list[tuple[str, dict[str, float]]] = []

        class Recording(TorchDispatchMode):
            def __torch_dispatch__(
                self, function: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                result = function(*args, **(kwargs or {}))
                spec = our_operator(function)
                if spec is not None:
                    names = list(spec.defaults())
                    given = dict(zip(names, args[len(spec.inputs) :], strict=False))
                    given |= {k: v for k, v in (kwargs or {}).items() if k in names}
                    calls.append((spec.name, spec.defaults() | given))
                for leaf in _pytree.tree_leaves(result):
                    if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
                        flat = np.array(to_numpy(leaf), np.float64, order="C").ravel()
                        by_size.setdefault(flat.size, []).append(flat)
                return result

        with Recording():
            _call(model, inputs, double=True)
        self.calls = calls
        self._by_size = by_size

    def holds(self, values: npt.NDArray[Any], relative: float) -> bool:
        """Whether one of the model's tensors has these values in this order, whatever its shape,
        within ``relative`` of the largest."""
        flat = np.asarray(values, np.float64).ravel()
        finite = np.abs(flat[np.isfinite(flat)])
        limit = relative * float(finite.max(initial=0.0))
        return any(
            np.allclose(other, flat, rtol=0.0, atol=limit, equal_nan=True)
            for other in self._by_size.get(flat.size, ())
        )

    def nearest(self, values: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
        """Of the model's tensors with as many elements the one nearest to these values."""
        flat = np.asarray(values, np.float64).ravel()
        candidates = self._by_size.get(flat.size, ())
        best = min(candidates, key=lambda other: float(np.sum(np.abs(other - flat))), default=None)
        return None if best is None else best.reshape(np.shape(values))
