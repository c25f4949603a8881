# SPDX-License-Identifier: Apache-2.0
"""Broken models, each with exactly its finding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from myops import _library
from myops.doctor import Wanted, models, trial
from myops.doctor.probe import gather
from myops.onnx import model as onnx_model
from myops.spec import DOMAIN, SPECS
from onnx import TensorProto, helper

from ..ort.support import info, model, node, untyped
from ..support import one_spec
from .support import facts, ids

PLUGIN = _library.ort_library()
HERE = gather()
each_operator = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.torch_name)


def _check(path: Path, content: bytes, wanted: Wanted | None = None, load: bool = True) -> list:
    path.write_bytes(content)
    return models.check(path, HERE, wanted or Wanted(), PLUGIN, load)


@pytest.fixture
def check(tmp_path):
    """The ids found in a model."""
    return lambda *arguments, **options: ids(_check(tmp_path / "m.onnx", *arguments, **options))


@each_operator
def test_healthy(spec, check):
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4], np.ones(4))
    ours = node(spec)
    ours.output.extend([f"{name}_" for name in spec.outputs[1:]])
    if spec.kind == "norm":
        ours.input[-1] = "w"
    assert check(model([ours], initializers=[weight])) == []


def test_missing(tmp_path):
    assert ids(models.check(tmp_path / "m.onnx", HERE, Wanted(), PLUGIN)) == ["model-missing"]


@pytest.mark.parametrize("damage", ["text", "short", "empty", "other"])
def test_damaged(check, damage):
    good = model([node(SPECS[0])])
    content = {"text": b"version https://git-lfs", "short": good[:-9], "empty": b""}
    other = onnx.TensorProto(name="no model").SerializeToString()
    assert check(content.get(damage, other)) == ["model-damaged"]


@one_spec
@pytest.mark.parametrize(
    ("imports", "expected"),
    [
        ([], "domain-not-imported"),
        ([(DOMAIN, 1), (DOMAIN, 1)], "domain-imported-twice"),
        ([(DOMAIN, 1), (DOMAIN, 2)], "domain-imported-twice"),
        ([(DOMAIN, 2)], "domain-version"),
        ([(DOMAIN, 0)], "domain-version"),
    ],
)
def test_imports(spec, check, imports, expected):
    assert check(model([node(spec)], imports=imports)) == [expected]


@each_operator
@pytest.mark.parametrize("domain", ["MyOps", "MYOPS", "my_ops"])
def test_spelling_of_the_domain(spec, check, domain):
    wrong = node(spec)
    wrong.domain = domain
    assert check(model([wrong], imports=[(domain, 1)]), load=False) == ["domain-case"]


def _changed(spec, **changes) -> bytes:
    wrong = node(spec)
    for name, value in changes.items():
        if isinstance(value, list):
            del getattr(wrong, name)[:]
            getattr(wrong, name).extend(value)
        else:
            setattr(wrong, name, value)
    return model([wrong])


@each_operator
def test_nodes(spec, tmp_path):
    def check(content: bytes) -> list[str]:
        return ids(_check(tmp_path / "m.onnx", content, load=False))

    assert check(_changed(spec, op_type=f"{spec.name}2")) == ["node-unknown"]
    assert check(_changed(spec, input=["x"] * 5)) == ["node-input-count"]
    assert check(_changed(spec, input=[])) == ["node-input-count"]
    assert check(_changed(spec, input=["x", ""])) == ["node-input-empty"]
    assert check(_changed(spec, output=["y", "a", "b"])) == ["node-output-count"]
    assert check(model([node(spec, betta=1.0)])) == ["node-attribute-unknown"]
    for name in spec.defaults():
        for value in (2, "2"):
            assert check(model([node(spec, **{name: value})])) == ["node-attribute-type"]
    values = [info(name, TensorProto.INT64) for name in "xy"]
    assert check(model([node(spec)], values[:1], values[1:])) == ["node-dtype"]


@one_spec
def test_everything_that_is_wrong_is_said(spec, check):
    wrong = node(spec, betta=1.0)
    wrong.input.append("")
    assert check(model([wrong], imports=[(DOMAIN, 2)])) == [
        "domain-version",
        "node-input-empty",
        "node-attribute-unknown",
    ]


@one_spec
def test_the_fix_names_the_right_operator(spec, tmp_path):
    (finding,) = _check(tmp_path / "m.onnx", _changed(spec, op_type=spec.name.upper()))
    assert f"Did you mean {spec.name}" in finding.fix


def _relu(opset: int = 18, ir: int = 9, op: str = "Relu", kind: int = TensorProto.FLOAT) -> bytes:
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"], "n")], "g", [info("x", kind)], [info("y", kind)]
    )
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir).SerializeToString()


def test_release_of_the_runtime(check):
    assert check(_relu()) == []
    assert check(_relu(ir=99)) == ["ir-too-new"]
    assert check(_relu(opset=99)) == ["opset-too-new"]
    assert check(_relu(opset=99), load=False) == []


@one_spec
def test_release_is_said_beside_other_errors(spec, check):
    proto = onnx.load_from_string(_changed(spec, op_type="Nothing"))
    proto.ir_version = 99
    assert check(proto.SerializeToString()) == ["node-unknown", "ir-too-new"]


@one_spec
def test_release_is_said_without_a_plugin(spec, tmp_path):
    proto = onnx.load_from_string(model([node(spec)]))
    proto.opset_import[0].version = 99
    onnx.save(proto, tmp_path / "m.onnx")
    found = models.check(tmp_path / "m.onnx", HERE, Wanted(), plugin=None)
    assert ids(found) == ["opset-too-new"]


def test_standard_operators(check):
    """What only a trial shows."""
    assert check(_relu(op="Mish", opset=17)) == ["operator-unknown"]
    assert check(_relu(op="Erf", kind=TensorProto.DOUBLE)) == ["kernel-missing"]


def test_model_that_the_runtime_refuses(check):
    nodes = [helper.make_node("Relu", [source], ["y"], f"n{source}") for source in "xx"]
    assert check(model(nodes, imports=[])) == ["model-does-not-load"]


def _external(folder: Path, location: str, length: int = 16) -> bytes:
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4], bytes(16), raw=True)
    proto = onnx.load_from_string(
        model([helper.make_node("Mul", ["x", "w"], ["y"], "n")], initializers=[weight])
    )
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, "offset": "0", "length": str(length)}.items():
        tensor.external_data.add(key=key, value=value)
    return proto.SerializeToString()


def test_external_data(tmp_path, check):
    assert check(_external(tmp_path, "w.data")) == ["external-data-missing"]
    (tmp_path / "w.data").write_bytes(bytes(12))
    assert check(_external(tmp_path, "w.data")) == ["external-data-short"]
    (tmp_path / "w.data").write_bytes(bytes(16))
    assert check(_external(tmp_path, "w.data")) == []
    outside = tmp_path.parent / f"{tmp_path.name}.data"
    outside.write_bytes(bytes(16))
    assert check(_external(tmp_path, f"../{outside.name}")) == ["external-data-outside"]


def test_external_data_of_constants_in_branches(tmp_path, check):
    tensor = onnx.load_from_string(_external(tmp_path, "c.data")).graph.initializer[0]
    constant = helper.make_node("Constant", [], ["z"], value=tensor)
    branch = helper.make_graph([constant], "b", [], [untyped("z")])
    choice = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    condition = info("c", TensorProto.BOOL, [])
    content = model([choice], [condition], [info("y", shape=[4])])
    assert check(content) == ["external-data-missing"] * 2


@one_spec
@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (["N", 12], []),
        ([None, 12], ["symbolic-dims-lost"]),
        (["Swishy_dim_0", 12], ["symbolic-dims-lost"]),
        ([2, 12], ["symbolic-dims-lost"]),
        (None, []),
    ],
)
def test_names_of_dims(spec, check, declared, expected):
    """[N, 3, 4] through the operator, then flattened as exporters write it."""
    first = helper.make_tensor("first", TensorProto.INT64, [1], [0])
    rest = helper.make_tensor("rest", TensorProto.INT64, [1], [-1])
    nodes = [
        node(spec, "x", "a"),
        helper.make_node("Shape", ["a"], ["s"]),
        helper.make_node("Gather", ["s", "first"], ["n"]),
        helper.make_node("Concat", ["n", "rest"], ["to"], axis=0),
        helper.make_node("Reshape", ["a", "to"], ["y"]),
    ]
    content = model(
        nodes,
        [info("x", shape=["N", 3, 4])],
        [info("y", shape=declared)],
        initializers=[first, rest],
    )
    assert check(content) == expected


@one_spec
def test_node_on_another_provider(spec, tmp_path):
    """The Azure provider is in the CPU package and takes no node."""
    first = next(p for p in onnxruntime.get_available_providers() if p != "CPUExecutionProvider")
    found = _check(tmp_path / "m.onnx", model([node(spec)]), Wanted((first,)))
    assert ids(found) == ["node-on-other-provider"]
    assert f"{spec.name} (y_node)" in found[0].evidence
    assert first in found[0].evidence
    wanted = Wanted(("CPUExecutionProvider", first))
    assert _check(tmp_path / "m.onnx", model([node(spec)]), wanted) == []


LOG = """
2026-11-30 12:14:36.46 [V:onnxruntime:, session_state.cc:1148 VerifyEachNodeIsAssignedToAnEp] Node placements
2026-11-30 12:14:36.46 [V:onnxruntime:, session_state.cc:1154 VerifyEachNodeIsAssignedToAnEp]  Node(s) placed on [CUDAExecutionProvider]. Number of nodes: 2
2026-11-30 12:14:36.46 [V:onnxruntime:, session_state.cc:1156 VerifyEachNodeIsAssignedToAnEp]   Conv (c1)
2026-11-30 12:14:36.46 [V:onnxruntime:, session_state.cc:1156 VerifyEachNodeIsAssignedToAnEp]   MemcpyToHost (Memcpy)
2026-11-30 12:14:36.46 [V:onnxruntime:, session_state.cc:1154 VerifyEachNodeIsAssignedToAnEp]  Node(s) placed on [CPUExecutionProvider]. Number of nodes: 1
2026-11-30 12:14:36.46 [V:onnxruntime:, session_state.cc:1156 VerifyEachNodeIsAssignedToAnEp]   Swish (/act/Swish)
2026-11-30 12:14:36.46 [V:onnxruntime:, session_state.cc:114 CreateGraphInfo] SaveMLValueNameIndexMapping
"""  # noqa: E501


def test_placements_in_the_log():
    """On two providers, of which this machine has one."""
    cpu, cuda = "CPUExecutionProvider", "CUDAExecutionProvider"
    expected = {"Conv (c1)": cuda, "MemcpyToHost (Memcpy)": cuda, "Swish (/act/Swish)": cpu}
    assert trial.read_placements(LOG) == ("", expected)


@one_spec
def test_split_model(spec, tmp_path, monkeypatch):
    """Only our nodes count: a shape computed on the CPU is as it should be."""
    cuda = "CUDAExecutionProvider"
    content = model([node(spec)])
    placements = {f"{spec.name} (y_node)": cuda, "Shape (s)": "CPUExecutionProvider"}
    (tmp_path / "m.onnx").write_bytes(content)

    def found() -> list[str]:
        result = trial.Result(placements=placements)
        monkeypatch.setattr(trial, "model", lambda *_, **__: result)
        changed = facts(packages=HERE.packages)
        return ids(models.check(tmp_path / "m.onnx", changed, Wanted((cuda,)), PLUGIN))

    assert found() == []
    placements[f"{spec.name} (y_node)"] = "CPUExecutionProvider"
    assert found() == ["node-on-other-provider"]


@one_spec
def test_without_the_onnx_package(spec, tmp_path):
    """The runtime's own words say what the nodes would have shown."""
    without = facts(packages={**HERE.packages, "onnx": None})
    (tmp_path / "m.onnx").write_bytes(_changed(spec, op_type="Nothing"))
    found = models.check(tmp_path / "m.onnx", without, Wanted(), PLUGIN)
    assert ids(found) == ["node-unknown"]
    assert models.check(tmp_path / "m.onnx", without, Wanted(), PLUGIN, load=False) == []


def test_input_is_not_changed(tmp_path):
    path = tmp_path / "m.onnx"
    content = model([node(SPECS[0])], imports=[])
    _check(path, content)
    assert path.read_bytes() == content
    assert [file.name for file in tmp_path.iterdir()] == ["m.onnx"]
    assert onnx_model.load(path)
