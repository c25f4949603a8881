# SPDX-License-Identifier: Apache-2.0
"""Reads the profile that an ONNX Runtime session writes: a Chrome trace, in JSON.

An event is written when it ends, so what happened inside a node stands before it in the file. Nodes
that run graphs (If, Loop, Scan) have an executor event for each run of an inner graph; that, not
the operator's name, says what belongs to them.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from myops._errors import ModelError

WHERE = "myops.ort"

_KERNEL = "_kernel_time"
_EXECUTOR = "Executor::Execute"
_RUN = "model_run"

# The names ONNX Runtime gives element types here. Strings and sub-byte types have no fixed size.
_ITEM_SIZES = {
    "bool": 1, "int8": 1, "uint8": 1,
    "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2,
    "float": 4, "int32": 4, "uint32": 4,
    "double": 8, "int64": 8, "uint64": 8,
}  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """Element type (ONNX Runtime's name, "float" for float32) and shape."""

    type: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int | None:
        """Bytes; None where the type has no fixed size."""
        size = _ITEM_SIZES.get(self.type)
        return None if size is None else size * prod(self.shape)

    def __str__(self) -> str:
        return f"{self.type}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Call:
    """One execution of one node.

    Attributes:
        name: of the node.
        op: its operator, without domain.
        provider: execution provider.
        inside: names of the nodes whose inner graph it belongs to, outermost first.
        run: number of the run, from 0.
        total_us: microseconds, including those of inner graphs.
        self_us: microseconds without those of the nodes in inner graphs.
        inputs: as they were at this call.
        outputs: likewise.
    """

    name: str
    op: str
    provider: str
    inside: tuple[str, ...]
    run: int
    total_us: float
    self_us: float
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True)
class Trace:
    """What a profile file holds.

    Attributes:
        calls: in the order in which the nodes ended.
        runs_us: microseconds of each complete run, including what is not in any node.
    """

    calls: tuple[Call, ...]
    runs_us: tuple[float, ...]


class _Node:
    """A node's event with the events of its inner graphs."""

    def __init__(self, event: dict[str, Any], inner: list[_Node]) -> None:
        self.event, self.inner = event, inner

    @property
    def start(self) -> float:
        return float(self.event["ts"])

    @property
    def name(self) -> str:
        return str(self.event["name"]).removesuffix(_KERNEL)

    @property
    def duration(self) -> float:
        return float(self.event["dur"])


class _Execution:
    """One run of a graph: the main one or an inner one."""

    def __init__(self, start: float, nodes: list[_Node]) -> None:
        self.start, self.nodes = start, nodes


def _take(stack: list[Any], start: float) -> list[Any]:
    """Removes from the end of ``stack`` what began at ``start`` or later."""
    first = len(stack)
    while first and stack[first - 1].start >= start:
        first -= 1
    taken = stack[first:]
    del stack[first:]
    return taken


def _runs(events: Iterable[dict[str, Any]]) -> list[tuple[float, list[_Node]]]:
    """Duration and nodes of each run. Threads are told apart: nodes run in parallel do not
    contain each other."""
    nodes: dict[Any, list[_Node]] = defaultdict(list)
    executions: dict[Any, list[_Execution]] = defaultdict(list)
    runs = []
    for event in events:
        category, name, thread = event.get("cat"), str(event.get("name")), event.get("tid")
        if category == "Session" and name.endswith(_EXECUTOR):
            start = float(event["ts"])
            executions[thread].append(_Execution(start, _take(nodes[thread], start)))
        elif category == "Node" and name.endswith(_KERNEL):
            inner = _take(executions[thread], float(event["ts"]))
            nodes[thread].append(_Node(event, [n for e in inner for n in e.nodes]))
        elif category == "Session" and name == _RUN:
            ended = [n for e in executions.pop(thread, []) for n in e.nodes]
            for others in nodes.values():  # other threads', and a run without executor events
                ended += others
                others.clear()
            runs.append((float(event["dur"]), ended))
    return runs


def _tensors(entries: Iterable[dict[str, Any]]) -> tuple[Tensor, ...]:
    return tuple(
        Tensor(str(kind), tuple(int(n) for n in shape))
        for entry in entries
        for kind, shape in entry.items()
    )


def _calls(node: _Node, inside: tuple[str, ...], run: int) -> Iterable[Call]:
    for inner in node.inner:
        yield from _calls(inner, (*inside, node.name), run)
    arguments = node.event.get("args", {})
    # The clock counts whole microseconds, so the parts may add up to more than the whole.
    own = max(0.0, node.duration - sum(inner.duration for inner in node.inner))
    yield Call(
        name=node.name,
        op=str(arguments.get("op_name", "")),
        provider=str(arguments.get("provider", "")),
        inside=inside,
        run=run,
        total_us=node.duration,
        self_us=own,
        inputs=_tensors(arguments.get("input_type_shape", ())),
        outputs=_tensors(arguments.get("output_type_shape", ())),
    )


def read(path: str | os.PathLike[str]) -> Trace:
    """Reads a profile file.

    Args:
        path: what ``InferenceSession.end_profiling`` returned.

    Returns:
        Every execution of every node. The times of a node with inner graphs and of the nodes in
        them are kept apart (``Call.self_us``), so that sums over calls count nothing twice.

    Raises:
        ModelError: the file is no such profile.

    Does not read what accelerators report of their kernels (events of category "Kernel"): a node on
    one of those has the time of its launch.
    """
    try:
        events = json.loads(Path(path).read_text(errors="replace"), strict=False)
        runs = _runs(events)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            WHERE,
            "the file should be a profile that ONNX Runtime wrote",
            f"{path}: {type(error).__name__}: {error}",
            "Profile again, and call end_profiling before you read the file",
        ) from error
    calls = tuple(
        call
        for number, (_, nodes) in enumerate(runs)
        for n in nodes
        for call in _calls(n, (), number)
    )
    return Trace(calls, tuple(duration for duration, _ in runs))
