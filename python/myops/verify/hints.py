# SPDX-License-Identifier: Apache-2.0
"""Why do numbers differ? The usual causes, each named only where an experiment shows it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, TensorProto

from myops.onnx import model as onnx_model
from myops.onnx.inputs import NCHW_TO_NHWC, NHWC_TO_NCHW
from myops.spec import SPECS
from myops.verify.bisect import Bisection
from myops.verify.compare import Tolerance, compare
from myops.verify.float64 import Float64
from myops.verify.parties import ALONE, PLUGIN, REFERENCE, Party, onnxruntime_party
from myops.verify.tolerances import largest_size
from myops.verify.torch_model import run_torch
from myops.verify.trace import node_name

if TYPE_CHECKING:
    import torch

Arrays = Mapping[str, npt.NDArray[Any]]
Outputs = Sequence[npt.NDArray[Any]]

_RUNTIMES = 2
_PRODUCTS = frozenset(("Conv", "ConvTranspose", "MatMul", "Gemm", "Einsum", "Attention"))


@dataclass(frozen=True)
class Hint:
    """A likely cause.

    Attributes:
        cause: "non-contiguous input", "implicit float64", "layout", "decomposition",
            "optimization" or "TF32".
        evidence: what the experiment showed, and what to do.
    """

    cause: str
    evidence: str

    def to_dict(self) -> dict[str, str]:
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.cause}: {self.evidence}."


def close(results: Outputs, truth: Outputs, relative: float) -> bool:
    """Whether all outputs are within ``relative`` of their truth's largest value."""
    if len(results) != len(truth) or any(
        np.shape(a) != np.shape(b) for a, b in zip(results, truth, strict=True)
    ):
        return False
    for result, expected in zip(results, truth, strict=True):
        limit = Tolerance(absolute=relative * largest_size(expected))
        if not compare(result, np.asarray(expected, np.float64), "float64", limit).ok:
            return False
    return True


def non_contiguous(model: torch.nn.Module, inputs: Arrays, relative: float) -> Hint | None:
    """Does the torch model give other numbers on contiguous copies?"""
    strided = [name for name, array in inputs.items() if not array.flags.c_contiguous]
    if not strided:
        return None
    copies = {name: np.ascontiguousarray(array) for name, array in inputs.items()}
    as_given, contiguous = run_torch(model, inputs), run_torch(model, copies)
    if close(as_given, [np.asarray(a, np.float64) for a in contiguous], relative):
        return None
    return Hint(
        "non-contiguous input",
        f"the torch model gives other numbers when {', '.join(strided)} is made contiguous, which "
        "means one of its operators misreads strides: call .contiguous() before the model",
    )


def implicit_float64(model: ModelProto) -> Hint | None:
    """Does a model without float64 inputs compute in float64 somewhere?"""
    types = onnx_model.element_types(model)
    if any(v.type.tensor_type.elem_type == TensorProto.DOUBLE for v in model.graph.input):
        return None
    for node in onnx_model.nodes(model.graph):
        if any(types.get(name) == TensorProto.DOUBLE for name in node.output):
            return Hint(
                "implicit float64",
                f"no input is float64, but node {node_name(node)!r} ({node.op_type}) gives "
                "float64: look for a numpy scalar or a float64 constant in the model",
            )
    return None


def _permuted(results: Outputs, truth: Outputs, relative: float) -> tuple[int, ...] | None:
    for order in (NCHW_TO_NHWC, NHWC_TO_NCHW):
        turned = [np.transpose(a, order) if np.ndim(a) == 4 else a for a in results]
        if any(np.ndim(a) == 4 for a in results) and close(turned, truth, relative):
            return order
    return None


def layout(
    party: Party, path: str, inputs: Arrays, results: Outputs, truth: Outputs, relative: float
) -> Hint | None:
    """Do the numbers agree once outputs, or inputs, change between NCHW and NHWC?"""
    found = _permuted(results, truth, relative)
    if found is not None:
        return Hint(
            "layout",
            f"the outputs of {party.name} are right after numpy.transpose(y, {found}): one side "
            "is NHWC, the other NCHW",
        )
    for order in (NCHW_TO_NHWC, NHWC_TO_NCHW):
        # The same elements in the other order, told to be of the shape the model wants.
        turned = {
            name: np.ascontiguousarray(np.transpose(a, order)).reshape(a.shape)
            if a.ndim == 4
            else a
            for name, a in inputs.items()
        }
        if all(turned[name] is inputs[name] for name in inputs):
            return None
        try:
            again = party.run(path, turned)
        except Exception:  # another input may not be allowed
            continue
        if close(again, truth, relative):
            return Hint(
                "layout",
                f"{party.name} is right on inputs whose elements are in the order of "
                f"numpy.transpose(x, {order}): one side is NHWC, the other NCHW",
            )
    return None


def layout_of_file(results: Outputs, truth: Outputs, relative: float) -> Hint | None:
    """Do the file and the torch model agree once outputs change between NCHW and NHWC?"""
    found = _permuted(results, truth, relative)
    if found is None:
        return None
    return Hint(
        "layout",
        f"the file's outputs are the torch model's after numpy.transpose(y, {found}): one side is "
        "NHWC, the other NCHW",
    )


def decomposition(off: Sequence[str], model: ModelProto, has_special: bool) -> Hint | None:
    """Is the plugin right where ONNX Runtime without it is off?"""
    bodies = sorted(
        {f.name for f in model.functions} & {node.op_type for node in onnx_model.our_nodes(model)}
    )
    without = [name for name in (ALONE, REFERENCE) if name in off]
    if not without or PLUGIN in off or not bodies:
        return None
    how = "overflow" if has_special else "round at every step"
    return Hint(
        "decomposition",
        f"with the plugin the same file is right; in {' and '.join(without)} "
        f"{', '.join(bodies)} run as the "
        f"standard operators of their functions, which {how}: register the plugin",
    )


def optimization(
    party: Party,
    plugin: Any,
    path: str,
    inputs: Arrays,
    truth: Outputs,
    relative: float,
) -> Hint | None:
    """Is ONNX Runtime right without its graph optimisations?"""
    if party.name not in (PLUGIN, ALONE):
        return None
    plain = onnxruntime_party(False if party.name == ALONE else plugin, "disable")
    try:
        again = plain.run(path, inputs)
    except Exception:  # some files need an optimisation to load
        return None
    if not close(again, truth, relative):
        return None
    return Hint(
        "optimization",
        f"{party.name} is right with graph_optimization_level='disable': a fusion of ONNX Runtime "
        "changes the numbers",
    )


def to_tf32(array: npt.NDArray[Any], nearest: bool = True) -> npt.NDArray[Any]:
    """float32 with the 10 stored mantissa bits of TF32, rounded to nearest even or cut off."""
    bits = np.asarray(array, np.float32).view(np.uint32)
    half = 0xFFF + ((bits >> 13) & 1) if nearest else 0
    rounded = (bits + half) & np.uint32(0xFFFFE000)
    result: npt.NDArray[Any] = rounded.astype(np.uint32).view(np.float32)
    return result


def tf32(bisection: Bisection) -> Hint | None:
    """Is the wrong node a float32 product that is right for inputs rounded to TF32?"""
    step, judgement = bisection.step, bisection.judgement
    if step is None or judgement is None or step.node.op_type not in _PRODUCTS:
        return None
    if judgement.dtype != "float32" or judgement.comparison is None:
        return None
    index = list(step.node.output).index(judgement.output)
    evaluate = Float64(step.model).prepare(step.node)

    def explains(nearest: bool) -> bool:
        rounded = {
            name: to_tf32(v, nearest) if isinstance(v, np.ndarray) and v.dtype == np.float32 else v
            for name, v in step.inputs.items()
        }
        expected = evaluate(rounded)[index]
        return compare(judgement.received, expected, "float32", judgement.tolerance).ok

    if not explains(True) and not explains(False):
        return None
    return Hint(
        "TF32",
        f"node {step.where!r} is right for inputs rounded to TF32's 10 bits: switch it off with "
        "torch.backends.cuda.matmul.allow_tf32 = False, or use_tf32=0 of the CUDA provider",
    )


def reference_in_doubt(bisection: Bisection, results: Sequence[Outputs]) -> Hint | None:
    """Do the runtimes agree with each other, and none with onnx's evaluator, at a node that is not
    ours?"""
    step = bisection.step
    if step is None or bisection.party == REFERENCE:
        return None
    if SPECS.of_node(step.node.domain, step.node.op_type) is not None:
        return None
    if len(results) < _RUNTIMES:
        return None
    first, *others = results
    if not all(close(other, first, 1e-5) for other in others):
        return None
    return Hint(
        "reference",
        f"all runtimes agree with each other, and none with onnx's evaluator at node "
        f"{step.where!r} ({step.node.op_type}), where the evaluator may be the one that is wrong: "
        "hold the file against its torch model (--torch)",
    )


def safely(*experiments: Any) -> list[Hint]:
    """The hints of the experiments ``(function, *arguments)``. One that cannot be made gives
    none."""
    found = []
    for function, *arguments in experiments:
        with contextlib.suppress(Exception):
            hint = function(*arguments)
            if hint is not None:
                found.append(hint)
    return found
