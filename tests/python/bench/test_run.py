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
from myops._errors import MyopsError, UsageError
from myops.bench import ort_rows, rivals, runner
from myops.spec import ELEMENTWISE, SPECS, SWISH
from rich.progress import Progress

DTYPES = ("float32", "float64", "float16", "bfloat16")


@pytest.mark.parametrize("dtype", DTYPES)
def test_tiny(dtype):
    report = bench.run(sizes=(17, 100), dtypes=(dtype,), rounds=2)
    names = [(r.op, r.framework, r.name, r.elements) for r in report.rows]
    for spec in ELEMENTWISE:
        torch_names = [rival.name for rival in rivals.TORCH_RIVALS.get(spec.name, ())]
        for size in (17, 100):
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
    json.dumps(report.to_dict())


def test_frameworks_in_processes_of_their_own():
    before = torch.get_num_threads()
    with Progress(disable=True) as progress:
        report = bench.run(sizes=(64,), threads=2, rounds=2, progress=progress)
        (task,) = progress.tasks
        assert task.completed == task.total == 4 * len(ELEMENTWISE)
    assert {row.framework for row in report.rows} == set(runner.FRAMEWORKS)
    assert {row.threads for row in report.rows} == {2}
    assert torch.get_num_threads() == before


def test_threads_come_back():
    before = torch.get_num_threads()
    bench.run(sizes=(64,), rounds=1, frameworks=("torch",))
    assert torch.get_num_threads() == before


def test_a_row_that_computes_something_else_is_an_error(monkeypatch):
    wrong = rivals.TorchRival("wrong", lambda out, scratch, x: out.copy_(x))
    monkeypatch.setitem(rivals.TORCH_RIVALS, "Swish", (wrong,))
    with pytest.raises(MyopsError, match=r"every row should compute Swish.*in row wrong"):
        bench.run(["Swish"], sizes=(64,), rounds=1, frameworks=("torch",))


def test_failing_process_is_told():
    plan = runner.Plan(("Nothing",), (64,), ("float32",), ("torch",), 2, 1)
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
        ["swish_0", "gate"],
        ["swish_1", "gate"],
    ]
    assert model.graph.output[0].name == model.graph.node[-1].output[0]


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
