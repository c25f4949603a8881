# SPDX-License-Identifier: Apache-2.0
"""What to do without measuring: a table, from measurements on x86-64 CPUs. ``docs/inject.md`` shows
it. Measuring on the target machine knows better."""

from __future__ import annotations

from dataclasses import dataclass

from onnx import TensorProto

from myops.onnx.inject.candidates import CUSTOM, NATIVE, Candidate
from myops.onnx.inject.safety import HALVES

BESIDE_CONV = "beside Conv"
ELSEWHERE = "elsewhere"

# Between a convolution and what is looked for: fused into it or done in its layout.
_PASSES = ("BatchNormalization",)
_CONVOLUTIONS = ("Conv", "ConvTranspose", "FusedConv")


@dataclass(frozen=True)
class Rule:
    """One row; the first that fits decides.

    Attributes:
        operators: names, none for any.
        neighbours: ``BESIDE_CONV``, ``ELSEWHERE`` or empty for any.
        half: only for float16 and bfloat16, or only for the others; None for any.
        fused: only where ONNX Runtime fuses the present spelling by itself; None for any.
        since: the least version of ONNX Runtime.
        target: "custom", "native" or empty for leaving it alone.
        why: for people.
    """

    operators: tuple[str, ...]
    neighbours: str
    half: bool | None
    fused: bool | None
    since: tuple[int, int]
    target: str
    why: str


TABLE = (
    Rule((), "", True, None, (1, 16), CUSTOM, "ONNX Runtime fuses nothing in a half type"),
    Rule(
        ("HardSwish",),
        BESIDE_CONV,
        False,
        None,
        (1, 26),
        NATIVE,
        "HardSigmoid and Mul stay in the blocked layout of convolutions",
    ),
    Rule(
        ("Swish",),
        BESIDE_CONV,
        False,
        True,
        (1, 17),
        "",
        "ONNX Runtime fuses it into QuickGelu, which stays in the blocked layout of convolutions",
    ),
    Rule(
        ("Swish",),
        BESIDE_CONV,
        False,
        False,
        (1, 17),
        NATIVE,
        "Sigmoid and Mul are fused into QuickGelu, which stays in the layout of convolutions",
    ),
    Rule(
        ("Gelu",), "", False, True, (1, 16), "", "ONNX Runtime fuses it into a node as fast as ours"
    ),
    Rule((), "", False, None, (1, 16), CUSTOM, "one pass over memory in the place of several"),
)


def neighbours(candidate: Candidate) -> str:
    """Whether a convolution makes the input."""
    scope, tensor = candidate.scope, candidate.plain.inputs[0]
    for _ in range(3):
        node = scope.producer(tensor)
        if node is None:
            break
        if node.op_type in _CONVOLUTIONS:
            return BESIDE_CONV
        if node.op_type not in _PASSES:
            break
        tensor = node.input[0]
    return ELSEWHERE


def group(candidate: Candidate) -> str:
    """The name of what is decided together: operator, element type, neighbours."""
    kind = TensorProto.DataType.Name(candidate.site(CUSTOM).element_type).lower()
    kind = "" if kind == "float" else f" {kind}"
    return f"{candidate.spec.name}{kind} {neighbours(candidate)}"


def by_rule(candidate: Candidate, version: tuple[int, int]) -> tuple[str, str]:
    """What the table says: a target, empty for leaving it alone, and why."""
    fused = NATIVE in candidate.refused_for
    half = candidate.site(CUSTOM).element_type in HALVES
    beside = neighbours(candidate)
    for rule in TABLE:
        if (
            (not rule.operators or candidate.spec.name in rule.operators)
            and rule.neighbours in ("", beside)
            and rule.half in (None, half)
            and rule.fused in (None, fused)
            and version >= rule.since
        ):
            return rule.target, rule.why
    return "", f"no rule for ONNX Runtime {'.'.join(map(str, version))}"
