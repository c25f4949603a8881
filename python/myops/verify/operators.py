# SPDX-License-Identifier: Apache-2.0
"""Every operator in every dtype, through every layer, against its float64 reference."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, TensorProto, helper

from myops import _build_info, registry
from myops.onnx import functions
from myops.onnx import model as onnx_model
from myops.spec import DOMAIN_VERSION, SPECS, OpSpec
from myops.verify.compare import Comparison, Tolerance, compare, truth_type
from myops.verify.parties import Party, one_line, onnx_parties
from myops.verify.report import Report, Row

_OPSET = 18
_ELEMENT_TYPES = {name: number for number, name in onnx_model.DTYPES.items()}

# Runtimes that evaluate the decomposed body round at every step, and ONNX Runtime's own sigmoid is
# constant below -18 in float32.
_THIRD_PARTY = {
    "float32": Tolerance(absolute=1e-6, relative=1e-5),
    "float64": Tolerance(absolute=1e-14, relative=1e-13),
    "float16": Tolerance(absolute=1e-6, relative=1e-3),
    "bfloat16": Tolerance(absolute=1e-6, relative=8e-3),
}


def round_to(values: npt.NDArray[Any], dtype: str) -> npt.NDArray[Any]:
    """``values`` rounded to ``dtype``; bfloat16 in a float32 array, which numpy has no type for."""
    if dtype != "bfloat16":
        with np.errstate(over="ignore"):
            return np.asarray(values, dtype=dtype)
    bits = np.asarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    quiet_nan = (bits | 0x400000) & np.uint32(0xFFFF0000)
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    chosen: npt.NDArray[Any] = np.where(is_nan, quiet_nan, rounded).astype(np.uint32)
    return chosen.view(np.float32)


def _all_halves(dtype: str) -> npt.NDArray[Any]:
    patterns = np.arange(1 << 16, dtype=np.uint16)
    if dtype == "float16":
        return patterns.view(np.float16)
    return (patterns.astype(np.uint32) << 16).view(np.float32)


def _sample_rows(spec: OpSpec, dtype: str, rng: np.random.Generator) -> list[npt.NDArray[Any]]:
    """Rows of 256 elements: all values of a 16-bit dtype, or magnitudes of every exponent, each row
    of one; and rows of zeros, with NaN and with an infinity. The weight is near 1."""
    width = 256
    if dtype in ("float16", "bfloat16"):
        rows = _all_halves(dtype).reshape(-1, width)
    else:
        limits = np.finfo(dtype)
        exponents = np.arange(int(limits.minexp), int(limits.maxexp), 3)
        rows = np.ldexp(rng.uniform(-1, 1, (exponents.size, width)), exponents[:, None])
    special = np.ones((3, width))
    special[0] = 0
    special[1, 7] = np.nan
    special[2, 9] = np.inf
    with np.errstate(invalid="ignore"):
        x = round_to(np.concatenate([rows, special]), dtype)
        inputs = [x]
        for _ in spec.inputs[1:-1]:
            # Sums that need no rounding: the reference does not know the dtype it would be to.
            inputs.append(round_to(np.where(np.arange(width) % 2, 0, -x / 2), dtype))
    return [*inputs, round_to(rng.uniform(0.5, 2, width), dtype)]


def sample(spec: OpSpec, dtype: str) -> list[npt.NDArray[Any]]:
    """Inputs for one operator.

    Elementwise, the first takes all values of a 16-bit dtype; else the domain, values of every
    exponent, and special values. The others stay in the domain, with zeros and NaN: what infinity
    times an underflown value gives depends on the precision.
    """
    rng = np.random.default_rng(0)
    if spec.sample is not None:
        return [round_to(values, dtype) for values in spec.sample(rng)]
    if spec.kind == "norm":
        return _sample_rows(spec, dtype, rng)
    if dtype in ("float16", "bfloat16"):
        values = _all_halves(dtype)
    else:
        limits = np.finfo(dtype)
        exponents = np.arange(int(limits.minexp) - 20, int(limits.maxexp))
        everywhere = np.ldexp(rng.uniform(1, 2, exponents.size), exponents)
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, limits.max, limits.tiny, 1.0]
        values = np.concatenate(
            [rng.uniform(*spec.domain, 40_000), everywhere, -everywhere, special]
        ).astype(dtype)
    others = []
    for _ in spec.inputs[1:]:
        other = rng.uniform(*spec.domain, values.size)
        other[:: values.size // 100] = rng.choice(
            [0.0, -0.0, np.nan], other[:: values.size // 100].size
        )
        others.append(round_to(rng.permutation(other), dtype))
    return [values, *others]


def attribute_sets(spec: OpSpec) -> Iterator[dict[str, float]]:
    """The defaults, where float32 holds them exactly, and other such values."""
    if spec.kind == "custom":
        yield spec.defaults()
        return
    if spec.kind == "norm":
        # The defaults are often no float32, as that of an eps, whose size matters most.
        for eps, factor in ((2.0**-20, 1.0), (2.0**-10, 1.75)):
            yield {
                a.name: eps if a.name == "eps" else float(np.float32(a.default * factor))
                for a in spec.attributes
            }
            if not spec.attributes:
                return
        return
    yield spec.defaults()
    if spec.attributes:
        for value in (1.75, 0.5):
            yield {a.name: value for a in spec.attributes}


def one_node_model(spec: OpSpec, dtype: str, attributes: Mapping[str, Any]) -> ModelProto:
    """A portable model with one node. bfloat16 comes and goes as float32, since numpy has no such
    type; the casts are exact."""
    element_type = _ELEMENT_TYPES[dtype]
    outer_type = TensorProto.FLOAT if dtype == "bfloat16" else element_type
    cast = outer_type != element_type
    nodes = [
        helper.make_node("Cast", [name], [f"{name}_cast"], to=element_type)
        for name in spec.inputs
        if cast
    ]
    node_inputs = [f"{name}_cast" if cast else name for name in spec.inputs]
    inner = [f"{name}_cast" if cast else name for name in spec.outputs]
    nodes.append(
        helper.make_node(
            spec.name, node_inputs, inner, name="node", domain=spec.namespace, **attributes
        )
    )
    if cast:
        nodes += [
            helper.make_node("Cast", [f"{name}_cast"], [name], to=outer_type)
            for name in spec.outputs
        ]
    rows = ["n"] if spec.kind == "elementwise" else ["n", "width"]
    dims = dict.fromkeys((*spec.inputs, *spec.outputs), rows)
    if spec.kind == "norm":
        dims[spec.inputs[-1]] = ["width"]
    if spec.sample is not None:
        arrays = spec.sample(np.random.default_rng(0))
        results = spec.reference(*arrays, **attributes)
        results = results if isinstance(results, tuple) else (results,)
        for name, array in zip(dims, (*arrays, *results), strict=True):
            dims[name] = [f"{name}_{i}" for i in range(array.ndim)]
    graph = helper.make_graph(
        nodes,
        spec.name,
        [helper.make_tensor_value_info(name, outer_type, dims[name]) for name in spec.inputs],
        [helper.make_tensor_value_info(name, outer_type, dims[name]) for name in spec.outputs],
    )
    imports = [helper.make_opsetid("", _OPSET), helper.make_opsetid(spec.namespace, DOMAIN_VERSION)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    functions.add_functions(model)
    return model


def _joined(arrays: Iterable[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """All results as one array."""
    arrays = list(arrays)
    return arrays[0] if len(arrays) == 1 else np.concatenate([a.ravel() for a in arrays])


def run_torch(
    spec: OpSpec, dtype: str, inputs: Sequence[npt.NDArray[Any]], attributes: dict[str, float]
) -> npt.NDArray[Any]:
    """The torch library's results, one after the other; bfloat16 in a float32 array."""
    import torch

    import myops.functional  # noqa: F401  (the operators must exist)

    tensors = [torch.from_numpy(np.array(array)).to(getattr(torch, dtype)) for array in inputs]
    results = getattr(getattr(torch.ops, spec.namespace), spec.torch_name)(*tensors, **attributes)
    results = results if isinstance(results, tuple) else (results,)
    return _joined([(r.float() if dtype == "bfloat16" else r).numpy() for r in results])


def _same_bits(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> bool:
    """Equal values, zeros with equal signs, NaN wherever the other has NaN."""
    equal = (left == right) & (np.signbit(left) == np.signbit(right))
    return bool(np.all(equal | (np.isnan(left) & np.isnan(right))))


def _finite(spec: OpSpec, inputs: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.bool_]:
    """Which results come from finite inputs only."""
    if spec.kind == "custom":
        return np.ones((), np.bool_)
    if spec.kind == "elementwise":
        return np.asarray(np.all([np.isfinite(array) for array in inputs], axis=0))
    # Runtimes square without care: rows whose squares stay in the exponent range.
    limit = 1e15
    size = np.abs(np.asarray(inputs[0], np.float64))
    fair = np.all((size < limit) & ((size > 1 / limit) | (size == 0)), axis=-1, keepdims=True)
    return _joined([np.broadcast_to(fair, size.shape)] * len(spec.outputs))


def operator_rows(
    spec: OpSpec,
    dtype: str,
    attributes: dict[str, float],
    parties: Sequence[Party],
    torch_too: bool,
    max_ulp: Mapping[str, float] | None = None,
) -> Iterator[Row]:
    """One operator with these attributes in one dtype through all parties, see
    ``verify_operators``."""
    inputs = sample(spec, dtype)
    with np.errstate(all="ignore"):
        precise = (np.asarray(a, truth_type(dtype)) for a in inputs)
        truth = spec.reference(*precise, **attributes)
    if isinstance(truth, tuple):
        truth = _joined(truth)
    detail = ", ".join(f"{name}={value:g}" for name, value in attributes.items())
    denormal = float(np.finfo("float64" if dtype == "float64" else "float32").smallest_subnormal)
    allowed = (max_ulp or {}).get(dtype, spec.max_ulp[dtype])
    strict = Tolerance(ulp=allowed, absolute=spec.denormals * denormal)
    # Composed of standard operators, -inf gives NaN (-inf * 0): runtimes that do so are right.
    finite = _finite(spec, inputs)
    # A function over whole tensors sums in an order of its own, which may cancel to either zero.
    elements = spec.kind != "custom"
    ours = None
    if torch_too:
        ours = run_torch(spec, dtype, inputs, attributes)
        first = compare(ours, truth, dtype, strict, signed_zeros=elements)
        yield Row(1, spec.name, detail, "torch library", dtype, first, strict, True)
    model = one_node_model(spec, dtype, attributes)
    for party in parties:
        tolerance = strict if party.ours else _THIRD_PARTY[dtype]
        comparison: Comparison | None
        same: bool | None
        try:
            result = _joined(party.run(model, dict(zip(spec.inputs, inputs, strict=True))))
        except Exception as error:  # a party that cannot run is a row, not the end
            comparison, same, note = None, None, one_line(error)
        else:
            judged = slice(None) if party.ours or not elements else finite
            comparison = compare(
                result[judged],
                truth[judged],
                dtype,
                tolerance,
                signed_zeros=party.ours and elements,
            )
            note = ""
            same = _same_bits(result, ours) if party.ours and ours is not None else None
        yield Row(
            layer=1,
            subject=spec.name,
            detail=detail,
            party=party.name,
            dtype=dtype,
            comparison=comparison,
            tolerance=tolerance,
            ours=party.ours,
            same_bits=same,
            note=note,
        )


def verify_operators(
    operators: Iterable[OpSpec] = SPECS,
    dtypes: Iterable[str] | None = None,
    plugin: str | os.PathLike[str] | None = None,
    max_ulp: Mapping[str, float] | None = None,
    on_operator: Callable[[str], object] | None = None,
) -> Report:
    """Verifies operators in isolation.

    Args:
        operators: which; all if not given.
        dtypes: which of float32, float64, float16, bfloat16; all if None.
        plugin: another plugin file than the installed one.
        max_ulp: by dtype, in place of ``OpSpec.max_ulp``.
        on_operator: called with the name of each operator.

    Returns:
        Per operator, attribute values and dtype a row for the torch library (where torch is
        installed), for ONNX Runtime with and without the plugin and for onnx's reference evaluator,
        each against the float64 reference. Our layers are held to ``OpSpec.max_ulp`` and must
        agree bit for bit; the others are held to a looser tolerance and never fail the report.
    """
    parties = onnx_parties(plugin)
    report = Report(truth="each operator's float64 reference")
    for spec in operators:
        if on_operator is not None:
            on_operator(spec.name)
        for dtype in dtypes or _build_info.dtypes:
            for attributes in attribute_sets(spec):
                torch_too = torch_has(spec)
                report.rows.extend(
                    operator_rows(spec, dtype, attributes, parties, torch_too, max_ulp)
                )
    return report


def has_torch() -> bool:
    """Whether the torch library is there to be judged."""
    return importlib.util.find_spec("torch") is not None and bool(_build_info.torch_version)


def torch_has(spec: OpSpec) -> bool:
    """Whether the operator is there in torch to be judged."""
    return has_torch() and registry.in_torch(spec)


def operators_in(model: ModelProto, most: int = 8) -> list[tuple[OpSpec, str, dict[str, float]]]:
    """Which operators a model uses, in which dtypes, with which attribute values: up to ``most``
    sets of them per operator and dtype."""
    types = onnx_model.element_types(model)
    specs: dict[str, OpSpec] = {}
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for node in onnx_model.our_nodes(model):
        dtype = onnx_model.DTYPES.get(types.get(node.input[0], 0))
        spec = SPECS.of_node(node.domain, node.op_type)
        if spec is None or dtype is None:
            continue
        specs[spec.name] = spec
        values = spec.defaults()
        values |= {a.name: a.f for a in node.attribute if a.name in values}
        sets = found.setdefault((node.op_type, dtype), [])
        if values not in sets and len(sets) < most:
            sets.append(values)
    return [(specs[name], dtype, v) for (name, dtype), sets in found.items() for v in sets]
