# SPDX-License-Identifier: Apache-2.0
"""The plugin as ONNX Runtime sees it: values, types, shapes, memory, threads."""

from __future__ import annotations

import itertools

import myops.functional
import myops.ort
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from myops.spec import ELEMENTWISE
from onnx import TensorProto, helper, numpy_helper

from ..support import each_spec
from .support import (
    ONNX_TYPES,
    attributes,
    by_hand,
    each_dtype,
    exact,
    info,
    model,
    node,
    untyped,
)


def _cast(source: str, target: str, to: int) -> onnx.NodeProto:
    return helper.make_node("Cast", [source], [target], f"{target}_cast", to=to)


def _through(spec, dtype: str, **values: float) -> bytes:
    """float64 in and out, with exact casts around the operator: works for bfloat16, of which the
    Python API has no arrays, like for the others."""
    element_type = ONNX_TYPES[dtype]
    return model(
        [_cast("x", "a", element_type), node(spec, "a", "b", **values), _cast("b", "y", 11)],
        [info("x", TensorProto.DOUBLE, ["N"])],
        [info("y", TensorProto.DOUBLE, ["N"])],
    )


def _patterns(dtype: str) -> torch.Tensor:
    """Every pattern of the halves; random ones, among them all exponents, of the others."""
    torch_dtype = getattr(torch, dtype)
    if dtype in ("float16", "bfloat16"):
        return torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch_dtype)
    integers = {"float32": np.uint32, "float64": np.uint64}[dtype]
    bits = np.random.default_rng(0).integers(
        0, np.iinfo(integers).max, 200_000, dtype=integers, endpoint=True
    )
    return torch.from_numpy(bits.view(dtype))


@each_spec
@each_dtype
@pytest.mark.parametrize("factor", [1.0, 1.75, -0.5, 0.0])
def test_torch_and_onnxruntime_give_the_same_bits(spec, dtype, factor):
    values = {a.name: a.default * factor for a in spec.attributes}
    x = _patterns(dtype)
    with np.errstate(invalid="ignore"):
        feed = x.double().numpy()
    (y,) = by_hand(_through(spec, dtype, **values)).run(None, {"x": feed})
    expected = getattr(myops.functional, spec.torch_name)(*[x] * len(spec.inputs), **values)
    expected = expected.double().numpy()
    np.testing.assert_array_equal(y, expected)
    number = ~np.isnan(y)
    np.testing.assert_array_equal(np.signbit(y[number]), np.signbit(expected[number]))


@each_spec
@each_dtype
def test_values_against_the_reference(spec, dtype, check_ulp):
    x = torch.linspace(*spec.domain, 20_001, dtype=torch.float64).to(getattr(torch, dtype))
    feed = x.double().numpy()
    (y,) = by_hand(_through(spec, dtype, **attributes(spec))).run(None, {"x": feed})
    wide = feed.astype(np.longdouble)
    expected = spec.reference(*[wide] * len(spec.inputs), **attributes(spec))
    computed = "float64" if dtype == "float64" else "float32"
    slack = spec.denormals * float(np.finfo(computed).smallest_subnormal)
    check_ulp(y, expected, dtype, spec.max_ulp[dtype], at=feed, slack=slack)


@each_spec
def test_four_dtypes_in_one_model(spec):
    """Output types are inferred, not declared: each node's is that of its own input."""
    nodes, outputs = [], []
    for dtype, element_type in ONNX_TYPES.items():
        nodes += [
            _cast("x", f"x_{dtype}", element_type),
            node(spec, f"x_{dtype}", f"s_{dtype}", **attributes(spec)),
            helper.make_node("Identity", [f"s_{dtype}"], [f"i_{dtype}"], f"id_{dtype}"),
            _cast(f"i_{dtype}", f"y_{dtype}", TensorProto.DOUBLE),
        ]
        outputs += [untyped(f"i_{dtype}"), untyped(f"y_{dtype}")]
    for order in (nodes, [*nodes[8:], *nodes[:8]]):
        session = by_hand(model(order, [info("x", TensorProto.DOUBLE, ["N"])], outputs))
        types = {o.name: o.type for o in session.get_outputs()}
        assert [types[f"i_{dtype}"] for dtype in ONNX_TYPES] == [
            "tensor(float)",
            "tensor(double)",
            "tensor(float16)",
            "tensor(bfloat16)",
        ]
        x = np.linspace(-3, 3, 100)
        results = session.run([f"y_{dtype}" for dtype in ONNX_TYPES], {"x": x})
        for dtype, y in zip(ONNX_TYPES, results, strict=True):
            tolerance = 2 * torch.finfo(getattr(torch, dtype)).eps
            np.testing.assert_allclose(
                y, exact(spec, x, **attributes(spec)), rtol=4 * tolerance, atol=4 * tolerance
            )


@each_spec
@each_dtype
def test_attribute_that_is_missing_is_the_default(spec, dtype):
    x = np.linspace(-3, 3, 100)
    written = by_hand(_through(spec, dtype, **spec.defaults())).run(None, {"x": x})[0]
    missing = by_hand(_through(spec, dtype)).run(None, {"x": x})[0]
    np.testing.assert_array_equal(missing, written)


@each_spec
@pytest.mark.parametrize("value", ["1.0", 1, [1.0], ["a"], float("nan"), float("inf")], ids=repr)
def test_attribute_that_is_wrong_is_an_exception(spec, value):
    """Registered by hand, without our checks. Neither the default nor the end of the process."""
    for attribute in spec.attributes:
        with pytest.raises(Exception, match=attribute.name) as raised:
            by_hand(model([node(spec, **{attribute.name: value})]))
        if not isinstance(value, float):
            assert "y_node" in str(raised.value)
        assert "Received" in str(raised.value)
    assert by_hand(model([node(spec)]))


@each_spec
def test_non_finite_attribute_names_the_node(spec):
    for attribute in spec.attributes:
        with pytest.raises(Exception, match="y_node"):
            by_hand(model([node(spec, **{attribute.name: float("nan")})]))


@each_spec
def test_registering_twice_is_an_exception(spec):
    options = onnxruntime.SessionOptions()
    for _ in range(2):
        options.register_custom_ops_library(myops.ort.library_path())
    with pytest.raises(Exception, match="registry"):
        onnxruntime.InferenceSession(model([node(spec)]), options)
    assert by_hand(model([node(spec)]))


@each_spec
@each_dtype
@pytest.mark.parametrize("shape", [(0,), (2, 0, 3), (), (1,), (1, 1, 1)], ids=str)
def test_empties_and_scalars(spec, dtype, shape):
    element_type = ONNX_TYPES[dtype]
    content = model(
        [_cast("x", "a", element_type), node(spec, "a", "b"), _cast("b", "y", 11)],
        [info("x", TensorProto.DOUBLE, shape)],
        [untyped("y")],
    )
    x = np.ones(shape)
    (y,) = by_hand(content).run(None, {"x": x})
    assert y.shape == shape
    np.testing.assert_allclose(y, exact(spec, x), rtol=1e-2)


@each_spec
def test_symbolic_dims_pass_through(spec):
    x = info("x", TensorProto.FLOAT, ["N", 3, "M"])
    session = by_hand(model([node(spec)], [x], [untyped("y")]))
    assert session.get_outputs()[0].shape == ["N", 3, "M"]
    assert session.get_outputs()[0].type == "tensor(float)"


@each_spec
def test_unknown_rank(spec):
    """A scalar instead of an unknown rank would make the convolution refuse to load."""
    weights = numpy_helper.from_array(np.ones((2, 3, 1, 1), np.float32), "w")
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["r"], "reshape"),
        node(spec, "r", "s", **attributes(spec)),
        helper.make_node("Conv", ["s", "w"], ["y"], "conv"),
    ]
    shape = helper.make_tensor_value_info("shape", TensorProto.INT64, ["rank"])
    content = model(nodes, [info("x", shape=["n"]), shape], [untyped("y")], initializers=[weights])
    x = np.linspace(-2, 2, 60, dtype=np.float32)
    for session in (by_hand(content), myops.ort.session(content)):
        for dims in ([1, 3, 4, 5], [5, 3, 2, 2]):
            (y,) = session.run(None, {"x": x, "shape": np.array(dims, np.int64)})
            expected = exact(spec, x.reshape(dims), **attributes(spec)).sum(1, keepdims=True)
            np.testing.assert_allclose(y, np.repeat(expected, 2, 1), rtol=1e-4, atol=1e-5)


@each_spec
@pytest.mark.parametrize("declared", [["b", 3, "w", 8], [1, 3, 5, 8], [None, 3, None, 8]], ids=str)
def test_unnamed_unknown_dims(spec, declared):
    """What the model declares behind the node is neither contradicted nor replaced."""
    nodes = [
        node(spec, "x", "s", **attributes(spec)),
        helper.make_node("Add", ["s", "x"], ["y"], "add"),
    ]
    x = info("x", TensorProto.FLOAT, [1, None, None, 8])
    content = model(nodes, [x], [info("y", TensorProto.FLOAT, declared)])
    feed = np.linspace(-2, 2, 120, dtype=np.float32).reshape(1, 3, 5, 8)
    for session in (by_hand(content), myops.ort.session(content)):
        shape = session.get_outputs()[0].shape
        for found, wanted in zip(shape, declared, strict=True):
            assert wanted is None or found == wanted or found in (1, 3, 5, 8)
        (y,) = session.run(None, {"x": feed})
        expected = exact(spec, feed, **attributes(spec)) + feed
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


@each_spec
def test_two_unknown_dims_are_not_called_equal(spec):
    """Equal names promise equal sizes: invented ones must differ."""
    x = info("x", TensorProto.FLOAT, [None, None])
    session = by_hand(model([node(spec)], [x], [untyped("y")]))
    first, second = session.get_outputs()[0].shape
    assert first is None or first != second
    assert session.run(None, {"x": np.ones((2, 3), np.float32)})[0].shape == (2, 3)


@each_spec
@each_dtype
def test_chain_leaves_the_graph_input_alone(spec, dtype):
    """Nodes may work in place on what only they read, never on the caller's array."""
    names = ["x", *(f"v{i}" for i in range(50))]
    if dtype == "bfloat16":
        nodes = [_cast("x", "v0", TensorProto.BFLOAT16), _cast("v49", "y", TensorProto.FLOAT)]
        nodes[1:1] = [node(spec, a, b) for a, b in itertools.pairwise(names[1:])]
        times, kind = 49, np.float32
    else:
        names[-1] = "y"
        nodes = [node(spec, a, b) for a, b in itertools.pairwise(names)]
        times, kind = 50, np.dtype(dtype)
    element_type = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    content = model(nodes, [info("x", element_type, ["N"])], [info("y", element_type, ["N"])])
    x = np.linspace(0.5, 4, 5000).astype(kind)
    before = x.copy()
    (y,) = by_hand(content).run(None, {"x": x})
    np.testing.assert_array_equal(x, before)
    expected = torch.from_numpy(x.copy()).to(getattr(torch, dtype))
    for _ in range(times):
        expected = getattr(myops.functional, spec.torch_name)(*[expected] * len(spec.inputs))
    np.testing.assert_array_equal(y, expected.to(torch.from_numpy(x).dtype).numpy())


@each_spec
def test_input_with_a_second_reader(spec):
    nodes = [
        helper.make_node("Neg", ["x"], ["n"], "neg"),
        node(spec, "n", "s"),
        helper.make_node("Add", ["n", "s"], ["y"], "add"),
    ]
    x = np.linspace(-3, 3, 100, dtype=np.float32)
    (y,) = by_hand(model(nodes, [info("x", shape=["N"])], [info("y", shape=["N"])])).run(
        None, {"x": x}
    )
    np.testing.assert_allclose(y, -x + exact(spec, -x), rtol=1e-5, atol=1e-6)


@each_spec
@each_dtype
def test_threads_give_the_same_bits(spec, dtype):
    content = _through(spec, dtype, **attributes(spec))
    rng = np.random.default_rng(0)
    for size in (1_000_003, 32_768, 32_769, 16_385, 262_145):
        x = rng.uniform(*spec.domain, size)
        results = [
            by_hand(content, intra_op_num_threads=threads).run(None, {"x": x})[0]
            for threads in (1, 2, 4)
        ]
        np.testing.assert_array_equal(results[0], results[1])
        np.testing.assert_array_equal(results[0], results[2])
        if size < 300_000:
            step = max(1, size // 1000)
            scalar = by_hand(content, intra_op_num_threads=1)
            tail = scalar.run(None, {"x": np.ascontiguousarray(x[::step])})[0]
            np.testing.assert_array_equal(results[0][::step], tail)


@each_spec
def test_inputs_of_different_shapes_are_an_error(spec):
    """Elementwise operators with several inputs do not broadcast."""
    if len(spec.inputs) > 1:
        names = [f"x{i}" for i in range(len(spec.inputs))]
        call = helper.make_node(spec.name, names, ["y"], "n", domain="myops")
        content = model([call], [info(n, shape=None) for n in names], [untyped("y")])
        feeds = {n: np.ones((2, 3) if i else (3, 2), np.float32) for i, n in enumerate(names)}
        with pytest.raises(Exception, match="one shape"):
            by_hand(content).run(None, feeds)


def test_every_operator_is_registered():
    for spec in ELEMENTWISE:
        assert by_hand(model([node(spec)]))
