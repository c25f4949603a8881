# SPDX-License-Identifier: Apache-2.0
"""Inputs made up from a model's signature."""

import pytest
from myops._errors import UsageError
from myops.onnx import inputs
from onnx import TensorProto, helper


def _model(*shapes: list):
    values = [
        helper.make_tensor_value_info(f"in.{i}", TensorProto.FLOAT, shape)
        for i, shape in enumerate(shapes)
    ]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    return helper.make_model(helper.make_graph([], "g", values, [result]))


@pytest.mark.parametrize(
    ("dims", "shapes"),
    [
        ({}, [(2, 3, 2), (2, 2)]),
        ({"n": 5}, [(5, 3, 2), (5, 2)]),
        ({"in.0.2": 7}, [(2, 3, 7), (2, 2)]),
        ({"n": 5, "in.1.0": 4}, [(5, 3, 2), (4, 2)]),
        ({"in.0.1": 6}, [(2, 6, 2), (2, 2)]),
    ],
    ids=str,
)
def test_a_dim_is_given_by_its_symbol_or_its_place(dims, shapes) -> None:
    made = inputs.synthesize(_model(["n", 3, None], ["n", -1]), dims)
    assert [array.shape for array in made.values()] == shapes


@pytest.mark.parametrize("name", ["m", "in.0", "in.0.3", "in.2.0", "n.0"])
def test_a_name_that_the_model_does_not_have_is_refused(name) -> None:
    with pytest.raises(UsageError, match=rf"n, in\.0\.0, in\.0\.1.*Received {name}\. Correct"):
        inputs.synthesize(_model(["n", 3]), {name: 1})
