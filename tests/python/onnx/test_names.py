# SPDX-License-Identifier: Apache-2.0
"""Names for nodes without one."""

from __future__ import annotations

import onnx
from hypothesis import given
from hypothesis import strategies as st
from myops.onnx import model as onnx_model
from myops.onnx.names import has_external_data, name_nodes
from onnx import helper


def chain(names: list[str]) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Relu", [f"t{i}"], [f"t{i + 1}"], name) for i, name in enumerate(names)
    ]
    tensors = [helper.make_tensor_value_info(f"t{i}", 1, [2]) for i in (0, len(names))]
    graph = helper.make_graph(nodes, "g", tensors[:1], tensors[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


@given(
    st.lists(
        st.sampled_from(["", "a", "Relu_t1", "Relu_t2", "Relu_t1_2"]), min_size=1, max_size=8
    ).filter(lambda names: len({n for n in names if n}) == sum(map(bool, names)))
)
def test_names_are_unique_and_given_ones_stay(names: list[str]) -> None:
    model = chain(names)
    assert name_nodes(model) == names.count("")
    found = [node.name for node in model.graph.node]
    assert all(found) and len(set(found)) == len(found)
    assert all(new == old for new, old in zip(found, names, strict=True) if old)
    assert name_nodes(model) == 0


def test_functions_and_inner_graphs() -> None:
    inner = chain(["", "b"]).graph
    del inner.input[:]
    function = helper.make_function(
        "local", "F", ["a"], ["b"], [helper.make_node("Exp", ["a"], ["b"])], []
    )
    branch = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    model = helper.make_model(helper.make_graph([branch], "g", [], []), functions=[function])
    assert name_nodes(model) == 4
    names = [node.name for node in onnx_model.nodes(model.graph)]
    assert names == ["If_y", "Relu_t1", "b", "Relu_t1_2", "b"]
    assert model.functions[0].node[0].name == "Exp_b"


def test_external_data_is_seen_in_constants_of_branches() -> None:
    model = chain(["a"])
    assert not has_external_data(model)
    tensor = onnx.TensorProto(data_location=onnx.TensorProto.EXTERNAL)
    inner = helper.make_graph([helper.make_node("Constant", [], ["k"], value=tensor)], "i", [], [])
    model.graph.node.append(helper.make_node("If", ["c"], ["y"], then_branch=inner))
    assert has_external_data(model)
