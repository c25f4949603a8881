# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of models: rows, what they are compared with, memory, picture. No times."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from myops import bench
from myops._errors import ModelError, MyopsError, UsageError
from myops.bench import model_runs
from myops.bench.memory import peak_memory
from myops.bench.model_runs import Variant, difference, plugin_choices
from myops.onnx import add_functions
from myops.spec import DOMAIN, DOMAIN_VERSION
from onnx import TensorProto, helper
from rich.console import Console
from rich.progress import Progress


def made(
    path: Path,
    domain: str = DOMAIN,
    beta: float = 1.5,
    portable: bool = True,
    element_type: int = TensorProto.FLOAT,
    source: str = "x",
) -> Path:
    """``Swish`` (or Relu in the default domain), then Add."""
    op, attributes = ("Swish", {"beta": beta}) if domain else ("Relu", {})
    graph = helper.make_graph(
        [
            helper.make_node(op, [source], ["a"], "act", domain=domain, **attributes),
            helper.make_node("Add", ["a", "a"], ["y"], "add"),
        ],
        "g",
        [helper.make_tensor_value_info(source, element_type, ["n", 64])],
        [helper.make_tensor_value_info("y", element_type, ["n", 64])],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, DOMAIN_VERSION)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    if domain and portable:
        add_functions(model)
    onnx.save(model, str(path))
    return path


QUICK = {"rounds": 2, "warmup": 1, "memory": False}


def ways(report: bench.ModelReport) -> list[tuple[str, str, str, int]]:
    return [(Path(r.model).name, r.runtime, r.level, r.threads) for r in report.rows]


def test_portable_model_has_three_rows_with_equal_outputs(tmp_path: Path) -> None:
    with Progress(disable=True) as progress:
        path = made(tmp_path / "m.onnx")
        report = bench.run_models([path], dims={"n": 3}, progress=progress, **QUICK)
        (task,) = progress.tasks
        assert task.completed == task.total == 2
    assert ways(report) == [
        ("m.onnx", "ORT", "basic", 1),
        ("m.onnx", "ORT", "all", 1),
        ("m.onnx", "ORT + plugin", "all", 1),
    ]
    assert [row.baseline for row in report.rows] == [False, True, False]
    assert report.rows[1].ratio.median == report.rows[1].ratio.q3 == 1
    assert report.rows[1].difference == 0
    assert all(row.difference < 1e-5 for row in report.rows)
    assert report.inputs == {"x": "float32[3, 64]"}
    assert report.knees() == []


def test_rows_follow_from_the_model(tmp_path: Path) -> None:
    custom = made(tmp_path / "custom.onnx", portable=False)
    plain = made(tmp_path / "plain.onnx", domain="")
    assert plugin_choices(made(tmp_path / "m.onnx")) == [False, True]
    assert plugin_choices(custom) == [True]
    assert plugin_choices(plain) == [False]
    report = bench.run_models([custom], **QUICK)
    assert ways(report) == [("custom.onnx", "ORT + plugin", "all", 1)]
    assert report.rows[0].baseline
    report = bench.run_models([plain], **QUICK)
    assert any("no model has a node of myops" in note for note in report.notes())


def test_two_models_are_compared_on_the_same_inputs(tmp_path: Path) -> None:
    first, second = made(tmp_path / "a.onnx"), made(tmp_path / "b.onnx", beta=1.6)
    report = bench.run_models([first, second], **QUICK)
    assert [name for name, *_ in ways(report)] == ["a.onnx"] * 3 + ["b.onnx"] * 3
    assert [row.baseline for row in report.rows].index(True) == 1
    assert sum(row.baseline for row in report.rows) == 1
    assert all(row.difference > 1e-3 for row in report.rows[3:])
    assert any("is that the same model?" in note for note in report.notes())


def test_sweep(tmp_path: Path) -> None:
    report = bench.run_models([made(tmp_path / "m.onnx")], threads=(1, 2), **QUICK)
    assert report.threads == [1, 2] == list(report.copy_gbps)
    assert [row.threads for row in report.rows] == [1, 1, 1, 2, 2, 2]
    # Each number of threads has a baseline of its own.
    assert [row.baseline for row in report.rows] == [False, True, False] * 2
    assert {(k["runtime"], k["level"]) for k in report.knees()} == {
        *(("ORT", "basic"), ("ORT", "all"), ("ORT + plugin", "all"))
    }
    assert sum("intra_op_num_threads=" in note for note in report.notes()) == 3


def test_sessions_that_do_not_fit_are_measured_by_threads(tmp_path: Path, monkeypatch) -> None:
    path = made(tmp_path / "m.onnx")
    variants = [Variant(path, threads, "all", True) for threads in (1, 2)]
    assert model_runs.expected_rounds(variants, 7) == 7
    monkeypatch.setattr(model_runs, "file_size", lambda path: 2**50)
    assert model_runs.expected_rounds(variants, 7) == 14
    rounds: list[int] = []
    arrays = {"x": np.ones((2, 64), np.float32)}
    timed = model_runs.measure(variants, arrays, 3, 0, on_round=lambda: rounds.append(1))
    assert [found.variant for found in timed] == variants
    assert len(rounds) == 6


def test_file_size_has_external_data(tmp_path: Path) -> None:
    weight = onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    tensors = [helper.make_tensor_value_info(name, 1, [2, 64]) for name in "xy"]
    graph = helper.make_graph([node], "g", tensors[:1], tensors[1:], [weight])
    path = tmp_path / "m.onnx"
    model = helper.make_model(graph)
    onnx.save(model, str(path), save_as_external_data=True, size_threshold=0, location="w")
    assert model_runs.file_size(path) == path.stat().st_size + 64 * 64 * 4


@pytest.mark.parametrize(
    ("found", "expected", "result"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 3.0], [1.0, 4.0], 0.25),
        ([np.nan, np.inf], [np.nan, np.inf], 0.0),
        ([np.nan, 1.0], [0.0, 1.0], math.inf),
        ([0.5], [0.0], 0.5),
        ([], [], 0.0),
        ([1.0], [1.0, 2.0], math.inf),
    ],
)
def test_difference(found, expected, result) -> None:
    assert difference([np.array(found)], [np.array(expected)]) == result


def test_difference_of_other_kinds() -> None:
    assert difference([np.array(["a", "b"])], [np.array(["a", "b"])]) == 0
    assert difference([np.array(["a", "b"])], [np.array(["a", "c"])]) == math.inf
    assert difference([np.array([True])], [np.array([False])]) == 1
    assert difference([], [np.array([1.0])]) == math.inf


def test_bfloat16_goes_in_and_out(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Swish", ["x"], ["y"], "act", domain=DOMAIN, beta=1.0)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.BFLOAT16, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.BFLOAT16, ["n"])],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, DOMAIN_VERSION)]
    path = tmp_path / "half.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    arrays = {"x": np.array([-1.0, 0.0, 2.0], ml_dtypes.bfloat16)}
    (timed,) = model_runs.measure([Variant(path, 1, "all", True)], arrays, 1, 0)
    np.testing.assert_allclose(timed.outputs[0], [-0.269, 0, 1.766], rtol=1e-2)
    assert peak_memory(path, arrays, plugin=True) > 0


def test_peak_memory_is_that_of_the_session(tmp_path: Path) -> None:
    """64 MB of intermediate and output tensors show, those of the input do not."""
    path = made(tmp_path / "m.onnx")
    small = peak_memory(path, {"x": np.ones((1, 64), np.float32)})
    rows = 2**17
    large = peak_memory(path, {"x": np.ones((rows, 64), np.float32)})
    tensor = rows * 64 * 4
    assert small < tensor
    # The output, and what Swish wrote where Add does not reuse it.
    assert tensor <= large - small <= 3.5 * tensor


def test_peak_memory_that_cannot_be_measured(tmp_path: Path) -> None:
    with pytest.raises(MyopsError, match="the process that measures memory should end well"):
        peak_memory(tmp_path / "none.onnx", {"x": np.ones(1, np.float32)})


def test_dictionary_table_and_picture(tmp_path: Path) -> None:
    path = made(tmp_path / "m.onnx")
    report = bench.run_models(
        [path], dims={"n": 4096}, rounds=2, warmup=1, threads=(1, 2), memory=True
    )
    data = json.loads(json.dumps(report.to_dict()))
    assert data["rows"][0]["milliseconds"]["q1"] <= data["rows"][0]["milliseconds"]["q3"]
    assert [row["peak_bytes"] is not None for row in data["rows"]] == [True] * 3 + [False] * 3
    assert {"Swish", "Add"} <= {point["op"] for point in data["points"]}
    assert {point["runtime"] for point in data["points"] if point["ours"]} == {"ORT + plugin"}
    for point in report.points:
        assert point.gbps == pytest.approx(point.bytes / point.us / 1e3)
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(report.table())
    text = console.export_text()
    assert "baseline" in text and "ORT + plugin" in text and "…" not in text
    report.plot(tmp_path / "m.png")
    assert (tmp_path / "m.png").read_bytes().startswith(b"\x89PNG")


def test_errors(tmp_path: Path) -> None:
    path = made(tmp_path / "m.onnx")
    other = made(tmp_path / "other.onnx", source="z")
    with pytest.raises(UsageError, match="there should be a model"):
        bench.run_models([])
    with pytest.raises(UsageError, match="rounds and threads of at least 1"):
        bench.run_models([path], threads=(0,))
    with pytest.raises(UsageError, match="inputs should be named z"):
        bench.run_models([path, other], **QUICK)
    with pytest.raises(ModelError, match="the model file should exist"):
        bench.run_models([tmp_path / "none.onnx"], **QUICK)
    with pytest.raises(UsageError, match=r"should (run on its inputs|have the shape)"):
        bench.run_models([path], {"x": np.ones((2, 5), np.float32)}, **QUICK)
