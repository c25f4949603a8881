# SPDX-License-Identifier: Apache-2.0
"""Operators of other packages: what is refused, and where the accepted ones turn up."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import myops
import pytest
from myops import registry, spec
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
    assert spec.mismatches() == [], "the native list is ours alone"
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
