# SPDX-License-Identifier: Apache-2.0
"""Each kind of replacement on its own: the nodes that go against those that come, over the whole
range of their inputs. Needs no weights, and says how much a numeric change changes."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from myops._errors import ModelError
from myops.onnx import functions
from myops.onnx import model as onnx_model
from myops.onnx.inject.candidates import CUSTOM, Candidate
from myops.onnx.inject.compare import run, run_reference
from myops.onnx.inject.files import Workspace
from myops.onnx.inject.matcher import Matcher
from myops.onnx.inject.rewrite import replacement
from myops.onnx.inject.safety import HALVES
from myops.spec import DOMAIN_VERSION
from myops.verify.compare import Tolerance, compare

WHERE = "myops.onnx.inject"

# What two correct ways to compute an operator may differ by, absolute and relative.
_TOLERANCE = {"float32": 1e-5, "float64": 1e-10, "float16": 2e-3, "bfloat16": 1.6e-2}
_USUAL = 32.0
_ROW = 64
_LEAST_IR = 8


@dataclass(frozen=True)
class PieceDifference:
    """How far one kind of replacement is from what it replaces.

    Attributes:
        operator, target, dtype: of the replacement.
        places: how many places of the model it stands for.
        count: values compared.
        changed: of them, those that differ at all.
        max_abs, max_ulp: largest difference, absolute and in units in the last place.
        explained: values for which the original overflows and the replacement is finite.
        wrong: values further from float64 than rounding, and than those before.
        allowed: whether a numeric change was allowed, so that none is wrong.
    """

    operator: str
    target: str
    dtype: str
    places: int
    count: int
    changed: int
    max_abs: float
    max_ulp: float
    explained: int
    wrong: int
    allowed: bool

    @property
    def ok(self) -> bool:
        return self.allowed or self.wrong == 0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"ok": self.ok}


def _imports(candidate: Candidate, model: ModelProto) -> list[onnx.OperatorSetIdProto]:
    scope = candidate.scope
    while scope.parent is not None:
        scope = scope.parent
    held = scope.proto.opset_import if isinstance(scope.proto, FunctionProto) else ()
    domain = candidate.spec.namespace
    entries = [e for e in (held or model.opset_import) if e.domain != domain]
    return [*entries, helper.make_opsetid(domain, DOMAIN_VERSION)]


def _closure(candidate: Candidate, base: str) -> tuple[list[NodeProto], list[TensorProto]]:
    """The nodes between a site's inputs and outputs, and the constants they read."""
    scope, site = candidate.scope, candidate.site(candidate.choice)
    matcher = Matcher(scope, base)
    nodes: dict[int, NodeProto] = {}
    aliases: dict[str, NodeProto] = {}
    constants: dict[str, TensorProto] = {}
    pending = list(site.outputs)
    while pending:
        tensor = pending.pop()
        if not tensor or tensor in site.inputs:
            continue
        alike = next((name for name in site.inputs if matcher.same(name, tensor)), None)
        if alike is not None:
            aliases[tensor] = helper.make_node("Identity", [alike], [tensor])
            continue
        found = matcher.constant(tensor)
        if found is not None and found.value is not None:
            constants[tensor] = numpy_helper.from_array(found.value, tensor)
            continue
        index = scope.producers.get(tensor)
        if index is not None and index not in nodes:
            nodes[index] = scope.nodes[index]
            pending += scope.nodes[index].input
    return [*aliases.values(), *(nodes[i] for i in sorted(nodes))], list(constants.values())


def _model(
    candidate: Candidate,
    model: ModelProto,
    nodes: Sequence[NodeProto],
    constants: Sequence[TensorProto],
) -> ModelProto:
    """A model around nodes. bfloat16 has no numpy arrays: it is cast from and to float32."""
    site = candidate.site(candidate.choice)
    kind = site.element_type
    odd = kind == TensorProto.BFLOAT16
    outer = TensorProto.FLOAT if odd else kind
    names = list(dict.fromkeys(site.inputs))
    given = {name: f"given_{i}" if odd else name for i, name in enumerate(names)}
    read = {name: f"read_{i}" if odd else name for i, name in enumerate(site.outputs)}
    before = [helper.make_node("Cast", [given[n]], [n], to=kind) for n in names if odd]
    after = [helper.make_node("Cast", [n], [read[n]], to=outer) for n in site.outputs if odd]
    graph = helper.make_graph(
        [*before, *nodes, *after],
        "piece",
        [helper.make_tensor_value_info(given[n], outer, None) for n in names],
        [helper.make_tensor_value_info(read[n], outer, None) for n in site.outputs],
        list(constants),
    )
    made: ModelProto = helper.make_model(
        graph,
        opset_imports=_imports(candidate, model),
        ir_version=max(model.ir_version, _LEAST_IR),
    )
    domain = candidate.spec.namespace
    if candidate.choice == CUSTOM and any(node.domain == domain for node in nodes):
        opset = onnx_model.opset(made) or 1
        made.functions.append(functions.function_proto(candidate.spec, [kind], opset))
    return made


def _values(candidate: Candidate) -> list[npt.NDArray[Any]]:
    """Inputs of an operator: its domain, both tails, for the halves every finite pattern."""
    site, spec = candidate.site(candidate.choice), candidate.spec
    kind = site.element_type
    dtype = np.dtype(np.float32)
    if kind != TensorProto.BFLOAT16:
        dtype = helper.tensor_dtype_to_np_dtype(kind)
    rng = np.random.default_rng(0)
    if spec.kind == "norm":
        x = rng.standard_normal((48, _ROW)) * np.logspace(-2, 2, 48)[:, None]
        rows = [x if i == 0 else rng.standard_normal(x.shape) for i in range(len(spec.inputs) - 1)]
        return [a.astype(dtype) for a in (*rows, rng.standard_normal(_ROW))]
    if kind == TensorProto.FLOAT16:
        x = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64)
        x = x[np.isfinite(x)]
    else:
        largest = 37 if kind != TensorProto.DOUBLE else 300
        tail = np.logspace(-largest, largest, 801)
        x = np.concatenate([np.linspace(*spec.domain, 4001), tail, -tail, [0.0, -0.0]])
    x = np.concatenate([x, np.zeros(-len(x) % _ROW)]).reshape(-1, _ROW)
    # Far from the tails, so that no product of two inputs overflows.
    others = [rng.standard_normal(x.shape) for _ in spec.inputs[1:]]
    rank = max(candidate.match.rank, 2)
    arrays = [a.reshape((1,) * (rank - 2) + a.shape).astype(dtype) for a in (x, *others)]
    if spec.broadcasts:
        arrays[1:] = [a.reshape(-1, _ROW)[0] for a in arrays[1:]]
    return arrays


def _before(path: Path, feeds: dict[str, npt.NDArray[Any]], half: bool) -> list[Any]:
    """What the nodes that go compute. For the halves onnx's evaluator says it: ONNX Runtime leaves
    out roundings between them that the model asks for."""
    if half:
        with contextlib.suppress(Exception):  # whatever its numpy code happens to raise
            return run_reference(path, feeds)
    try:
        return run(path, feeds, False)
    except ModelError:  # an operator that ONNX Runtime lacks
        return run_reference(path, feeds)


def _truth(
    candidate: Candidate, given: Sequence[npt.NDArray[np.float64]], dtype: str
) -> list[npt.NDArray[np.float64]]:
    """The operator in float64, rounded to the dtype (bfloat16 has float32's range)."""
    with np.errstate(all="ignore"):
        result = candidate.spec.reference(*given, **candidate.match.parameters)
        results = result if isinstance(result, tuple) else (result,)
        rounded = "float32" if dtype == "bfloat16" else dtype
        return [np.asarray(np.asarray(r).astype(rounded), np.float64) for r in results]


def _limit(
    candidate: Candidate, given: Sequence[npt.NDArray[np.float64]], dtype: str
) -> npt.NDArray[np.float64] | float:
    """What is below notice. ONNX Runtime's own sigmoid is right to an absolute error, which the
    factors behind it make larger."""
    if candidate.spec.kind == "norm":
        return _TOLERANCE[dtype]
    sizes = [np.maximum(1.0, np.abs(array)) for array in given]
    factor: npt.NDArray[np.float64] = np.ones(1)
    for size in sizes:
        factor = factor * np.where(size <= _USUAL, size, 1.0)
    return _TOLERANCE[dtype] * factor


def _distance(
    values: npt.NDArray[np.float64], truth: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Infinite between a special value and another."""
    with np.errstate(invalid="ignore"):
        distance = np.abs(values - truth)
    same = (values == truth) | (np.isnan(values) & np.isnan(truth))
    return np.where(same, 0.0, np.where(np.isnan(distance), np.inf, distance))


def _compare(
    candidate: Candidate,
    model: ModelProto,
    base: str,
    space: Workspace,
    plugin: str | bool | None,
    places: int,
    allowed: bool,
) -> PieceDifference:
    site = candidate.site(candidate.choice)
    before = space.write("before.onnx", _model(candidate, model, *_closure(candidate, base)))
    after = space.write("after.onnx", _model(candidate, model, replacement(candidate), ()))
    arrays: dict[str, npt.NDArray[Any]] = {}
    for array, tensor in zip(_values(candidate), site.inputs, strict=True):
        arrays.setdefault(tensor, array)
    feeds = arrays
    if site.element_type == TensorProto.BFLOAT16:
        feeds = {f"given_{i}": array for i, array in enumerate(arrays.values())}
    wanted = _before(before, feeds, site.element_type in HALVES)
    got = run(after, feeds, plugin, "all")
    dtype = onnx_model.DTYPES[site.element_type]
    given = [np.asarray(arrays[tensor], np.float64) for tensor in site.inputs]
    truths = _truth(candidate, given, dtype)
    limit = _limit(candidate, given, dtype)
    total = [0, 0, 0, 0]
    worst = [0.0, 0.0]
    for one, other, truth in zip(wanted, got, truths, strict=True):
        old, new = np.asarray(one, np.float64), np.asarray(other, np.float64)
        overflowed = ~np.isfinite(old) & np.isfinite(new)
        differs = (new != old) & ~(np.isnan(new) & np.isnan(old))
        error = _distance(new, truth)
        wrong = (error > limit + _TOLERANCE[dtype] * np.abs(truth)) & (
            error > _distance(old, truth)
        )
        for i, mask in enumerate((np.ones_like(wrong), differs, overflowed, wrong)):
            total[i] += int(mask.sum())
        found = compare(
            np.where(overflowed, 0.0, new), np.where(overflowed, 0.0, old), dtype, Tolerance()
        )
        worst = [max(worst[0], found.max_abs), max(worst[1], found.max_ulp)]
    return PieceDifference(
        candidate.spec.name,
        candidate.choice,
        dtype,
        places,
        total[0],
        total[1],
        worst[0],
        worst[1],
        total[2],
        total[3],
        allowed,
    )


def _key(candidate: Candidate) -> tuple[Any, ...]:
    site = candidate.site(candidate.choice)
    inner = tuple(candidate.scope.nodes[i].op_type for i in sorted(site.nodes))
    parameters = tuple(sorted(candidate.match.parameters.items()))
    return (
        candidate.spec.name,
        candidate.choice,
        site.element_type,
        candidate.scope.opset,
        inner,
        parameters,
        len(set(site.inputs)),
    )


def check(
    model: ModelProto,
    candidates: Sequence[Candidate],
    base: str,
    space: Workspace,
    plugin: str | bool | None,
    allow_numeric_change: bool,
) -> list[PieceDifference]:
    """Compares every kind of replacement among the chosen candidates.

    Raises:
        ModelError: one differs by more than rounding.
    """
    kinds: dict[tuple[Any, ...], list[Candidate]] = {}
    for candidate in candidates:
        if candidate.choice:
            kinds.setdefault(_key(candidate), []).append(candidate)
    found = []
    for alike in kinds.values():
        allowed = allow_numeric_change and alike[0].numeric
        piece = _compare(alike[0], model, base, space, plugin, len(alike), allowed)
        found.append(piece)
        if not piece.ok:
            raise ModelError(
                WHERE,
                f"{piece.operator} as {piece.target} nodes should give the values of the nodes it "
                f"replaces at {alike[0].place!r}",
                f"{piece.wrong} of {piece.count} values beyond rounding, largest difference "
                f"{piece.max_abs:.3g}",
                "Nothing was written. Leave the operator out with --op, and report the model",
            )
    return found
