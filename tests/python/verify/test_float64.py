# SPDX-License-Identifier: Apache-2.0
"""The float64 evaluation of models of any precision."""

from __future__ import annotations

import numpy as np
import pytest
from myops._errors import ModelError
from myops.spec import SPECS
from myops.verify.float64 import evaluate_model, prepared
from myops.verify.operators import attribute_sets, one_node_model, sample
from onnx import TensorProto, helper, numpy_helper

from .networks import branch_model, info, loop_model, model_of, scalar, scan_model, swish


def swish64(x: np.ndarray, beta: float = 1.5) -> np.ndarray:
    return x / (1 + np.exp(-beta * x))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.torch_name)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_every_operator_is_its_reference(spec, dtype: str) -> None:
    attributes = list(attribute_sets(spec))[-1]
    inputs = sample(spec, dtype)
    model = one_node_model(spec, dtype, attributes)
    found = evaluate_model(model, dict(zip(spec.inputs, inputs, strict=True)))
    with np.errstate(all="ignore"):
        expected = spec.reference(*(a.astype(np.float64) for a in inputs), **attributes)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for name, array in zip(spec.outputs, expected, strict=True):
        assert found[name].dtype == np.float64
        np.testing.assert_array_equal(found[name], array)


def test_no_rounding_inside_a_half_precision_model() -> None:
    """Casts, constants, weights and functions: all in float64. 1 + 2^-20 survives."""
    function = helper.make_function(
        "other",
        "Half",
        ["a"],
        ["b"],
        [
            helper.make_node("Constant", [], ["half"], value=scalar("", 0.5, "float16")),
            helper.make_node("Mul", ["a", "half"], ["b"]),
        ],
        [helper.make_opsetid("", 18)],
    )
    model = model_of(
        [
            helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16),
            helper.make_node("Constant", [], ["c"], value_float=1.0),
            helper.make_node("CastLike", ["c", "h"], ["c16"]),
            helper.make_node("Add", ["h", "c16"], ["sum"]),
            helper.make_node("Half", ["sum"], ["y"], domain="other"),
        ],
        [info("x")],
        [info("y", ("n",), TensorProto.FLOAT16)],
        functions=[function],
    )
    x = np.array([2.0**-20], np.float32)
    assert evaluate_model(model, {"x": x})["y"][0] == (1 + 2.0**-20) / 2


@pytest.mark.parametrize("flag", [True, False])
def test_if(flag: bool) -> None:
    x = np.linspace(-3, 3, 7, dtype=np.float32)
    h = 2 * x.astype(np.float64)
    expected = swish64(h, 1.5 if flag else 0.5) + h
    found = evaluate_model(branch_model(flag), {"x": x})["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_loop_and_scan() -> None:
    x = np.linspace(-3, 3, 7, dtype=np.float32)
    expected = x.astype(np.float64)
    for _ in range(3):
        expected = swish64(expected) + 1
    found = evaluate_model(loop_model(3), {"x": x})["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-14)

    rows = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    state, seen = np.zeros(4), []
    for row in rows.astype(np.float64):
        state = swish64(state) + row
        seen.append(state)
    found = evaluate_model(scan_model(), {"x": rows})["y"]
    np.testing.assert_allclose(found, seen, rtol=1e-14)


def test_nodes_in_any_order() -> None:
    nodes = [
        helper.make_node("Exp", ["b"], ["y"], "last"),
        helper.make_node("Neg", ["a"], ["b"], "middle"),
        swish("x", "a", "first"),
    ]
    model = model_of(nodes, [info("x")], [info("y")])
    x = np.linspace(-3, 3, 5, dtype=np.float32)
    found = evaluate_model(model, {"x": x})["y"]
    np.testing.assert_allclose(found, np.exp(-swish64(x.astype(np.float64))), rtol=1e-14)
    assert [node.name for node in prepared(model).graph.node] == ["first", "middle", "last"]
    assert model.graph.node[0].name == "last", "the model given stays as it is"


def test_a_cycle_is_named(check_message) -> None:
    nodes = [helper.make_node("Add", ["x", "y"], ["y"], "ring")]
    with pytest.raises(ModelError, match="'ring'") as error:
        prepared(model_of(nodes, [info("x")], [info("y")]))
    check_message(error.value)


def test_random_operators_have_no_truth() -> None:
    model = model_of([helper.make_node("RandomNormalLike", ["x"], ["y"])], [info("x")], [info("y")])
    with pytest.raises(ValueError, match="RandomNormalLike gives other values each time"):
        evaluate_model(model, {"x": np.zeros(3, np.float32)})


def test_initializers_may_be_overridden() -> None:
    weight = numpy_helper.from_array(np.float32([2.0]), "w")
    nodes = [helper.make_node("Mul", ["x", "w"], ["y"])]
    model = model_of(nodes, [info("x"), info("w", (1,))], [info("y")], [weight])
    x = np.ones(2, np.float32)
    assert evaluate_model(model, {"x": x})["y"].tolist() == [2.0, 2.0]
    assert evaluate_model(model, {"x": x, "w": np.float32([3.0])})["y"].tolist() == [3.0, 3.0]
