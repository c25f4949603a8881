# SPDX-License-Identifier: Apache-2.0
"""Samples, layouts and the composed formula for every operator of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import myops.functional
import numpy as np
import pytest
import torch
from myops.spec import DOMAIN, ELEMENTWISE, OpSpec

from ..support import each_spec_with

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}

PASSES = ("", "_backward", "_double_backward")

each_unary_spec = pytest.mark.parametrize(
    "spec", [s for s in ELEMENTWISE if len(s.inputs) == 1], ids=lambda spec: spec.torch_name
)
each_dtype = pytest.mark.parametrize("dtype", DTYPES)
each_pass = pytest.mark.parametrize("suffix", PASSES, ids=lambda s: s.strip("_") or "forward")


def function(spec: OpSpec) -> Callable[..., torch.Tensor]:
    return getattr(myops.functional, spec.torch_name)


def overloads(spec: OpSpec, suffix: str = "") -> Any:
    """The torch operator of one pass."""
    return getattr(getattr(torch.ops, DOMAIN), spec.torch_name + suffix)


def attribute_sets(spec: OpSpec) -> list[dict[str, float]]:
    """The defaults, other values, the opposite sign and zero."""
    factors = (1.0, 1.702, -0.5, 0.0) if spec.attributes else (1.0,)
    return [{a.name: a.default * factor for a in spec.attributes} for factor in factors]


def other_attributes(spec: OpSpec) -> dict[str, float]:
    """Values that a call which drops or ignores an attribute gets wrong."""
    return {a.name: a.default * 1.75 + 0.125 for a in spec.attributes}


def sample(spec: OpSpec, count: int, seed: int = 0) -> torch.Tensor:
    """float64 values of the operator's interval."""
    generator = torch.Generator().manual_seed(seed)
    low, high = spec.domain
    return torch.rand(count, generator=generator, dtype=torch.float64) * (high - low) + low


def tensor_count(spec: OpSpec, suffix: str) -> int:
    """Tensor arguments of a pass."""
    arguments = overloads(spec, suffix).default._schema.arguments
    return sum(a.type.isSubtypeOf(torch._C.TensorType.get()) for a in arguments)


def pass_tensors(
    spec: OpSpec, suffix: str, make: Callable[[int], torch.Tensor]
) -> list[torch.Tensor]:
    """One tensor per tensor argument of a pass; ``make`` gets a seed."""
    return [make(seed) for seed in range(tensor_count(spec, suffix))]


def leading(spec: OpSpec) -> int:
    """Where the first input of the operator stands among the tensor arguments of a pass. Its shape,
    dtype, device and memory format are those of the results."""
    return -len(spec.inputs)


def results(outcome: torch.Tensor | tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """The results of a pass, of which there may be one or several."""
    return outcome if isinstance(outcome, tuple) else (outcome,)


def out_names(spec: OpSpec, suffix: str) -> list[str]:
    """The keyword arguments of the ``out=`` form of a pass."""
    if not suffix or len(spec.inputs) == 1:
        return ["out"]
    return [f"out_{name}" for name in spec.inputs]


def outs(spec: OpSpec, suffix: str, make: Callable[[], torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: make() for name in out_names(spec, suffix)}


# ONNX operators that torch spells differently, or not at all.
_BODY_OPS: dict[str, Callable[..., torch.Tensor]] = {
    "Celu": torch.celu,
    "Clip": torch.clamp,
    "Elu": torch.nn.functional.elu,
    "HardSigmoid": lambda x, alpha=0.2, beta=0.5: (alpha * x + beta).clamp(0.0, 1.0),
    "LeakyRelu": lambda x, alpha=0.01: torch.nn.functional.leaky_relu(x, alpha),
    "Max": torch.maximum,
    "Min": torch.minimum,
    "Not": torch.logical_not,
    # By a number: by a tensor, torch's second derivative at negative bases is NaN.
    "Pow": lambda x, exponent: torch.pow(x, float(exponent)),
    # torch's default takes x for softplus(x) above 20.
    "Softplus": lambda x: torch.nn.functional.softplus(x, threshold=50.0),
    "Softsign": torch.nn.functional.softsign,
}


class TorchBody:
    """Evaluates ``OpSpec.body`` with torch's own operators: the composed formula."""

    def __init__(self, like: torch.Tensor) -> None:
        self._like = like

    def constant(self, value: float) -> torch.Tensor:
        return torch.tensor(value, dtype=self._like.dtype, device=self._like.device)

    def mean(self, value: torch.Tensor) -> torch.Tensor:
        return value.mean(-1, keepdim=True)

    def __getattr__(self, op_type: str) -> Callable[..., torch.Tensor]:
        return _BODY_OPS.get(op_type) or getattr(torch, op_type.lower())


def composed(spec: OpSpec) -> Callable[..., torch.Tensor]:
    def compute(*inputs: torch.Tensor, **attributes: float) -> torch.Tensor:
        op = TorchBody(inputs[0])
        values = [op.constant(attributes.get(a.name, a.default)) for a in spec.attributes]
        return spec.body(op, *inputs, *values)

    return compute


def stored(attributes: dict[str, float], dtype: str) -> dict[str, float]:
    """Attribute values as the kernels of ``dtype`` see them."""
    if dtype == "float64":
        return attributes
    return {name: float(np.float32(value)) for name, value in attributes.items()}


def reference(
    spec: OpSpec, dtype: str, attributes: dict[str, float], *inputs: torch.Tensor
) -> np.ndarray:
    """Exact results at stored inputs. float64 arithmetic cannot judge float64 kernels."""
    kind = np.longdouble if dtype == "float64" else np.float64
    with np.errstate(invalid="ignore"):  # signalling NaNs among bit patterns
        arrays = [tensor.detach().double().numpy().astype(kind) for tensor in inputs]
    return spec.reference(*arrays, **stored(attributes, dtype))


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal in value and in the sign of zero; NaN equals NaN."""
    a, b = a.detach(), b.detach()
    return bool(torch.equal(a.isnan(), b.isnan())) and bool(
        torch.equal(a.nan_to_num(), b.nan_to_num()) and torch.equal(a.signbit(), b.signbit())
    )


def _base(*shape: int, seed: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator, dtype=torch.float64) * 3).to(dtype)


# Each makes one layout out of a seed and a dtype. The name says what is unusual.
LAYOUTS: dict[str, Callable[[int, torch.dtype], torch.Tensor]] = {
    "contiguous": lambda s, d: _base(4, 6, seed=s, dtype=d),
    "transposed": lambda s, d: _base(4, 6, seed=s, dtype=d).t(),
    "channels_last": lambda s, d: _base(2, 3, 4, 5, seed=s, dtype=d).to(
        memory_format=torch.channels_last
    ),
    "channels_last_3d": lambda s, d: _base(2, 3, 2, 2, 2, seed=s, dtype=d).to(
        memory_format=torch.channels_last_3d
    ),
    "permuted": lambda s, d: _base(2, 3, 4, seed=s, dtype=d).permute(2, 0, 1),
    "stepped": lambda s, d: _base(8, 9, seed=s, dtype=d)[::2, 1::3],
    "padded_transposed": lambda s, d: _base(4, 10, seed=s, dtype=d)[:, :6].t(),
    "offset": lambda s, d: _base(25, seed=s, dtype=d)[1:].view(4, 6),
    "expanded": lambda s, d: _base(4, 1, seed=s, dtype=d).expand(4, 6),
    "expanded_everywhere": lambda s, d: _base(1, seed=s, dtype=d).expand(5),
    "scalar": lambda s, d: _base(seed=s, dtype=d),
    "one_element": lambda s, d: _base(1, 1, 1, seed=s, dtype=d),
    "size_one_dim": lambda s, d: _base(4, 1, 6, seed=s, dtype=d),
    "size_one_dim_odd_stride": lambda s, d: _base(100, seed=s, dtype=d).as_strided(
        (4, 1, 6), (6, 77, 1)
    ),
    "flipped": lambda s, d: _base(4, 6, seed=s, dtype=d).flip(0),
    "overlapping": lambda s, d: _base(20, seed=s, dtype=d).as_strided((4, 6), (2, 1)),
    "overlapping_transposed": lambda s, d: _base(20, seed=s, dtype=d).as_strided((4, 6), (1, 2)),
    "empty": lambda s, d: _base(0, seed=s, dtype=d),
    "empty_middle": lambda s, d: _base(2, 0, 3, seed=s, dtype=d),
    "empty_permuted": lambda s, d: _base(2, 0, 3, seed=s, dtype=d).permute(2, 0, 1),
    "negative_view": lambda s, d: torch._neg_view(_base(4, 6, seed=s, dtype=d)),
}


def strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """The strides that mean something: torch's own operators, and ``empty_like`` on its different
    devices, disagree about those of a dim of size 1 and of an empty tensor."""
    if tensor.numel() == 0:
        return ()
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return tuple(stride for size, stride in pairs if size != 1)


each_layout = pytest.mark.parametrize("layout", LAYOUTS)
each_spec_with_layout = each_spec_with("layout", LAYOUTS, ("contiguous", "stepped"))
