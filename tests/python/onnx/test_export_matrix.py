# SPDX-License-Identifier: Apache-2.0
"""Exporter x mode x dtype x opset: what is in the file, and that it runs."""

from __future__ import annotations

from collections.abc import Iterator

import myops.nn
import onnx
import pytest
import torch
from myops import ort
from myops._errors import ExportError
from myops.onnx import model as onnx_model
from myops.onnx.export import DYNAMO_OPSETS, TORCHSCRIPT_OPSETS, export
from myops.spec import DOMAIN, DOMAIN_VERSION, SWISH

from ..support import each_representative, each_spec, each_spec_with
from .support import (
    DTYPES,
    MODES,
    Net,
    attributes,
    close,
    each_exporter,
    each_mode,
    our_nodes,
    plain_session,
    ran_with_plugin,
    ran_without_plugin,
    run,
)

# onnx has bfloat16 since opset 13.
BFLOAT16_SINCE = 13


def _all_cases() -> Iterator[tuple[str, str, int]]:
    for opset in (9, 11, 12, 13, 15, 18, 21, 23):
        for dtype in DTYPES:
            if dtype != "bfloat16" or opset >= BFLOAT16_SINCE:
                yield "torchscript", dtype, opset
    # An export by dynamo takes most of a second: opsets in one dtype, dtypes in two opsets.
    yield from (("dynamo", "float32", opset) for opset in (18, 21, 23, 24, 25))
    yield from (("dynamo", d, o) for d in ("float64", "float16", "bfloat16") for o in (18, 25))


# What depends on the operator is its body: the oldest opset, and all dtypes in a newer one.
FEW_CASES = [("torchscript", "float32", 9), *(("torchscript", dtype, 18) for dtype in DTYPES)]
FEW_CASES.append(("dynamo", "float32", 18))

each_case = each_spec_with(("exporter", "dtype", "opset"), _all_cases(), FEW_CASES)


@each_mode
@each_case
def test_file(spec, exported, exporter, mode, dtype, opset):
    path, report, model, _ = exported(spec, exporter, mode, dtype, opset)
    # The checker knows no schema of ours: it judges a custom file but for types behind our nodes.
    onnx.checker.check_model(str(path), full_check=mode != "custom")
    assert onnx_model.opset(model) == opset
    assert report.opset == opset
    assert report.exporter == exporter
    assert report.mode == mode
    assert report.path == path
    assert report.size == path.stat().st_size
    assert report.calls == {spec.name: 1}
    assert [value.name for value in model.graph.input] == ["x"]
    nodes = our_nodes(model)
    if mode == "native":
        assert nodes == []
        assert report.operators == {}
        assert {entry.domain for entry in model.opset_import} == {""}
        assert not any(f.domain == DOMAIN for f in model.functions)
        return
    assert len(nodes) == 1
    assert report.operators == {spec.name: 1}
    imports = [entry.version for entry in model.opset_import if entry.domain == DOMAIN]
    assert imports == [DOMAIN_VERSION]
    assert {a.name: a.f for a in nodes[0].attribute} == attributes(spec)
    assert all(a.type == onnx.AttributeProto.FLOAT for a in nodes[0].attribute)
    # ONNX Runtime 1.17 to 1.23 crash on an input that is present and empty.
    assert all(nodes[0].input)
    assert nodes[0].name, "profiles tell unnamed nodes apart badly"
    functions = [(f.domain, f.name) for f in model.functions]
    assert functions == ([(DOMAIN, spec.name)] if mode == "portable" else [])
    if mode == "portable":
        assert model.ir_version >= 8
        (entry,) = model.functions[0].opset_import
        assert (entry.domain, entry.version) == ("", opset)


@each_mode
@each_case
def test_dynamic_dims(spec, exported, exporter, mode, dtype, opset):
    """The reshape behind the operator keeps N and knows 3 * 4."""
    model = exported(spec, exporter, mode, dtype, opset).model
    assert onnx_model.dims(model.graph.input[0]) == ["N", 3, 4]
    assert onnx_model.dims(model.graph.output[0]) == ["N", 12]


@each_mode
@each_case
def test_runs(spec, exported, exporter, mode, dtype, opset, tmp_path):
    path, _, _, net = exported(spec, exporter, mode, dtype, opset)
    for rows in (2, 5):
        x = net.example(rows)
        if mode != "custom":
            close(run(plain_session(path), x), net(x), dtype)
        if mode != "native":
            fused = run(ort.session(path), x)
            assert torch.equal(torch.from_numpy(fused), net(x)), "not the bits of torch"
    if mode == "custom":
        with pytest.raises(Exception, match=spec.name):
            plain_session(path)


@each_case
def test_portable_file_is_fused_only_with_the_plugin(
    spec, exported, exporter, dtype, opset, tmp_path
):
    path, _, _, net = exported(spec, exporter, "portable", dtype, opset)
    x = net.example()
    assert ran_with_plugin(path, x, tmp_path).count(spec.name) == 1
    without = ran_without_plugin(path, x, tmp_path)
    # ONNX Runtime may fuse the body into an operator of its own that has the same name.
    assert spec.name not in without or onnx.defs.has(spec.name)
    if spec is SWISH and dtype != "float64":
        assert "QuickGelu" in without


@each_spec
@each_exporter
def test_nodes_of_a_custom_file(spec, exporter, tmp_path):
    """One node per call, nothing around it."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), getattr(myops.nn, spec.name)())
    if len(spec.inputs) != 1:
        net = Net(spec, torch.float32)
    report = export(net, torch.randn(2, 4), tmp_path / "m.onnx", mode="custom", exporter=exporter)
    ours = f"{DOMAIN}::{spec.name}"
    assert report.nodes.count(ours) == 1
    if len(spec.inputs) == 1:
        assert report.nodes == ["Gemm", ours]
    assert report.to_dict()["path"] == str(tmp_path / "m.onnx")


@each_representative
@each_mode
@pytest.mark.parametrize("opset", [9, 11, 12])
def test_bfloat16_before_onnx_had_it(spec, mode, opset, tmp_path, check_message):
    net = Net(spec, torch.bfloat16)
    with pytest.raises(ExportError) as raised:
        export(net, net.example(), tmp_path / "m.onnx", mode=mode, opset=opset)
    check_message(raised.value)
    assert list(tmp_path.iterdir()) == []


@each_spec_with("opset", [*range(9, 19), 25], [9])
def test_auto_delivers_every_opset(spec, opset, tmp_path):
    """The dynamo exporter writes 18 where it is asked for less, without a word."""
    net = Net(spec, torch.float32)
    report = export(net, net.example(), tmp_path / "m.onnx", opset=opset)
    assert onnx_model.opset(onnx.load(report.path)) == opset
    assert report.exporter == ("dynamo" if opset >= 18 else "torchscript")


@pytest.mark.parametrize(
    ("exporter", "opset"),
    [
        ("dynamo", 13),
        ("dynamo", 17),
        ("dynamo", 26),
        ("torchscript", 24),
        ("torchscript", 8),
        ("auto", 8),
        ("auto", 26),
        ("auto", 99),
    ],
)
@each_representative
def test_opset_that_is_not_delivered(spec, exporter, opset, tmp_path, check_message):
    net = Net(spec, torch.float32)
    with pytest.raises(ExportError) as raised:
        export(net, net.example(), tmp_path / "m.onnx", opset=opset, exporter=exporter)
    text = check_message(raised.value)
    assert f"opset {opset}" in text
    assert exporter != "dynamo" or "18 to 25" in text
    assert exporter != "torchscript" or "9 to 23" in text
    assert list(tmp_path.iterdir()) == []


def test_ranges_of_the_exporters():
    assert set(range(9, 26)) == {*DYNAMO_OPSETS, *TORCHSCRIPT_OPSETS}
    assert set(MODES) == {"native", "custom", "portable"}
