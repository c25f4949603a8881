# SPDX-License-Identifier: Apache-2.0
"""Reading ONNX Runtime's profile: what belongs to what, and that nothing is counted twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from myops._errors import ModelError
from myops.ort.trace import Tensor, read


def event(name: str, start: int, duration: int, op: str = "", tid: int = 1, **args: object):
    session = name in ("model_run", "SequentialExecutor::Execute", "session_initialization")
    return {
        "cat": "Session" if session else "Node",
        "name": name if session else f"{name}_kernel_time",
        "ts": start,
        "dur": duration,
        "tid": tid,
        "pid": 7,
        "ph": "X",
        "args": {"op_name": op, "provider": "CPUExecutionProvider", **args} if op else {},
    }


def one_run(start: int) -> list[dict]:
    """Relu 10 us; Loop 60 us with two runs of a body (Mul 20 us each); Relu 5 us."""
    return [
        event("a", start + 2, 10, "Relu"),
        event("m", start + 15, 20, "Mul"),
        event("SequentialExecutor::Execute", start + 14, 22),
        event("m", start + 40, 20, "Mul"),
        event("SequentialExecutor::Execute", start + 39, 22),
        event("loop", start + 12, 60, "Loop"),
        event("b", start + 73, 5, "Relu"),
        event("SequentialExecutor::Execute", start + 1, 80),
        event("model_run", start, 82),
    ]


def written(folder: Path, events: object) -> Path:
    path = folder / "profile.json"
    path.write_text(json.dumps(events))
    return path


def test_inner_nodes_are_not_counted_twice(tmp_path: Path) -> None:
    loading = [event("session_initialization", 0, 90)]
    trace = read(written(tmp_path, loading + one_run(100) + one_run(300)))
    assert trace.runs_us == (82, 82)
    for run in (0, 1):
        calls = [(c.name, c.inside, c.total_us, c.self_us) for c in trace.calls if c.run == run]
        assert calls == [
            ("a", (), 10, 10),
            ("m", ("loop",), 20, 20),
            ("m", ("loop",), 20, 20),
            ("loop", (), 60, 20),
            ("b", (), 5, 5),
        ]


def test_a_graph_in_a_graph(tmp_path: Path) -> None:
    events = [
        event("m", 30, 10, "Mul"),
        event("SequentialExecutor::Execute", 29, 12),
        event("if", 25, 20, "If"),
        event("SequentialExecutor::Execute", 20, 30),
        event("loop", 10, 45, "Loop"),
        event("SequentialExecutor::Execute", 5, 60),
        event("model_run", 0, 70),
    ]
    found = {call.name: call for call in read(written(tmp_path, events)).calls}
    assert found["m"].inside == ("loop", "if")
    assert found["if"].inside == ("loop",)
    assert [found[name].self_us for name in ("loop", "if", "m")] == [25, 10, 10]
    assert sum(call.self_us for call in found.values()) == 45


def test_nodes_on_other_threads_do_not_contain_each_other(tmp_path: Path) -> None:
    events = [
        event("left", 10, 50, "Conv", tid=1),
        event("right", 20, 10, "Relu", tid=2),
        event("SequentialExecutor::Execute", 5, 60),
        event("model_run", 0, 70),
    ]
    calls = read(written(tmp_path, events)).calls
    assert {(call.name, call.inside, call.self_us) for call in calls} == {
        ("left", (), 50),
        ("right", (), 10),
    }


def test_clock_that_rounds_leaves_no_negative_time(tmp_path: Path) -> None:
    events = [
        event("m", 10, 3, "Mul"),
        event("SequentialExecutor::Execute", 10, 2),
        event("if", 10, 2, "If"),
        event("SequentialExecutor::Execute", 9, 4),
        event("model_run", 8, 6),
    ]
    found = {call.name: call.self_us for call in read(written(tmp_path, events)).calls}
    assert found == {"m": 3, "if": 0}


def test_shapes_and_sizes(tmp_path: Path) -> None:
    tensors = [{"float16": [2, 3]}, {"int64": []}, {"string": [4]}]
    node = event("n", 1, 2, "Where", input_type_shape=tensors, output_type_shape=[{"bool": [0, 5]}])
    events = [node, event("SequentialExecutor::Execute", 1, 2), event("model_run", 0, 5)]
    (call,) = read(written(tmp_path, events)).calls
    assert [tensor.nbytes for tensor in call.inputs] == [12, 8, None]
    assert [tensor.nbytes for tensor in call.outputs] == [0]
    assert str(call.inputs[0]) == "float16[2,3]"
    assert Tensor("bfloat16", (3,)).nbytes == 6


@pytest.mark.parametrize(
    "content", ["", "[{", "{}x", '"text"', '[{"cat": "Session", "tid": 1}, 3]']
)
def test_not_a_profile(tmp_path: Path, content: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(content)
    with pytest.raises(ModelError, match="should be a profile that ONNX Runtime wrote"):
        read(path)
