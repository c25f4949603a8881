# SPDX-License-Identifier: Apache-2.0
"""Profiles of models that really ran."""

from __future__ import annotations

import hashlib
import io
import json
import tempfile
from pathlib import Path

import myops.ort
import numpy as np
import onnx
import pytest
from myops._errors import ModelError, UsageError
from myops.ort.profile import ELEMENTWISE, node_rows
from myops.ort.trace import Call, Tensor, Trace
from myops.spec import SPECS
from onnx import helper, numpy_helper
from rich.console import Console

from . import control_flow

MODEL_RUNS, WARMUP = 4, 2


@pytest.fixture(scope="module")
def flow(tmp_path_factory) -> Path:
    return control_flow.saved(tmp_path_factory.mktemp("flow"))


def profiled(path: Path, **options):
    options = {"runs": MODEL_RUNS, "warmup": WARMUP, "threads": 1} | options
    return myops.ort.profile(path, options.pop("inputs", control_flow.inputs()), **options)


def test_counts_and_times_of_inner_graphs(flow: Path) -> None:
    found = profiled(flow)
    by_op = {row.op: row for row in found.ops}
    assert by_op["Swish"].calls == 1 + control_flow.ITERATIONS
    assert by_op["If"].calls == control_flow.ITERATIONS
    assert by_op["Loop"].calls == 1
    assert "Relu" not in by_op
    (loop,) = [node for node in found.nodes if node.op == "Loop"]
    (branch,) = [node for node in found.nodes if node.op == "If"]
    inner = [node for node in found.nodes if node.inside == f"{loop.name}/{branch.name}"]
    assert [node.op for node in inner] == ["Swish"]
    # What contains another takes at least as long; what is its own does not include the other.
    assert loop.total_us >= branch.total_us >= inner[0].total_us
    assert loop.self_us <= loop.total_us - inner[0].self_us
    assert sum(node.share for node in found.nodes) == pytest.approx(1)
    # Every microsecond once: never more than the runs took, up to the clock's rounding.
    assert found.nodes_ms <= found.run_ms + 0.002 * len(found.nodes)
    assert found.nodes_ms == pytest.approx(sum(row.self_us for row in found.ops) / 1e3)


def test_ours_are_marked_with_their_provider(flow: Path) -> None:
    ours = [node for node in profiled(flow).nodes if node.ours]
    assert {(node.op, node.domain, node.provider) for node in ours} == {
        ("Swish", "myops", "CPUExecutionProvider")
    }
    assert len(ours) == 2
    for node in ours:
        assert node.bytes == 2 * 4 * control_flow.ELEMENTS
        assert node.outputs == (f"float[{control_flow.ELEMENTS}]",)
    alone = profiled(flow, plugin=False)
    assert not any(node.ours for node in alone.nodes)
    assert "The plugin was not registered." in alone.summary()


def test_our_nodes_that_did_not_run_are_named(flow: Path) -> None:
    found = profiled(flow, inputs=control_flow.inputs(condition=False))
    assert found.not_run == ["Swish Swish_t"]
    assert any("1 nodes of myops did not run: Swish Swish_t." in line for line in found.summary())
    assert profiled(flow).not_run == []


def test_unnamed_nodes_have_names_and_the_file_none(flow: Path) -> None:
    before = hashlib.sha256(flow.read_bytes()).hexdigest()
    found = profiled(flow)
    assert found.named == 5
    assert {node.name for node in found.nodes} == {
        *("outer", "Loop_y", "Identity_go_on", "If_w", "Swish_t")
    }
    assert hashlib.sha256(flow.read_bytes()).hexdigest() == before
    assert [path.name for path in flow.parent.iterdir()] == [flow.name]


def test_trace_is_kept_where_asked(flow: Path, tmp_path: Path) -> None:
    trace = tmp_path / "new" / "t.json"
    found = profiled(flow, trace=trace)
    events = json.loads(trace.read_text())
    assert sum(event["name"] == "model_run" for event in events) == MODEL_RUNS + WARMUP
    assert str(trace) in found.how_to_open() and "perfetto" in found.how_to_open()
    assert [path.name for path in trace.parent.iterdir()] == ["t.json"]
    assert profiled(flow).how_to_open() == ""


def test_trace_that_cannot_be_written(flow: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(UsageError, match="the trace should be a file that can be written"):
        profiled(flow, trace=tmp_path / "taken")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="the trace should be a file that can be written"):
        profiled(flow, trace=tmp_path / "file" / "t.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "taken"]


def test_dictionary_and_tables(flow: Path) -> None:
    found = profiled(flow)
    data = json.loads(json.dumps(found.to_dict()))
    assert data["runs"] == MODEL_RUNS
    assert data["memcpy"] == data["reorders"] == 0
    assert {"share", "mean_us", "median_us", "provider", "gbps"} <= set(data["nodes"][0])
    console = Console(width=80, record=True, file=io.StringIO())
    for table in (found.op_table(), found.node_table(2), found.memory_table()):
        console.print(table)
    text = console.export_text()
    assert "myops::Swish" in text
    assert "the slowest 2 of 5" in text


def call(name: str, op: str, own: float, tensors: int = 2, **changes) -> Call:
    tensor = Tensor("float", (10_000,))
    fields = {"provider": "CPUExecutionProvider", "inside": (), "run": 0, "total_us": own}
    fields |= {"inputs": (tensor,) * (tensors - 1), "outputs": (tensor,)}
    return Call(name=name, op=op, self_us=own, **(fields | changes))


def test_bandwidth_is_bytes_over_time() -> None:
    calls = (
        call("add", "Add", 10.0, tensors=3),
        call("conv", "Conv", 30.0),
        call("short", "Relu", 1.0),
        call("mine", "RMSNorm", 20.0),
        call("small", "Add", 10.0, inputs=(Tensor("float", (2,)),), outputs=()),
        call("text", "Equal", 9.0, inputs=(Tensor("string", (4,)),)),
    )
    rows = {row.name: row for row in node_rows(Trace(calls, (80.0,)), {"RMSNorm": {"mine"}}, 24.0)}
    assert rows["add"].bytes == 120_000
    assert rows["add"].gbps == pytest.approx(12)
    assert rows["add"].of_copy == pytest.approx(0.5)
    assert rows["mine"].gbps == pytest.approx(4)
    assert rows["conv"].bytes is None and rows["conv"].gbps is None
    assert rows["short"].bytes == 80_000 and rows["short"].gbps is None
    assert rows["small"].bytes == 8 and rows["small"].gbps is None
    assert rows["text"].bytes is None
    assert rows["conv"].share == pytest.approx(30 / 80)


def test_bandwidth_is_that_of_an_undisturbed_call() -> None:
    times = (10.0, 10.0, 1000.0)
    calls = tuple(call("a", "Relu", time, run=run) for run, time in enumerate(times))
    (row,) = node_rows(Trace(calls, times), {}, 10.0)
    assert (row.median_us, row.mean_us) == (10, 340)
    assert row.gbps == pytest.approx(8)
    # Calls on other shapes are not alike: their mean it is.
    longer = call("a", "Relu", 70.0, run=3, inputs=(Tensor("float", (50_000,)),))
    (row,) = node_rows(Trace((*calls[:2], longer), times), {}, 10.0)
    assert row.shapes_vary
    assert row.gbps == pytest.approx((80_000 * 2 + 240_000) / 3 / 30 / 1e3)


def test_a_name_alone_does_not_make_a_node_ours() -> None:
    calls = (
        call("gelu", "Gelu", 9.0),
        call("other", "Gelu", 9.0),
        call("_inlfunc_block_token_0_gelu", "Gelu", 9.0),
        call("gelu", "Mul", 9.0),
    )
    rows = node_rows(Trace(calls, (36.0,)), {"Gelu": {"gelu"}}, 10.0)
    assert {(row.name, row.op) for row in rows if row.ours} == {
        ("gelu", "Gelu"),
        ("_inlfunc_block_token_0_gelu", "Gelu"),
    }


def test_mean_over_calls_and_runs() -> None:
    calls = tuple(call("a", "Relu", float(10 * (i + 1)), run=i // 2) for i in range(4))
    (row,) = node_rows(Trace(calls, (50.0, 80.0)), {}, 10.0)
    assert (row.calls, row.mean_us, row.self_us, row.median_us) == (2, 25, 50, 25)


def test_list_of_elementwise_operators_is_of_operators() -> None:
    known = {schema.name for schema in onnx.defs.get_all_schemas_with_history()}
    runtime = {"BiasGelu", "FastGelu", "QuickGelu"}  # what fusions make
    assert known | runtime | {spec.name for spec in SPECS} >= ELEMENTWISE


def matmul(folder: Path, external: bool) -> Path:
    weight = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", 1, ["batch", "width"])],
        [helper.make_tensor_value_info("y", 1, ["batch", 64])],
        [weight],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    path = folder / "m.onnx"
    onnx.save(proto, str(path), save_as_external_data=external, size_threshold=0, location="m.bin")
    return path


@pytest.mark.parametrize("external", [False, True])
def test_weights_beside_the_model(tmp_path: Path, external: bool) -> None:
    path = matmul(tmp_path, external)
    files = {file.name for file in tmp_path.iterdir()}
    assert ("m.bin" in files) == external
    found = profiled(path, inputs=None, dims={"batch": 3, "width": 64})
    assert [node.name for node in found.nodes] == ["MatMul_y"]
    assert found.inputs == {"x": "float32[3, 64]"}
    assert {file.name for file in tmp_path.iterdir()} == files


def test_no_place_for_the_copy(tmp_path: Path, monkeypatch) -> None:
    path = matmul(tmp_path, external=True)

    def refuse(**options: object) -> None:
        assert options["dir"] == tmp_path.resolve()
        raise PermissionError("read-only folder")

    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    with pytest.raises(ModelError, match=r"should fit beside the model.*read-only folder"):
        profiled(path, inputs=None)


def test_errors(flow: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="runs should be at least 1"):
        profiled(flow, runs=0)
    with pytest.raises(ModelError, match="the model file should exist"):
        profiled(tmp_path / "none.onnx")
    with pytest.raises(UsageError, match=r"should run on its inputs \(x float32\[2, 5\]\)"):
        profiled(matmul(tmp_path, False), inputs=None, dims={"width": 5})
