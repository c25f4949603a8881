# SPDX-License-Identifier: Apache-2.0
"""The bodies where our node stands in an inner graph or in a function of the user's."""

from __future__ import annotations

import myops.ort
import numpy as np
import onnx
import pytest
from myops._errors import ModelError
from myops.onnx import add_functions, expand
from myops.onnx import model as onnx_model
from myops.spec import DOMAIN, DOMAIN_VERSION
from onnx import TensorProto, helper

from ..support import each_spec
from .models import info, model_of, our_node
from .support import attributes, plain_session


def _with_if(spec) -> onnx.ModelProto:
    inner = helper.make_graph(
        [our_node(spec, "x", "inner_y", **attributes(spec))],
        "then",
        [],
        [info("inner_y", "float32")],
    )
    other = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["neg"], "neg_node")], "else", [], [info("neg", "float32")]
    )
    branch = helper.make_node("If", ["c"], ["y"], "if", then_branch=inner, else_branch=other)
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    return model_of([branch], [info("x", "float32"), condition], [info("y", "float32")])


def _with_loop(spec) -> onnx.ModelProto:
    body = helper.make_graph(
        [
            our_node(spec, "state", "next", **attributes(spec)),
            helper.make_node("Identity", ["go"], ["go_on"], "identity"),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            info("state", "float32"),
        ],
        [helper.make_tensor_value_info("go_on", TensorProto.BOOL, []), info("next", "float32")],
    )
    loop = helper.make_node("Loop", ["n", "", "x"], ["y"], "loop", body=body)
    count = helper.make_tensor_value_info("n", TensorProto.INT64, [])
    return model_of([loop], [info("x", "float32"), count], [info("y", "float32")])


def _with_function(spec) -> onnx.ModelProto:
    """Our node inside a function of the user's, whose own imports then name our domain."""
    function = helper.make_function(
        "user",
        "Block",
        ["a"],
        ["b"],
        [our_node(spec, "a", "b", **attributes(spec))],
        [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, DOMAIN_VERSION)],
    )
    model = model_of(
        [helper.make_node("Block", ["x"], ["y"], "block", domain="user")],
        [info("x", "float32")],
        [info("y", "float32")],
    )
    model.opset_import.append(helper.make_opsetid("user", 1))
    model.functions.append(function)
    model.ir_version = 10
    return model


NESTED = {
    "if": (_with_if, {"c": np.array(True)}, 1),
    "loop": (_with_loop, {"n": np.array(3, np.int64)}, 3),
}


@each_spec
@pytest.mark.parametrize("where", NESTED)
@pytest.mark.parametrize("way", [add_functions, expand, None], ids=["function", "native", "custom"])
def test_inner_graphs(spec, where, way, tmp_path):
    make, extra, times = NESTED[where]
    model = make(spec)
    assert len(onnx_model.our_nodes(model)) == 1
    if way is not None:
        way(model)
        onnx.checker.check_model(model, full_check=True)
    if way is expand:
        assert onnx_model.our_nodes(model) == []
    onnx.save(model, tmp_path / "m.onnx")
    x = np.linspace(-3, 3, 65, dtype=np.float32)
    exact = x.astype(np.float64)
    for _ in range(times):
        exact = spec.reference(*[exact] * len(spec.inputs), **attributes(spec))
    for session in [myops.ort.session] + [plain_session] * (way is not None):
        (y,) = session(tmp_path / "m.onnx").run(None, {"x": x, **extra})
        np.testing.assert_allclose(y, exact, rtol=1e-5, atol=1e-6)


@each_spec
def test_node_in_a_function_of_the_users(spec, tmp_path):
    model = _with_function(spec)
    assert len(onnx_model.our_nodes(model)) == 1
    onnx.save(model, tmp_path / "m.onnx")
    x = np.linspace(-3, 3, 65, dtype=np.float32)
    exact = spec.reference(*[x.astype(np.float64)] * len(spec.inputs), **attributes(spec))
    (y,) = myops.ort.session(tmp_path / "m.onnx").run(None, {"x": x})
    np.testing.assert_allclose(y, exact, rtol=1e-5, atol=1e-6)


@each_spec
@pytest.mark.parametrize("way", [add_functions, expand])
def test_node_in_a_function_of_the_users_is_handled_or_refused(spec, way, tmp_path):
    """Its element type is known only where the function is called: not a silent half measure."""
    model = _with_function(spec)
    try:
        way(model)
    except ModelError:
        return
    onnx.save(model, tmp_path / "m.onnx")
    x = np.linspace(-3, 3, 65, dtype=np.float32)
    exact = spec.reference(*[x.astype(np.float64)] * len(spec.inputs), **attributes(spec))
    (y,) = plain_session(tmp_path / "m.onnx").run(None, {"x": x})
    np.testing.assert_allclose(y, exact, rtol=1e-5, atol=1e-6)
