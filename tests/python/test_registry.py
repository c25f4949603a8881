# SPDX-License-Identifier: Apache-2.0
"""Operators of other packages: what is refused, and where the accepted ones turn up."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import myops
import numpy as np
import pytest
from myops import registry, spec, spec_check
from myops._errors import LibraryError, ModelError, UsageError
from myops.spec import SPECS, SWISH

OTHER = dataclasses.replace(SWISH, name="OtherAct", torch_name="other_act", namespace="acme")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file in the plugin's place; what is registered is forgotten again."""
    (tmp_path / "libacme_ort.so").touch()
    monkeypatch.setattr(SPECS, "_specs", list(SPECS))
    monkeypatch.setattr(registry, "_folders", {})
    return tmp_path


def test_registered_operator_is_found(folder: Path) -> None:
    before = len(SPECS)
    myops.register(OTHER, folder)
    assert spec.find("OtherAct") is OTHER
    assert spec.find("other_act") is OTHER
    assert SPECS[-1] is OTHER
    assert SPECS.namespaces() == {"myops", "acme"}
    assert SPECS.of_node("acme", "OtherAct") is OTHER
    assert SPECS.of_node("myops", "OtherAct") is None
    assert SPECS.of_node("acme", "Swish") is None
    assert list(registry.plugins()) == [folder / "libacme_ort.so"]
    assert registry.torch_library("acme") is None
    assert spec_check.mismatches() == [], "the native list is ours alone"
    myops.register(OTHER, folder)
    assert len(SPECS) == before + 1, "twice is once"


@pytest.mark.parametrize("namespace", ["myops", "torch", "ai", "onnx", "com", "Acme", "a.b", ""])
def test_reserved_namespaces(folder: Path, namespace: str, check_message) -> None:
    with pytest.raises(UsageError) as raised:
        myops.register(dataclasses.replace(OTHER, namespace=namespace), folder)
    assert repr(namespace) in check_message(raised.value)


@pytest.mark.parametrize("change", [{"name": "Swish"}, {"torch_name": "swish"}])
def test_names_that_are_taken(folder: Path, change: dict[str, str], check_message) -> None:
    with pytest.raises(UsageError) as raised:
        myops.register(dataclasses.replace(OTHER, **change), folder)
    assert "beside myops::Swish" in check_message(raised.value)
    assert len(registry._folders) == 0


def test_folder_without_libraries(folder: Path, check_message) -> None:
    with pytest.raises(LibraryError) as raised:
        myops.register(OTHER, folder / "nowhere")
    assert "libacme_ort.so" in check_message(raised.value)


def test_one_namespace_from_two_folders(folder: Path, check_message) -> None:
    myops.register(OTHER, folder)
    second = folder / "second"
    second.mkdir()
    (second / "libacme_ort.so").touch()
    with pytest.raises(UsageError) as raised:
        myops.register(dataclasses.replace(OTHER, name="More", torch_name="more"), second)
    assert "one folder" in check_message(raised.value)


def test_its_nodes_are_checked_exported_and_expanded_like_ours(folder: Path, check_message) -> None:
    onnx = pytest.importorskip("onnx")
    from myops.onnx import expand
    from myops.ort import check
    from myops.verify.operators import one_node_model

    myops.register(OTHER, folder)
    model = one_node_model(OTHER, "float32", {"beta": 2.0})
    assert [(f.domain, f.name) for f in model.functions] == [("acme", "OtherAct")]
    assert {entry.domain for entry in model.opset_import} == {"", "acme"}
    onnx.checker.check_model(model, full_check=True)
    check.check_model(model.SerializeToString())
    wrong = one_node_model(OTHER, "float32", {"beta": 2.0})
    wrong.graph.node[0].op_type = "OtherAtc"
    with pytest.raises(ModelError) as raised:
        check.check_model(wrong.SerializeToString())
    assert "Did you mean OtherAct?" in check_message(raised.value)
    expand(model)
    assert {node.domain for node in model.graph.node} == {""}
    assert not model.functions


def test_plugin_that_is_none_is_named(folder: Path, check_message) -> None:
    pytest.importorskip("onnxruntime")
    from myops import ort
    from myops.verify.operators import one_node_model

    myops.register(OTHER, folder)
    model = one_node_model(OTHER, "float32", {"beta": 2.0})
    with pytest.raises(LibraryError) as raised:
        ort.session(model.SerializeToString())
    assert "libacme_ort.so" in check_message(raised.value)


def _body_model():
    """Standard operators that compute ``OTHER`` with 2 for ``beta``."""
    from myops.onnx import expand
    from myops.verify.operators import one_node_model

    model = one_node_model(OTHER, "float32", {"beta": 2.0})
    expand(model)
    return model


def test_inject_writes_its_nodes(folder: Path) -> None:
    pytest.importorskip("onnx")
    from myops.onnx.inject.candidates import CUSTOM, find
    from myops.onnx.inject.graph import scopes
    from myops.onnx.inject.rewrite import rewrite

    myops.register(OTHER, folder)
    model = _body_model()
    found = scopes(model)
    (candidate,) = find(found, operators=["OtherAct"])
    assert candidate.spec is OTHER
    candidate.choice = CUSTOM
    result = rewrite(model, found, [candidate])
    assert [(n.domain, n.op_type) for n in result.graph.node] == [("acme", "OtherAct")]
    assert [(a.name, a.f) for a in result.graph.node[0].attribute] == [("beta", 2.0)]
    assert [(f.domain, f.name) for f in result.functions] == [("acme", "OtherAct")]
    assert {entry.domain for entry in result.opset_import} == {"", "acme"}
    assert find(scopes(result)) == [], "its nodes and functions are left alone"


def test_inject_leaves_out_bodies_it_cannot_read(folder: Path) -> None:
    pytest.importorskip("onnx")
    from myops.onnx.inject.patterns import patterns

    def body(op, x, beta):
        return op.Div(x, beta)

    divided = dataclasses.replace(OTHER, body=body, body_float64=None, spellings=())
    myops.register(divided, folder)
    with pytest.warns(UserWarning, match="does not look for OtherAct"):
        found = {pattern.spec.name for pattern in patterns()}
    assert "OtherAct" not in found
    assert "Swish" in found


def test_verify_knows_its_nodes(folder: Path) -> None:
    onnx = pytest.importorskip("onnx")
    from myops.verify.float64 import evaluate_model
    from myops.verify.operators import one_node_model, operators_in, sample

    myops.register(OTHER, folder)
    model = one_node_model(OTHER, "float32", {"beta": 2.0})
    assert operators_in(model) == [(OTHER, "float32", {"beta": 2.0})]
    (x,) = sample(OTHER, "float32")
    x = x[np.abs(x) < 20]
    del model.functions[:]
    assert onnx.defs.has("OtherAct", domain="acme") is False
    (y,) = evaluate_model(model, {"x": x}).values()
    np.testing.assert_array_equal(y, OTHER.reference(x.astype(np.float64), beta=2.0))


def test_doctor_explains_its_errors(folder: Path) -> None:
    from myops.doctor.explain import explain

    text = "FAIL : acme:OtherAct(-1) is not a registered function/op"
    assert explain(text) == []
    myops.register(OTHER, folder)
    assert [m.id for m in explain(text)] == ["plugin-not-registered", "domain-not-imported"]
    assert [m.id for m in explain(text.replace("Act", "Atc"))] == ["node-unknown"]
    assert [m.id for m in explain("OtherAct takes 1 inputs. Received 2")] == ["node-input-count"]


def test_plugins_of_some_namespaces(folder: Path) -> None:
    assert registry.plugins_of({"myops", "acme"}) == []
    myops.register(OTHER, folder)
    assert registry.plugins_of({"myops", "acme"}) == [folder / "libacme_ort.so"]
    assert registry.plugins_of({"myops"}) == []
    assert registry.in_torch(SWISH)
    assert not registry.in_torch(OTHER), "there is a plugin only"
