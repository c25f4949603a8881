# SPDX-License-Identifier: Apache-2.0
"""One ``OpSpec`` per operator: everything Python needs to know about it.

To add an operator, write its functor in ``native/kernels/ops`` and its ``OpSpec`` here. The torch
functions and modules, both exporters, the plugin, verification and the tests follow from the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from myops import _build_info
from myops._errors import UsageError

Array = npt.NDArray[np.floating]

DOMAIN = "myops"
"""Namespace of the operators in torch and domain in ONNX."""

DOMAIN_VERSION = 1


@dataclass(frozen=True)
class Attribute:
    """A scalar fixed per node; the same name in torch, ONNX and Python."""

    name: str
    default: float
    doc: str


@dataclass(frozen=True)
class OpSpec:
    """One operator.

    Attributes:
        name: ONNX op type.
        torch_name: name below ``torch.ops.myops``.
        inputs: tensor arguments, all of one shape and dtype.
        attributes: scalar arguments.
        summary: one sentence with the formula.
        details: limits, special values, source of the formula.
        reference: the operator on float64 or longdouble arrays, computed in that precision,
            ``reference(*inputs, **attributes)``. Written for accuracy and independently of the
            native functor.
        body: the operator in standard ONNX ops, ``body(op, *inputs, *attributes)``, where
            ``op.Name(...)`` adds a node and attributes come as scalar tensors of the inputs' type.
        body_float64: another spelling of ``body`` for float64, where ONNX Runtime has no kernel
            for what it makes of the first one.
        domain: the interval inputs are drawn from in verification.
        max_ulp: worst error of the forward kernels against float64, by dtype, in units in the
            last place of that dtype.
    """

    name: str
    torch_name: str
    inputs: tuple[str, ...]
    attributes: tuple[Attribute, ...]
    summary: str
    details: str
    reference: Callable[..., Array]
    body: Callable[..., Any]
    body_float64: Callable[..., Any] | None = None
    domain: tuple[float, float] = (-20.0, 20.0)
    max_ulp: Mapping[str, float] = field(
        default_factory=lambda: {
            "float32": 4.0,
            "float64": 4.0,
            "float16": 0.51,
            "bfloat16": 0.51,
        }
    )

    def defaults(self) -> dict[str, float]:
        """Attribute names and default values."""
        return {attribute.name: attribute.default for attribute in self.attributes}


def _swish(x: Array, beta: float) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        z = x.dtype.type(beta) * x
        tail = np.exp(-np.abs(z))  # never overflows
        sigmoid = np.where(z >= 0, 1.0, tail) / (1.0 + tail)
        y = x * sigmoid
    y = np.where(np.isneginf(z), np.copysign(0.0, x), y)
    return np.where(np.isinf(x) & (beta == 0), x, y)


SWISH = OpSpec(
    name="Swish",
    torch_name="swish",
    inputs=("x",),
    attributes=(Attribute("beta", 1.0, "Coefficient inside the sigmoid. Finite."),),
    summary="Swish with a coefficient, ``y = x * sigmoid(beta * x)``.",
    details=(
        "``beta = 1`` is SiLU, ``beta = 1.702`` the quick form of GELU. Limits: ``+inf`` gives\n"
        "``+inf``, ``-inf`` gives ``-0.0`` for positive ``beta``, the mirror image for negative\n"
        "``beta``; ``beta = 0`` is ``x / 2``; NaN stays NaN; signed zero keeps its sign. The\n"
        "gradient at ``+inf`` and ``-inf`` is its limit, 1 and 0. ``float16`` and ``bfloat16``\n"
        "compute in ``float32`` and round once, and use ``beta`` rounded to ``float32``, like\n"
        "``float32`` does.\n\n"
        'Source: Ramachandran, Zoph, Le, "Searching for Activation Functions", 2017.'
    ),
    reference=_swish,
    body=lambda op, x, beta: op.Mul(x, op.Sigmoid(op.Mul(x, beta))),
    # ONNX Runtime fuses the spelling above into a QuickGelu for which it has no float64 kernel.
    body_float64=lambda op, x, beta: op.Div(
        x, op.Add(op.Exp(op.Neg(op.Mul(x, beta))), op.constant(1.0))
    ),
    max_ulp={"float32": 2.5, "float64": 4.0, "float16": 0.51, "bfloat16": 0.51},
)

SPECS: tuple[OpSpec, ...] = (SWISH,)


def find(name: str) -> OpSpec:
    """The operator with this ONNX or torch name.

    Raises:
        UsageError: there is none.
    """
    for spec in SPECS:
        if name in (spec.name, spec.torch_name):
            return spec
    known = ", ".join(spec.name for spec in SPECS)
    raise UsageError("myops.spec", f"an operator should be one of {known}", repr(name), "Name one")


def mismatches() -> list[str]:
    """Where ``SPECS`` and the native op list differ, as sentences that say what to add."""
    native = {op["name"]: op for op in _build_info.ops()}
    found: list[str] = []
    for spec in SPECS:
        op = native.pop(spec.name, None)
        if op is None:
            found.append(f"{spec.name} has an OpSpec but no functor: add one to native/kernels/ops")
            continue
        for what, here, there in (
            ("torch name", spec.torch_name, op["torch_name"]),
            ("inputs", list(spec.inputs), op["inputs"]),
            ("attributes", spec.defaults(), op["attributes"]),
        ):
            if here != there:
                found.append(f"{spec.name}: {what} {here} in spec.py, {there} in the functor")
    found.extend(
        f"{name} has a functor but no OpSpec: add one to python/myops/spec.py" for name in native
    )
    return found
