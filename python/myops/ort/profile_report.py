# SPDX-License-Identifier: Apache-2.0
"""What a profile found, as rows, tables and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

COPIES = ("MemcpyToHost", "MemcpyFromHost")
REORDERS = ("ReorderInput", "ReorderOutput")

ABOVE_COPY = 1.05
"""A figure this many times the copy bandwidth is above it, not just noise."""


def _provider(name: str) -> str:
    return name.removesuffix("ExecutionProvider")


@dataclass(frozen=True)
class NodeRow:
    """One node.

    Attributes:
        name: of the node, as ONNX Runtime has it: fusions make new nodes with new names.
        op: its operator.
        domain: "myops" for ours; the profile does not tell others'.
        ours: whether our kernel ran it.
        provider: the execution provider it ran on.
        inside: names of the nodes whose inner graph it is in, joined by "/"; "" in the main graph.
        calls: per run.
        mean_us: microseconds per call, without the nodes of inner graphs.
        median_us: likewise; what disturbed the machine does not show in it.
        self_us: microseconds per run, without the nodes of inner graphs.
        total_us: microseconds per run, with them.
        share: of the time of all nodes.
        inputs: type and shape of each input, at the first call.
        outputs: likewise.
        shapes_vary: whether other calls had other shapes.
        bytes: read and written per call, for elementwise nodes and ours; None for others.
        gbps: bytes / median time (mean, where shapes vary), in 1e9 bytes per second; None where
            bytes are, or for short calls and little memory.
        of_copy: ``gbps`` / the machine's copy bandwidth.
    """

    name: str
    op: str
    domain: str
    ours: bool
    provider: str
    inside: str
    calls: float
    mean_us: float
    median_us: float
    self_us: float
    total_us: float
    share: float
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    shapes_vary: bool
    bytes: int | None
    gbps: float | None
    of_copy: float | None

    @property
    def full_name(self) -> str:
        """With the nodes whose inner graph it is in."""
        return f"{self.inside}/{self.name}" if self.inside else self.name


@dataclass(frozen=True)
class OpRow:
    """One operator on one execution provider.

    Attributes:
        op: its name; "myops::" stands before ours in tables.
        domain: as in ``NodeRow``.
        ours: whether it is our kernel.
        provider: the execution provider.
        nodes: how many.
        calls: per run.
        mean_us: microseconds per call.
        self_us: microseconds per run.
        share: of the time of all nodes.
    """

    op: str
    domain: str
    ours: bool
    provider: str
    nodes: int
    calls: float
    mean_us: float
    self_us: float
    share: float


def _label(row: NodeRow | OpRow) -> str:
    return f"{row.domain}::{row.op}" if row.domain else row.op


def _count(value: float) -> str:
    return f"{value:.0f}" if value == round(value) else f"{value:.1f}"


@dataclass(frozen=True)
class Profile:
    """Where the time of a model goes.

    Attributes:
        model: the file.
        inputs: dtype and shape by name.
        runs: that were counted.
        warmup: runs before them.
        threads: ``intra_op_num_threads``; None is ONNX Runtime's default.
        plugin: whether it was registered.
        run_ms: mean milliseconds of a run with the profiler on, like those of the nodes.
        plain_ms: median milliseconds of a run without it: what a user waits.
        nodes: the slowest first.
        ops: the slowest first.
        named: nodes that had no name and got one.
        not_run: our nodes of the model that no kernel of ours ran.
        copy_gbps: the machine's copy bandwidth in GB/s, read plus written.
        trace: where the Chrome trace is; None if it was not kept.
        machine: processor and versions.
        load: the system's load average when it began.
    """

    model: str
    inputs: Mapping[str, str]
    runs: int
    warmup: int
    threads: int | None
    plugin: bool
    run_ms: float
    plain_ms: float
    nodes: list[NodeRow]
    ops: list[OpRow]
    named: int
    not_run: list[str]
    copy_gbps: float
    trace: str | None
    machine: Mapping[str, str | int]
    load: float

    @property
    def nodes_ms(self) -> float:
        """Milliseconds per run in all nodes, each counted once."""
        return sum(node.self_us for node in self.nodes) / 1e3

    def calls_of(self, *ops: str) -> float:
        """Calls per run of these operators."""
        return sum(row.calls for row in self.ops if row.op in ops)

    def time_of(self, *ops: str) -> float:
        """Milliseconds per run of these operators."""
        return sum(row.self_us for row in self.ops if row.op in ops) / 1e3

    def summary(self) -> list[str]:
        """Sentences for below the tables."""
        from myops.bench.report import busy_note

        outside = max(0.0, self.run_ms - self.nodes_ms)
        lines = [
            f"{self.plain_ms:.2f} ms a run (median). With the profiler on "
            f"{self.run_ms:.2f} ms (mean): {self.nodes_ms:.2f} ms in nodes, "
            f"{outside:.2f} ms outside them.",
        ]
        ours = [row for row in self.ops if row.ours]
        if ours:
            kernels = ", ".join(
                f"{_count(row.calls)} {_label(row)} on {_provider(row.provider)}" for row in ours
            )
            share = sum(row.share for row in ours)
            lines.append(f"Kernels of myops: {kernels}; {share:.1%} of the time.")
        elif self.plugin:
            lines.append("No kernel of myops ran.")
        else:
            lines.append("The plugin was not registered.")
        if self.not_run:
            shown = ", ".join(self.not_run[:3]) + (", ..." * (len(self.not_run) > 3))
            lines.append(f"{len(self.not_run)} nodes of myops did not run: {shown}.")
        for what, ops in (("Memcpy between devices", COPIES), ("Reorders of layout", REORDERS)):
            calls = self.calls_of(*ops)
            spent = f", {self.time_of(*ops):.2f} ms" if calls else ""
            lines.append(f"{what}: {_count(calls)} a run{spent}.")
        if self.named:
            lines.append(f"{self.named} nodes had no name: they have one here, not in the file.")
        bandwidths = [node.of_copy for node in self.nodes if node.of_copy is not None]
        if bandwidths:
            above = any(value > ABOVE_COPY for value in bandwidths)
            star = " * is above that: a buffer was in a cache." if above else ""
            lines.append(f"This machine copies memory at {self.copy_gbps:.1f} GB/s.{star}")
        if any("CPU" not in row.provider for row in self.ops):
            lines.append("Nodes on an accelerator show the time of their launch.")
        return lines + busy_note(self.load, self.threads or 1, int(self.machine["cores"]))

    def how_to_open(self) -> str:
        """What to do with the trace; empty if it was not kept."""
        if self.trace is None:
            return ""
        return (
            f"Trace: {self.trace}. Open https://ui.perfetto.dev and drop the file on it (it stays "
            "on your machine), or load it in chrome://tracing."
        )

    def op_table(self) -> Table:
        """Per operator, for a terminal; ours in bold."""
        table = _table(f"Operators: {self.model}")
        for header in ("op", "EP"):
            table.add_column(header, no_wrap=header == "EP")
        for header in ("share", "ms/run", "nodes", "calls", "us/call"):
            table.add_column(header, justify="right", no_wrap=True)
        for row in self.ops:
            table.add_row(
                _label(row),
                _provider(row.provider),
                f"{row.share:.1%}",
                f"{row.self_us / 1e3:.3f}",
                str(row.nodes),
                _count(row.calls),
                f"{row.mean_us:.1f}",
                style="bold" if row.ours else None,
            )
        return table

    def node_table(self, top: int | None = 20) -> Table:
        """Per node, for a terminal: the ``top`` slowest, or all if None; ours in bold."""
        rows = self.nodes[:top]
        table = _table(_title("Nodes", rows, self.nodes))
        for header in ("node", "op", "EP"):
            table.add_column(header, no_wrap=True)
        for header in ("share", "us/call", "calls"):
            table.add_column(header, justify="right", no_wrap=True)
        table.add_column("output", overflow="fold")
        for row in rows:
            table.add_row(
                _elided(row.full_name),
                _label(row),
                _provider(row.provider),
                f"{row.share:.1%}",
                f"{row.mean_us:.1f}",
                _count(row.calls),
                (row.outputs[0] if row.outputs else "") + ", varies" * row.shapes_vary,
                style="bold" if row.ours else None,
            )
        return table

    def memory_bound(self) -> list[NodeRow]:
        """Elementwise nodes, and ours, that ran long enough for a bandwidth; slowest first."""
        return [node for node in self.nodes if node.gbps is not None]

    def memory_table(self, top: int | None = 20) -> Table:
        """What the nodes that memory limits reach, for a terminal."""
        found = self.memory_bound()
        rows = found[:top]
        table = _table(_title("Elementwise nodes", rows, found))
        for header in ("node", "op"):
            table.add_column(header, no_wrap=True)
        for header in ("share", "us (median)", "kB", "GB/s", "of copy"):
            table.add_column(header, justify="right", no_wrap=True)
        for row in rows:
            assert row.bytes is not None and row.gbps is not None and row.of_copy is not None
            flag = "*" if row.of_copy > ABOVE_COPY else " "
            table.add_row(
                _elided(row.full_name),
                _label(row),
                f"{row.share:.1%}",
                f"{row.median_us:.1f}",
                f"{row.bytes / 1e3:.0f}",
                f"{row.gbps:.1f}",
                f"{row.of_copy:.0%}{flag}",
                style="bold" if row.ours else None,
            )
        return table

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for json."""
        counts = {
            "nodes_ms": self.nodes_ms,
            "memcpy": self.calls_of(*COPIES),
            "memcpy_ms": self.time_of(*COPIES),
            "reorders": self.calls_of(*REORDERS),
            "reorders_ms": self.time_of(*REORDERS),
            "how_to_open": self.how_to_open(),
        }
        return asdict(self) | counts


def _elided(name: str, width: int = 30) -> str:
    """A long name without its middle: both ends tell where a node is."""
    if len(name) <= width:
        return name
    head = width // 3
    return f"{name[:head]}…{name[head + 1 - width :]}"


def _title(what: str, shown: list[NodeRow], found: list[NodeRow]) -> str:
    rest = len(found) > len(shown)
    return what + (f", the slowest {len(shown)} of {len(found)}" if rest else "")


def _table(title: str) -> Table:
    from rich import box
    from rich.table import Table

    return Table(
        title=title, title_justify="left", box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0)
    )
