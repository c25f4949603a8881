# SPDX-License-Identifier: Apache-2.0
"""The body of each operator: as a model-local function and expanded in place."""

from __future__ import annotations

import itertools

import ml_dtypes
import myops.ort
import numpy as np
import onnx
import onnxruntime
import pytest
from myops._errors import ModelError
from myops.onnx import add_functions, expand, function_proto
from myops.onnx import model as onnx_model
from myops.spec import DOMAIN, SPECS
from onnx import TensorProto, helper, inliner
from onnx.reference import ReferenceEvaluator

from ..support import each_spec, each_spec_with
from .models import info, model_of, our_node, typed_model
from .support import (
    ONNX_TYPES,
    attributes,
    each_dtype,
    plain_session,
)

NUMPY = {
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}

SETS = [s for n in (1, 2, 3, 4) for s in itertools.combinations(NUMPY, n)]

# bfloat16 exists since 13, CastLike, which serves several types, since 15.
OPSETS = (9, 11, 12, 13, 14, 15, 18, 21, 23)


def _usable(dtypes: tuple[str, ...], opset: int) -> bool:
    return (len(dtypes) == 1 or opset >= 15) and ("bfloat16" not in dtypes or opset >= 13)


def _inputs(spec, dtypes: tuple[str, ...]) -> dict[str, np.ndarray]:
    x = np.linspace(*spec.domain, 257)
    return {f"x_{d}": x.astype(NUMPY[d]) for d in dtypes}


def _close(actual: np.ndarray, exact: np.ndarray, rtol: float, atol: np.ndarray) -> None:
    error = np.abs(actual.astype(np.float64) - exact)
    allowed = rtol * np.abs(exact) + atol
    worst = int(np.argmax(error - allowed))
    assert np.all(error <= allowed), (worst, actual[worst], exact[worst], allowed[worst])


def _terms(spec, x: np.ndarray) -> np.ndarray:
    """The size of what a body adds up: in its tail little of that is left."""
    return np.maximum(1, np.abs(x.astype(np.float64))) ** len(spec.inputs)


def _check(actual: np.ndarray, x: np.ndarray, spec, dtype: str) -> None:
    assert actual.dtype == NUMPY[dtype]
    exact = spec.reference(*[x.astype(np.float64)] * len(spec.inputs), **attributes(spec))
    tolerance = {"float32": 2e-6, "float64": 1e-14, "float16": 1e-3, "bfloat16": 8e-3}[dtype]
    epsilon = np.finfo(np.float64 if dtype == "float64" else np.float32).eps
    _close(actual, exact, tolerance, 1.5 * epsilon * _terms(spec, x))


# Single types at the oldest opset and at a newer one, and all of them together.
FEW = [
    *(((dtype,), opset) for opset in (9, 13, 18) for dtype in NUMPY if _usable((dtype,), opset)),
    (SETS[-1], 18),
]


@each_spec_with(("dtypes", "opset"), [(s, o) for o in OPSETS for s in SETS if _usable(s, o)], FEW)
def test_function_under_the_reference_evaluator(spec, dtypes, opset):
    """Needs nothing but the onnx package: no exporter, no runtime."""
    model = typed_model(spec, dtypes, opset)
    model.functions.append(function_proto(spec, [ONNX_TYPES[d] for d in dtypes], opset))
    model.ir_version = max(model.ir_version, 8)
    onnx.checker.check_model(model, full_check=True)
    if opset < 12:
        # The evaluator does not hand a function's attributes to LeakyRelu; inlined they are there.
        model = inliner.inline_local_functions(model)
    feeds = _inputs(spec, dtypes)
    for dtype, y in zip(dtypes, ReferenceEvaluator(model).run(None, feeds), strict=True):
        _check(y, feeds[f"x_{dtype}"], spec, dtype)


@each_spec_with(
    ("dtypes", "opset"),
    [(s, o) for o in OPSETS for s in SETS if o >= 13],
    [case for case in FEW if case[1] >= 13],
)
def test_expanded_under_the_reference_evaluator(spec, dtypes, opset):
    model = typed_model(spec, dtypes, opset)
    expand(model)
    assert onnx_model.our_nodes(model) == []
    assert onnx_model.opset(model, DOMAIN) is None
    onnx.checker.check_model(model, full_check=True)
    feeds = _inputs(spec, dtypes)
    for dtype, y in zip(dtypes, ReferenceEvaluator(model).run(None, feeds), strict=True):
        _check(y, feeds[f"x_{dtype}"], spec, dtype)


@each_spec_with("dtypes", SETS, [*((dtype,) for dtype in NUMPY), SETS[-1]])
@pytest.mark.parametrize("way", [add_functions, expand])
def test_in_onnx_runtime_without_the_plugin(spec, dtypes, way, tmp_path):
    """All types of one name in one file. bfloat16 arrays are cast in the graph: the Python API
    has none."""
    kept = [d for d in dtypes if d != "bfloat16"]
    model = typed_model(spec, dtypes, 18)
    if "bfloat16" in dtypes:
        graph = model.graph
        graph.input.remove(next(i for i in graph.input if i.name == "x_bfloat16"))
        graph.output.remove(next(o for o in graph.output if o.name == "y_bfloat16"))
        graph.input.append(info("x", "float32"))
        graph.output.append(info("y", "float32"))
        to = TensorProto.BFLOAT16
        graph.node.insert(0, helper.make_node("Cast", ["x"], ["x_bfloat16"], "in", to=to))
        graph.node.append(helper.make_node("Cast", ["y_bfloat16"], ["y"], "out", to=1))
    way(model)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, tmp_path / "m.onnx")
    feeds = _inputs(spec, dtypes)
    if "bfloat16" in dtypes:
        feeds["x"] = feeds.pop("x_bfloat16").astype(np.float32)
    names = [f"y_{d}" for d in kept] + ["y"] * ("bfloat16" in dtypes)
    # Below the level that fuses, whose sigmoid is less accurate than a test of the body needs.
    session = plain_session(
        tmp_path / "m.onnx",
        graph_optimization_level=onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    )
    results = dict(zip(names, session.run(names, feeds), strict=True))
    for dtype in kept:
        x = feeds[f"x_{dtype}"]
        exact = spec.reference(*[x.astype(np.float64)] * len(spec.inputs), **attributes(spec))
        tolerance = {"float32": 1e-5, "float64": 1e-13, "float16": 2e-3}[dtype]
        _close(results[f"y_{dtype}"], exact, tolerance, tolerance * _terms(spec, x))
    if "bfloat16" in dtypes:
        x = feeds["x"].astype(np.float64)
        exact = spec.reference(*[x] * len(spec.inputs), **attributes(spec))
        _close(results["y"], exact, 1.6e-2, 1e-3 * _terms(spec, x))


class _OpTypes:
    """Collects the operator types of a body."""

    def __init__(self) -> None:
        self.found: set[str] = set()

    def constant(self, value: float) -> str:
        return "constant"

    def __getattr__(self, op_type: str):
        self.found.add(op_type)
        return lambda *_, **attributes: op_type


@each_spec
def test_body_per_type(spec):
    """float64 has a body of its own where ONNX Runtime lacks kernels for what it makes of the
    other; the newest runtime has them, so that running it proves nothing."""
    for double, body in ((False, spec.body), (True, spec.body_float64 or spec.body)):
        expected = _OpTypes()
        body(expected, *spec.inputs, *spec.defaults())
        element_type = TensorProto.DOUBLE if double else TensorProto.FLOAT
        function = function_proto(spec, [element_type], 18)
        model = typed_model(spec, ("float64" if double else "float32",), 18)
        expand(model)
        for nodes in (function.node, model.graph.node):
            found = {n.op_type for n in nodes} - {"Constant", "Cast"}
            assert found == expected.found
    assert spec.name != "Swish" or "Sigmoid" not in expected.found


@each_spec
@pytest.mark.parametrize("opset", [9, 13, 14])
def test_several_types_below_cast_like(spec, opset, check_message):
    with pytest.raises(ModelError) as raised:
        function_proto(spec, [TensorProto.FLOAT, TensorProto.DOUBLE], opset)
    text = check_message(raised.value)
    assert "float32, float64" in text
    assert f"opset {opset}" in text


@each_spec
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_expanding_a_node_without_attributes_uses_defaults(spec, dtype, tmp_path):
    model = model_of([our_node(spec, "x", "y")], [info("x", dtype)], [info("y", dtype)])
    x = np.linspace(*spec.domain, 33).astype(NUMPY[dtype])
    exact = spec.reference(*[x.astype(np.float64)] * len(spec.inputs), **spec.defaults())
    expand(model)
    onnx.save(model, tmp_path / "m.onnx")
    (y,) = plain_session(tmp_path / "m.onnx").run(None, {"x": x})
    _close(y, exact, 2e-3, 1e-3 * _terms(spec, x))


@each_spec
@pytest.mark.parametrize("way", [add_functions, expand, None], ids=["function", "native", "custom"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_inputs_keep_their_order(spec, way, dtype, tmp_path):
    call = helper.make_node(spec.name, spec.inputs, ["y"], "n", domain=DOMAIN, **attributes(spec))
    model = model_of([call], [info(name, dtype) for name in spec.inputs], [info("y", dtype)])
    if way is not None:
        way(model)
    onnx.save(model, tmp_path / "m.onnx")
    x = np.linspace(-3, 3, 65).astype(NUMPY[dtype])
    feeds = {name: np.roll(x, 7 * i) for i, name in enumerate(spec.inputs)}
    exact = spec.reference(*(v.astype(np.float64) for v in feeds.values()), **attributes(spec))
    for session in [myops.ort.session] + [plain_session] * (way is not None):
        (y,) = session(tmp_path / "m.onnx").run(None, feeds)
        np.testing.assert_allclose(y, exact, rtol=1e-5, atol=1e-5)


@each_spec
def test_expand_keeps_names_of_the_graph(spec):
    model = typed_model(spec, ("float32", "float16"), 18)
    before = ([i.name for i in model.graph.input], [o.name for o in model.graph.output])
    expand(model)
    assert before == ([i.name for i in model.graph.input], [o.name for o in model.graph.output])
    names = [node.name for node in model.graph.node]
    assert len(set(names)) == len(names)
    outputs = [name for node in model.graph.node for name in node.output]
    assert len(set(outputs)) == len(outputs)


@each_spec
def test_adding_functions_twice_changes_nothing_and_keeps_others(spec):
    model = typed_model(spec, ("float32", "float16"), 18)
    copy = helper.make_node("Identity", ["a"], ["b"], "copy")
    imports = [helper.make_opsetid("", 18)]
    model.functions.append(helper.make_function("user", "Copy", ["a"], ["b"], [copy], imports))
    add_functions(model)
    assert [f.domain for f in model.functions] == ["user", DOMAIN]
    once = model.SerializeToString(deterministic=True)
    add_functions(model)
    assert model.SerializeToString(deterministic=True) == once


def test_model_without_our_nodes_is_left_alone():
    model = model_of(
        [helper.make_node("Relu", ["x"], ["y"], "relu")],
        [info("x", "float32")],
        [info("y", "float32")],
    )
    before = model.SerializeToString(deterministic=True)
    add_functions(model)
    assert model.SerializeToString(deterministic=True) == before
    expand(model)
    assert [entry.domain for entry in model.opset_import] == [""]


@pytest.mark.parametrize("way", [add_functions, expand])
def test_unknown_operator(way, check_message):
    node = helper.make_node("Nonsense", ["x"], ["y"], "the_node", domain=DOMAIN)
    with pytest.raises(ModelError) as raised:
        way(model_of([node], [info("x", "float32")], [info("y", "float32")]))
    text = check_message(raised.value)
    assert "Nonsense" in text
    assert "the_node" in text
    assert all(spec.name in text for spec in SPECS)


@each_spec
@pytest.mark.parametrize("way", [add_functions, expand])
@pytest.mark.parametrize("element_type", [TensorProto.INT32, TensorProto.FLOAT8E4M3FN, 0])
def test_element_type_that_is_not_usable(spec, way, element_type, check_message):
    value = helper.make_tensor_value_info("x", element_type, ["N"])
    if element_type == 0:
        value = onnx.ValueInfoProto(name="x")
    output = onnx.ValueInfoProto(name="y")
    with pytest.raises(ModelError) as raised:
        way(model_of([our_node(spec, "x", "y")], [value], [output]))
    assert "y_node" in check_message(raised.value)


@each_spec
@each_dtype
def test_types_are_inferred_behind_our_nodes(spec, dtype):
    model = model_of(
        [
            our_node(spec, "x", "a"),
            helper.make_node("Identity", ["a"], ["b"], "identity"),
            our_node(spec, "b", "y"),
        ],
        [info("x", dtype)],
        [onnx.ValueInfoProto(name="y")],
    )
    before = model.SerializeToString(deterministic=True)
    types = onnx_model.element_types(model)
    assert {types[name] for name in "xaby"} == {ONNX_TYPES[dtype]}
    assert model.SerializeToString(deterministic=True) == before
