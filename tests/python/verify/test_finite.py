# SPDX-License-Identifier: Apache-2.0
"""The first NaN or infinity is found where it is made."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from myops.verify import check_finite
from myops.verify.parties import onnxruntime_party
from onnx import TensorProto, helper

from .networks import images, info, loop_model, model_of, network, scalar, swish

PLUGIN = onnxruntime_party(None)


def chain(*nodes, dtype: int = TensorProto.FLOAT, initializers=()) -> onnx.ModelProto:
    return model_of(nodes, [info("x", ("n",), dtype)], [info("y", ("n",), dtype)], initializers)


def test_nothing_to_find(tmp_path) -> None:
    from .networks import export

    model = export(network(), tmp_path / "m.onnx")
    found = check_finite(model, images(), PLUGIN)
    assert found.ok
    assert found.nodes == len(model.graph.node)
    assert found.summary == f"No node of {found.nodes} makes a NaN or an infinity."


def test_overflow_in_float16_with_the_values_that_made_it() -> None:
    model = chain(
        swish("x", "a", "first"),
        helper.make_node("Mul", ["a", "a"], ["b"], "square"),
        helper.make_node("Sub", ["b", "b"], ["y"], "nan"),
        dtype=TensorProto.FLOAT16,
    )
    x = np.array([1.0, 2.0, 300.0, 4.0], np.float16)
    first = check_finite(model, {"x": x}, PLUGIN).first
    assert first is not None
    assert (first.node, first.tensor, first.index, first.value) == ("square", "b", (2,), "inf")
    assert (first.dtype, first.cause) == ("float16", "overflow")
    assert first.inputs == {"a": "300"}
    assert first.in_float64 == 90_000.0
    assert "float64 gives 90000, above the largest float16, 65504" in first.summary
    json.dumps(check_finite(model, {"x": x}, PLUGIN).to_dict())


def test_invalid_operation() -> None:
    model = chain(
        helper.make_node("Sub", ["x", "one"], ["a"], "minus"),
        helper.make_node("Log", ["a"], ["y"], "logarithm"),
        initializers=[scalar("one", 1.0)],
    )
    first = check_finite(model, {"x": np.float32([3.0, 0.5])}, PLUGIN).first
    assert first is not None
    assert (first.node, first.index, first.value) == ("logarithm", (1,), "nan")
    assert first.cause == "invalid operation"
    assert first.inputs == {"a": "-0.5"}


def test_a_product_shows_the_range_of_what_it_was_made_from() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "product")]
    weight = scalar("w", np.full((9, 2), 2.0**126))
    model = model_of(nodes, [info("x", (1, 9))], [info("y", (1, 2))], [weight])
    first = check_finite(model, {"x": np.full((1, 9), 2.0, np.float32)}, PLUGIN).first
    assert first is not None
    assert first.cause == "overflow"
    assert first.inputs["w"] == "[9, 2] in [8.50705917e+37, 8.50705917e+37]"


def test_masks_are_no_alarm_and_a_nan_out_of_them_is() -> None:
    mask = scalar("mask", [0.0, -np.inf])
    masked = [
        helper.make_node("Add", ["x", "mask"], ["a"], "masked"),
        helper.make_node("Softmax", ["a"], ["y"], "softmax"),
    ]
    found = check_finite(chain(*masked, initializers=[mask]), {"x": np.ones(2, "f4")}, PLUGIN)
    assert found.ok
    assert found.constants == ["mask"]
    everything = scalar("mask", [-np.inf, -np.inf])
    model = chain(*masked, initializers=[everything])
    first = check_finite(model, {"x": np.ones(2, "f4")}, PLUGIN).first
    assert first is not None
    assert (first.node, first.value) == ("softmax", "nan")


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_given(value: float) -> None:
    x = np.float32([1.0, 2.0, value])
    found = check_finite(chain(swish("x", "y", "s")), {"x": x}, PLUGIN)
    assert found.first is not None
    assert (found.first.cause, found.first.index) == ("given", (2,))
    assert f"is {value} to begin with" in found.summary


def test_inside_a_loop() -> None:
    """The third iteration is the one that overflows."""
    model = loop_model(4)
    body = model.graph.node[0].attribute[0].g
    body.node[2].op_type = "Mul"
    body.node[2].input[1] = "factor"
    model.graph.initializer.append(scalar("factor", 1e15))
    first = check_finite(model, {"x": np.float32([1.0, 2.0])}, PLUGIN).first
    assert first is not None
    assert first.node == "repeat[2]/inner_add"
    assert first.cause == "overflow"
