# SPDX-License-Identifier: Apache-2.0
"""The operator as ``torch.compile`` makes it of its standard operators: a row where that works.

What is compiled is the ``body`` of the ``OpSpec``, the same that the ONNX function holds, written
into the shared output. Compiling takes a C++ compiler and some seconds per row.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from myops.bench.measure import rotated
from myops.bench.rivals import CHECKED, Case, Data
from myops.bench.torch_rows import tensor_on
from myops.spec import OpSpec

NAME = "torch.compile"


class TorchBody:
    """The ``op`` of an ``OpSpec.body`` in torch: ``op.Mul(a, b)`` computes. Numbers stay Python
    numbers."""

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        import torch

        functions: dict[str, Callable[..., Any]] = {
            # Either operand may be a number, which torch's functions do not take first.
            "Add": operator.add,
            "Div": operator.truediv,
            "Mul": operator.mul,
            "Pow": operator.pow,
            "Sub": operator.sub,
            "HardSigmoid": lambda x, alpha, beta: torch.clamp(x * alpha + beta, 0, 1),
            "Max": lambda x, least: torch.clamp(x, min=least),
            "Min": lambda x, most: torch.clamp(x, max=most),
            "Softplus": torch.nn.functional.softplus,
        }
        found = functions.get(op_type) or getattr(torch, op_type.lower(), None)
        if found is None:
            raise AttributeError(f"{op_type} has no translation to torch")
        return cast("Callable[..., Any]", found)

    def constant(self, value: float) -> float:
        return value

    def mean(self, x: Any) -> Any:
        return x.mean(-1, keepdim=True)


def body(spec: OpSpec, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The results of the operator's body at its default attributes, on torch tensors."""
    result = spec.body(TorchBody(), *inputs, *spec.defaults().values())
    return result if isinstance(result, tuple) else (result,)


def compiled_case(spec: OpSpec, data: Data, copies: Sequence[Data] = ()) -> Case | str:
    """The row, or one sentence that says why there is none.

    Args:
        spec: the operator.
        data: the buffers whose result is checked.
        copies: further buffers; calls take turns on ``data`` and them.
    """
    import torch

    def write(targets: Sequence[Any], inputs: Sequence[Any]) -> None:
        for target, result in zip(targets, body(spec, inputs), strict=False):
            target.copy_(result)

    sets = [
        ((tensor_on(d.output), tensor_on(d.scratch))[: len(spec.outputs)],
         [tensor_on(array) for array in d.inputs])
        for d in (data, *copies)
    ]  # fmt: skip

    def result() -> npt.NDArray[np.float64]:
        return data.output.reshape(-1)[:CHECKED].astype(np.float64)

    try:
        # One function for all operators: torch counts what it compiled of it and gives up at some.
        torch._dynamo.reset()
        function = torch.compile(write, fullgraph=True, dynamic=False)
        with torch.no_grad():
            for targets, inputs in sets:
                function(targets, inputs)
    except Exception as error:  # a missing compiler, an unsupported Python, and many more
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"[:200]

    def call(targets: Sequence[Any], inputs: Sequence[Any]) -> Callable[[], object]:
        return lambda: function(targets, inputs)

    return Case("torch", NAME, "", rotated([call(*tensors) for tensors in sets]), 1, result)
