# SPDX-License-Identifier: Apache-2.0
"""What Python needs to know about an operator."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

from myops._errors import UsageError

Array = npt.NDArray[np.floating]

DOMAIN = "myops"
"""Namespace of the operators in torch and domain in ONNX."""

DOMAIN_VERSION = 1


class MissingFormulaError(UsageError):
    """An ``OpSpec`` from ``myops new`` whose formula is not written yet."""


def missing_formula(name: str, what: str) -> MissingFormulaError:
    """The error of a formula that stands to be written, for the templates of ``myops new``."""
    return MissingFormulaError(
        name,
        f"{what} should be written in the OpSpec",
        "the template of `myops new`",
        "Write the formula in its place",
    )


_RESERVED_NAMESPACES = [
    "torch",
    "aten",
    "prim",
    "prims",
    "quantized",
    "inductor",
    "ai",
    "onnx",
    "onnxruntime",
    "com",
    "microsoft",
]


def check_namespace(namespace: str, where: str) -> None:
    """UsageError unless ``namespace`` can be one of a package with operators of its own: torch
    namespace, ONNX domain and part of file names."""
    reserved = (DOMAIN, *_RESERVED_NAMESPACES)
    if (
        not re.fullmatch(r"[a-z][a-z0-9_]*", namespace)
        or namespace in reserved
        or keyword.iskeyword(namespace)
    ):
        raise UsageError(
            where,
            f"a namespace should be in snake_case, and none of {', '.join(reserved)}",
            repr(namespace),
            "Choose another one, your project's name for instance",
        )


@dataclass(frozen=True)
class Attribute:
    """A scalar fixed per node, finite and at least ``lowest``; the same name in torch, ONNX and
    Python."""

    name: str
    default: float
    doc: str
    lowest: float = -math.inf


@dataclass(frozen=True)
class OpSpec:
    """One operator.

    Attributes:
        name: ONNX op type.
        torch_name: name below ``torch.ops.<namespace>``.
        inputs: tensor arguments, all of one dtype; of one shape where ``kind`` is "elementwise",
            see ``broadcasts``.
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
        spellings: other ways to spell ``body`` that occur in models, written like it; what
            ``myops.onnx.inject`` looks for besides the bodies.
        native: the fastest spelling in ONNX Runtime's own kernels, written like ``body``; that one
            if None. ``op.opset`` says what the model may use.
        broadcasts: inputs after the first may be broadcast to its shape: sizes equal or 1, aligned
            at the last dim.
        kind: "elementwise", or "norm" for operators on rows, whose last input is a weight of the
            shape of a row, or "custom" for a function over whole tensors with shapes of its own.
        outputs: names of the results, all of the first input's shape but for "custom". Where there
            are several, ``reference`` and ``body`` return tuples.
        domain: the interval inputs are drawn from in verification.
        denormals: error allowed on top, in smallest denormal numbers of the compute type, for
            inputs in the domain: what rounding an intermediate value to a denormal costs.
        max_ulp: worst error of the forward kernels against float64, by dtype, in units in the
            last place of that dtype.
        sample: for "custom", ``sample(rng)`` returns inputs for verification, as float64 arrays.
        namespace: of the operator in torch, and its domain in ONNX.
    """

    name: str
    torch_name: str
    inputs: tuple[str, ...]
    attributes: tuple[Attribute, ...]
    summary: str
    details: str
    reference: Callable[..., Any]
    body: Callable[..., Any]
    body_float64: Callable[..., Any] | None = None
    spellings: tuple[Callable[..., Any], ...] = ()
    native: Callable[..., Any] | None = None
    broadcasts: bool = False
    kind: Literal["elementwise", "norm", "custom"] = "elementwise"
    outputs: tuple[str, ...] = ("y",)
    domain: tuple[float, float] = (-20.0, 20.0)
    denormals: int = 0
    max_ulp: Mapping[str, float] = field(
        default_factory=lambda: {
            "float32": 4.0,
            "float64": 4.0,
            "float16": 0.51,
            "bfloat16": 0.51,
        }
    )
    sample: Callable[[np.random.Generator], list[Array]] | None = None
    namespace: str = DOMAIN

    def defaults(self) -> dict[str, float]:
        """Attribute names and default values."""
        return {attribute.name: attribute.default for attribute in self.attributes}


class Registry(Sequence[OpSpec]):
    """All operators: our own, and those that other packages register."""

    def __init__(self, own: Sequence[OpSpec]) -> None:
        self._specs = list(own)

    def add(self, spec: OpSpec) -> None:
        """See ``myops.register``, which checks and loads."""
        self._specs.append(spec)

    @overload
    def __getitem__(self, index: int) -> OpSpec: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[OpSpec]: ...
    def __getitem__(self, index: int | slice) -> OpSpec | Sequence[OpSpec]:
        return self._specs[index]

    def __len__(self) -> int:
        return len(self._specs)

    def __iter__(self) -> Iterator[OpSpec]:
        # Over a copy: the loop may register another.
        return iter(tuple(self._specs))

    def namespaces(self) -> set[str]:
        """Namespaces in torch, domains in ONNX."""
        return {spec.namespace for spec in self._specs}

    def of_node(self, domain: str, op_type: str) -> OpSpec | None:
        """The operator of an ONNX node, if it is one."""
        for spec in self._specs:
            if (spec.namespace, spec.name) == (domain, op_type):
                return spec
        return None


HALVES: Mapping[str, float] = {"float16": 0.51, "bfloat16": 0.51}
"""``max_ulp`` of operators that compute the halves in float32 and round once."""

HALF_NOTE = "``float16`` and ``bfloat16`` compute in ``float32`` and round once.\n\n"
