# SPDX-License-Identifier: Apache-2.0
"""Where does the first NaN or infinity come from?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto

from myops.verify.compare import is_float, largest
from myops.verify.float64 import Float64, Value, prepared
from myops.verify.judge import PRECISIONS, why_not
from myops.verify.parties import Party
from myops.verify.trace import Step, Unreached, trace

_WHOLE = 8
"""Inputs of up to this many elements are shown whole."""


@dataclass(frozen=True)
class NonFinite:
    """A non-finite value made from finite ones.

    Attributes:
        node, op: who made it; empty for an input of the model.
        tensor, index, value: where it is, and which.
        dtype: of the tensor.
        inputs: what it was made from: the values at the same index for operators that work element
            by element, else the range of the input.
        in_float64: what the node gives in float64 on the same inputs; None where unknown.
        cause: "overflow", "invalid operation" or "given".
    """

    node: str
    op: str
    tensor: str
    index: tuple[int, ...]
    value: str
    dtype: str
    inputs: Mapping[str, str]
    in_float64: float | None
    cause: str

    @property
    def summary(self) -> str:
        """One sentence."""
        place = f"{self.tensor!r}{list(self.index)}"
        if not self.node:
            return f"Input {place} is {self.value} to begin with."
        inputs = ", ".join(f"{name} {text}" for name, text in self.inputs.items())
        text = f"First non-finite value: {place} is {self.value}, made by {self.node!r} "
        text += f"({self.op}, {self.dtype}) from {inputs}"
        if self.cause == "overflow" and self.in_float64 is not None:
            text += f"; float64 gives {self.in_float64:.6g}"
            top = largest(self.dtype)
            beyond = abs(self.in_float64) > top
            text += f", above the largest {self.dtype}, {top:.6g}" if beyond else ""
            text += "" if beyond else ": a value inside the node overflowed"
        return text + "."


@dataclass
class Finiteness:
    """The result of ``check_finite``.

    Attributes:
        first: the first node (or input) that makes a non-finite value, or None.
        nodes: looked at.
        constants: initializers and constants that hold infinities, such as attention masks. They
            and what merely passes them on do not count.
        not_reached: bodies that could not be looked into, with reasons.
    """

    first: NonFinite | None = None
    nodes: int = 0
    constants: list[str] = field(default_factory=list)
    not_reached: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.first is None

    @property
    def summary(self) -> str:
        if self.first is not None:
            return self.first.summary
        masks = f" (constants with infinities: {', '.join(self.constants)})"
        return f"No node of {self.nodes} makes a NaN or an infinity{masks * bool(self.constants)}."

    def to_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, "summary": self.summary, **asdict(self)}


def _bad(value: Value) -> npt.NDArray[np.bool_] | None:
    """Where the array is not finite; None if it is, or is no floating-point array."""
    if not isinstance(value, np.ndarray) or not is_float(value):
        return None
    bad = ~np.isfinite(value.astype(np.float64))
    return bad if bad.any() else None


def _describe_inputs(step: Step, index: tuple[int, ...], shape: tuple[int, ...]) -> dict[str, str]:
    found = {}
    for name, value in step.inputs.items():
        if not isinstance(value, np.ndarray) or value.dtype.kind in "SUO":
            continue
        wide = value.astype(np.float64)
        try:
            found[name] = f"{np.broadcast_to(wide, shape)[index]:.9g}"
        except ValueError:  # not element by element
            if wide.size <= _WHOLE:
                found[name] = np.array2string(wide, precision=9, separator=", ")
            else:
                found[name] = f"{list(wide.shape)} in [{wide.min():.9g}, {wide.max():.9g}]"
    return found


def _make(step: Step, name: str, bad: npt.NDArray[np.bool_], model_64: Float64) -> NonFinite:
    value = step.outputs[name]
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    dtype = step.dtype(name)
    precise = None
    if not why_not(step.node):
        try:
            result = model_64.prepare(step.node)(step.inputs)
            precise = float(result[list(step.node.output).index(name)][index])
        except Exception:  # the value stays unknown
            precise = None
    overflow = precise is not None and np.isfinite(precise) and dtype in PRECISIONS
    domain = f"{step.node.domain}::" if step.node.domain else ""
    return NonFinite(
        node=step.where,
        op=f"{domain}{step.node.op_type}",
        tensor=name,
        index=index,
        value=str(float(value[index])),
        dtype=dtype,
        inputs=_describe_inputs(step, index, value.shape),
        in_float64=precise,
        cause="overflow" if overflow else "invalid operation",
    )


def check_finite(
    model: ModelProto,
    inputs: Mapping[str, npt.NDArray[Any]],
    party: Party,
    on_node: Callable[[str], object] | None = None,
) -> Finiteness:
    """Runs a model and finds the first node, in topological order, that makes a NaN or an infinity
    out of finite values.

    Args:
        model: with its weights.
        inputs: by name.
        party: who runs it, in the model's own precision.
        on_node: called with the name of each node.

    Raises:
        ModelError: the party does not run the model with its tensors as outputs.
    """
    model = prepared(model)
    model_64 = Float64(model)
    result = Finiteness()
    for name, array in inputs.items():
        bad = _bad(array)
        if bad is not None:
            index = tuple(int(i) for i in np.argwhere(bad)[0])
            value = str(float(array[index]))
            result.first = NonFinite(
                "", "", name, index, value, str(array.dtype), {}, None, "given"
            )
            return result
    unreached = Unreached()
    # Infinite constants, and what is made of them alone or by passing them on.
    tainted: set[str] = set()
    for step in trace(model, inputs, party, unreached):
        result.nodes += 1
        if on_node is not None:
            on_node(step.label)
        for name, value in step.inputs.items():
            if _bad(value) is not None and name not in tainted:
                tainted.add(name)
                result.constants.append(name)
        passed_on = bool(tainted.intersection(step.inputs))
        for name, value in step.outputs.items():
            bad = _bad(value)
            if bad is None:
                continue
            # A NaN out of infinite constants is news; another infinity is not.
            fresh_nan = bool(np.isnan(value.astype(np.float64)).any()) and not any(
                np.isnan(v.astype(np.float64)).any()
                for v in step.inputs.values()
                if _bad(v) is not None
            )
            constant = step.node.op_type in ("Constant", "ConstantOfShape") and not step.node.domain
            if fresh_nan and not constant:
                bad = np.isnan(value.astype(np.float64))
            elif passed_on or constant:
                if constant:
                    result.constants.append(name)
                tainted.add(name)
                continue
            result.first = _make(step, name, bad, model_64)
            result.not_reached = unreached.reasons
            return result
    result.not_reached = unreached.reasons
    return result
