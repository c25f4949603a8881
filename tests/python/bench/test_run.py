# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from myops import bench
from myops._errors import MissingPackageError, MyopsError, UsageError
from myops.bench import ort_rows, rivals, runner, torch_rows
from myops.norm_spec import ADD_RMS_NORM
from myops.spec import SPECS, SWISH
from rich.progress import Progress

DTYPES = ("float32", "float64", "float16", "bfloat16")


@pytest.mark.parametrize("dtype", DTYPES)
def test_tiny(dtype):
    sizes = (17, 100) if dtype == "float32" else (17,)
    report = bench.run(sizes=sizes, dtypes=(dtype,), rounds=2, warmup=1)
    names = [(r.op, r.framework, r.name, r.elements) for r in report.rows]
    for spec in SPECS:
        torch_names = [rival.name for rival in torch_rows.TORCH_RIVALS.get(spec.name, ())]
        for size in sizes:
            for name in (*torch_names, "myops"):
                assert (spec.name, "torch", name, size) in names
            for name in ("decomposed", "fused", "myops"):
                assert (spec.name, "onnxruntime", name, size) in names
    for row in report.rows:
        assert (row.ratio == 1.0) or row.name != "myops"
        assert row.q1_us <= row.median_us <= row.q3_us
        # ONNX Runtime's own fusion may carry our operator's name.
        if row.framework == "onnxruntime" and row.name != "fused":
            assert (row.kernels == row.op) == (row.name == "myops")
    # What was not measured has a row that says why.
    assert {(m.op, m.elements, m.name) for m in report.missing} == {
        (spec.name, size, "torch.compile") for spec in SPECS for size in sizes
    }
    assert all(m.why.startswith("not asked for") for m in report.missing)
    json.dumps(report.to_dict())


def test_frameworks_in_processes_of_their_own():
    before = torch.get_num_threads()
    with Progress(disable=True) as progress:
        ops = ["Swish", "RMSNorm"]
        report = bench.run(ops, sizes=(64,), threads=2, rounds=2, progress=progress)
        (task,) = progress.tasks
        assert task.completed == task.total == 4 * len(ops)
    assert {row.framework for row in report.rows} == set(runner.FRAMEWORKS)
    assert {row.threads for row in report.rows} == {2}
    assert torch.get_num_threads() == before


def test_threads_come_back():
    before = torch.get_num_threads()
    bench.run(["Swish"], sizes=(64,), rounds=1, frameworks=("torch",))
    assert torch.get_num_threads() == before


def test_a_row_that_computes_something_else_is_an_error(monkeypatch):
    wrong = torch_rows.TorchRival("wrong", lambda out, scratch, x: out.copy_(x))
    monkeypatch.setitem(torch_rows.TORCH_RIVALS, "Swish", (wrong,))
    with pytest.raises(MyopsError, match=r"every row should compute Swish.*in row wrong"):
        bench.run(["Swish"], sizes=(64,), rounds=1, frameworks=("torch",))


def test_failing_process_is_told():
    plan = runner.Plan(("Nothing",), (64,), ("float32",), ("torch",), 2, 1, 1, False)
    with pytest.raises(MyopsError, match=r"exit code 1.*an operator should be one of"):
        runner._measure_elsewhere(plan, lambda: None)


def test_chain_links_further_inputs():
    spec = replace(SWISH, inputs=("x", "gate"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SPECS, "_specs", [replace(spec, body=_gated)])
        import onnx

        model = onnx.load_from_string(ort_rows.chain(spec, "float32", links=3))
    assert [list(node.input) for node in model.graph.node] == [
        ["x", "gate"],
        ["swish_y_0", "gate"],
        ["swish_y_1", "gate"],
    ]
    assert model.graph.output[0].name == model.graph.node[-1].output[0]


def test_chain_of_a_norm_passes_its_sum_on():
    import onnx

    model = onnx.load_from_string(ort_rows.chain(ADD_RMS_NORM, "float32", links=2))
    first, second = model.graph.node
    assert list(first.input) == ["x", "residual", "weight"]
    assert list(second.input) == [*first.output, "weight"]
    assert list(second.output) == [value.name for value in model.graph.output] == ["y", "sum"]


def _gated(op, x, gate, beta):
    return op.Mul(x, op.Sigmoid(op.Mul(gate, beta)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_shared_buffers_are_aligned(dtype):
    data = rivals.Data.make(SWISH, 1001, dtype)
    for array in (*data.inputs, data.output, data.scratch):
        assert array.ctypes.data % 64 == 0
        assert array.shape == (1001,)
    again = rivals.Data.make(SWISH, 1001, dtype)
    assert np.array_equal(data.inputs[0], again.inputs[0])


@pytest.mark.parametrize(("elements", "width"), [(1, 1), (96, 96), (3 * 1024, 1024), (1500, 750)])
def test_rows_of_norms(elements, width):
    assert rivals.row_width(elements) == width
    data = rivals.Data.make(ADD_RMS_NORM, elements, "float32")
    shape = (elements // width, width)
    assert [array.shape for array in data.inputs] == [shape, shape, (width,)]
    assert data.output.shape == shape
    # x, residual, y and sum, and a row of weights.
    assert data.moved(ADD_RMS_NORM) == 4 * (4 * elements + width)


def test_buffers_rotate_and_are_apart(monkeypatch):
    monkeypatch.setattr(rivals, "last_level_cache", lambda: 10_000)
    data = rivals.Data.make(SWISH, 500, "float32")
    sets = rivals.rotation(data)
    assert len(sets) == 4  # 6,000 bytes each, 20,000 wanted
    assert sets[0] is data
    places = [array.ctypes.data for d in sets for array in (*d.inputs, d.output, d.scratch)]
    assert len(set(places)) == len(places) and not any(place % 64 for place in places)
    for other in sets[1:]:
        assert np.array_equal(other.inputs[0], data.inputs[0])
    assert len(rivals.rotation(data, limit=2)) == 2
    monkeypatch.setattr(rivals, "last_level_cache", lambda: 100)
    assert rivals.rotation(data) == [data]


def test_every_case_writes_all_sets(monkeypatch):
    monkeypatch.setattr(rivals, "last_level_cache", lambda: 4_000)
    for spec in (SWISH, ADD_RMS_NORM):
        data = rivals.Data.make(spec, 256, "float32")
        sets = rivals.rotation(data)
        assert len(sets) > 1
        copies = sets[1:]
        cases = torch_rows.torch_cases(spec, data, copies)
        ours = [case for case in cases if case.name == "myops"]
        ours += ort_rows.ort_cases(spec, data, 1, links=2, copies=copies)
        for case in ours:
            for d in sets:
                d.output[...] = np.nan
            for _ in sets:
                case.call()
            for d in sets:
                np.testing.assert_array_equal(d.output, data.output)
                assert np.isfinite(d.output).all()


def test_frameworks_that_are_not_installed_are_left_out(monkeypatch):
    find = runner.importlib.util.find_spec
    monkeypatch.setattr(
        runner.importlib.util, "find_spec", lambda name: None if name == "torch" else find(name)
    )
    report = bench.run(["Swish"], sizes=(64,), rounds=1)
    assert {row.framework for row in report.rows} == {"onnxruntime"}
    with pytest.raises(MissingPackageError, match="torch should be installed"):
        bench.run(["Swish"], sizes=(64,), rounds=1, frameworks=("torch",))


def test_sweep_has_a_knee():
    report = bench.run(["Swish"], sizes=(64,), threads=(1, 2), rounds=1, warmup=1)
    assert report.threads == [1, 2] == list(report.copy_gbps)
    knees = {(found["framework"], found["threads"]) for found in report.knees()}
    assert {framework for framework, _ in knees} == set(runner.FRAMEWORKS)
    assert {threads for _, threads in knees} <= {1, 2}
    assert any("intra_op_num_threads" in note for note in report.notes())


def test_kernels_names_what_ran():
    model = ort_rows.chain(SWISH, "float32")
    x = {"x": np.ones(4, np.float32)}
    assert bench.kernels(model, x) == {"Swish": ort_rows.LINKS}
    assert "Swish" not in bench.kernels(model, x, plugin=False)
    assert "Sigmoid" in bench.kernels(model, x, plugin=False, level="basic")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ops": ["Swoosh"]}, "an operator should be one of"),
        ({"ops": []}, "ops should be among"),
        ({"dtypes": ("int8",)}, "dtypes should be among"),
        ({"sizes": (0,)}, "sizes should be at least 1"),
        ({"threads": 0}, "threads should be at least 1"),
        ({"rounds": 0}, "rounds should be at least 1"),
        ({"frameworks": ("jax",)}, "frameworks should be among"),
    ],
)
def test_wrong_use(arguments, message):
    with pytest.raises(UsageError, match=message):
        bench.run(**arguments)


def test_import_is_light():
    code = (
        "import sys, myops.bench, myops.demo; "
        "print({'torch', 'onnx', 'onnxruntime', 'matplotlib', 'sklearn'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
