# SPDX-License-Identifier: Apache-2.0
"""Where a model's time goes: ONNX Runtime's own profile, per node and per operator."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from myops._errors import MyopsError, UsageError, require
from myops.ort.feeds import Arrays, check_run, model_inputs, runner
from myops.ort.profile_report import NodeRow, OpRow, Profile
from myops.ort.session import session
from myops.ort.trace import WHERE, Call, Trace, read
from myops.spec import SPECS

if TYPE_CHECKING:
    from onnx import ModelProto

ELEMENTWISE = frozenset(
    """
    Abs Acos Acosh Add And Asin Asinh Atan Atanh BiasGelu BitShift BitwiseAnd BitwiseNot BitwiseOr
    BitwiseXor Cast CastLike Ceil Celu Clip Cos Cosh DequantizeLinear Div Elu Equal Erf Exp FastGelu
    Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Less
    LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow QuantizeLinear QuickGelu
    Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan
    Tanh ThresholdedRelu Where Xor
    """.split()  # noqa: SIM905
)
"""Operators, ONNX's and those ONNX Runtime makes of them, that read each element of their inputs
once and do little with it: memory is what limits them. Ours count, too."""

MIN_TIMED_US = 5.0
"""A bandwidth is given for nodes that take at least this long: the profile counts microseconds."""

MIN_TIMED_BYTES = 16_384
"""And that move at least this much: the time of a smaller one is that of calling it."""

MAX_EVENTS = 1_000_000
"""ONNX Runtime stops recording here."""


def _our_names(model: ModelProto) -> dict[str, set[str]]:
    """Operator -> names of our nodes. Those in functions that ONNX Runtime inlines keep theirs as
    the end of a longer one."""
    from myops.onnx import model as onnx_model

    names: dict[str, set[str]] = defaultdict(set)
    for node in onnx_model.our_nodes(model):
        names[node.op_type].add(node.name)
    return names


def _is_ours(call: Call, names: Mapping[str, set[str]]) -> bool:
    ours = names.get(call.op, set())
    if call.name in ours:
        return True
    return call.name.startswith("_inlfunc_") and any(call.name.endswith(f"_{n}") for n in ours)


def _moved(calls: Sequence[Call]) -> int | None:
    sizes = [t.nbytes for call in calls for t in (*call.inputs, *call.outputs)]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def node_rows(trace: Trace, ours: Mapping[str, set[str]], copy_gbps: float) -> list[NodeRow]:
    """A row per node, the slowest first.

    Args:
        trace: calls of the runs that count.
        ours: operator -> names of the nodes that are in our domains.
        copy_gbps: what the machine reaches copying memory, in GB/s.
    """
    groups: dict[Any, list[Call]] = defaultdict(list)
    for call in trace.calls:
        groups[(call.inside, call.name, call.op, call.provider)].append(call)
    runs = max(1, len(trace.runs_us))
    whole = sum(call.self_us for call in trace.calls) or 1.0
    domains = {spec.name: spec.namespace for spec in SPECS}
    rows = []
    for (inside, name, op, provider), calls in groups.items():
        own = sum(call.self_us for call in calls)
        mine = _is_ours(calls[0], ours)
        moved = _moved(calls) if mine or op in ELEMENTWISE else None
        shapes = {(call.inputs, call.outputs) for call in calls}
        mean = own / len(calls)
        median = float(np.median([call.self_us for call in calls]))
        per_call = None if moved is None else moved / len(calls)
        # The median is what the node needs when nothing disturbs it, where its calls are alike.
        time = mean if len(shapes) > 1 else median
        gbps = None
        if per_call is not None and time >= MIN_TIMED_US and per_call >= MIN_TIMED_BYTES:
            gbps = per_call / time / 1e3
        rows.append(
            NodeRow(
                name=name,
                op=op,
                domain=domains.get(op, "") if mine else "",
                ours=mine,
                provider=provider,
                inside="/".join(inside),
                calls=len(calls) / runs,
                mean_us=mean,
                median_us=median,
                self_us=own / runs,
                total_us=sum(call.total_us for call in calls) / runs,
                share=own / whole,
                inputs=tuple(map(str, calls[0].inputs)),
                outputs=tuple(map(str, calls[0].outputs)),
                shapes_vary=len(shapes) > 1,
                bytes=None if per_call is None else round(per_call),
                gbps=gbps,
                of_copy=None if gbps is None else gbps / copy_gbps,
            )
        )
    return sorted(rows, key=lambda row: -row.self_us)


def op_rows(nodes: Sequence[NodeRow]) -> list[OpRow]:
    """The nodes' rows summed over each operator and provider, the slowest first."""
    groups: dict[Any, list[NodeRow]] = defaultdict(list)
    for node in nodes:
        groups[(node.op, node.domain, node.provider)].append(node)
    rows = []
    for (op, domain, provider), members in groups.items():
        calls = sum(node.calls for node in members)
        own = sum(node.self_us for node in members)
        share = sum(node.share for node in members)
        ours = members[0].ours
        rows.append(OpRow(op, domain, ours, provider, len(members), calls, own / calls, own, share))
    return sorted(rows, key=lambda row: -row.self_us)


def _keep(written: Path, trace: Path) -> None:
    """Moves the profile to where the user wants it; a file there is replaced at the end only."""
    temporary = trace.with_name(f".tmp.{trace.name}")
    try:
        trace.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(written, temporary)
        temporary.replace(trace)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise UsageError(
            WHERE,
            "the trace should be a file that can be written",
            f"{trace}: {type(error).__name__}: {error}",
            "Name another place",
        ) from error


def _plain_ms(run: Callable[[], Any], warmup: int, runs: int, step: Callable[[], object]) -> float:
    samples = []
    for number in range(warmup + runs):
        start = perf_counter()
        run()
        if number >= warmup:
            samples.append(1e3 * (perf_counter() - start))
        step()
    return float(np.median(samples))


def profile(
    model: str | os.PathLike[str],
    inputs: Arrays | str | os.PathLike[str] | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    runs: int = 20,
    warmup: int = 5,
    threads: int | None = None,
    level: str | None = None,
    plugin: str | os.PathLike[str] | bool | None = None,
    providers: Sequence[Any] | None = None,
    trace: str | os.PathLike[str] | None = None,
    copy_gbps: float | None = None,
    on_step: Callable[[], object] | None = None,
) -> Profile:
    """Runs a model with ONNX Runtime's profiler on, and once more without it.

    Args:
        model: path of an .onnx file. Nodes without a name get one in a temporary copy; the file
            stays as it is.
        inputs: arrays by input name, or an .npz file; made up from the model's signature if None.
        dims: sizes of symbolic dims for made-up inputs; 2 if not named.
        runs: that count.
        warmup: runs before them that do not.
        threads: ``intra_op_num_threads``; ONNX Runtime's default if None.
        level: graph optimization level, as in ``myops.ort.session``.
        plugin: another plugin file than the installed one; False registers none.
        providers: execution providers, as in ``myops.ort.session``.
        trace: where to keep the Chrome trace; not kept if None.
        copy_gbps: this machine's copy bandwidth; measured if None.
        on_step: called after each run, ``2 * (warmup + runs)`` times, for progress bars.

    Returns:
        Times per node and per operator. The time of a node with inner graphs (If, Loop, Scan) is
        without that of the nodes in them, which have rows of their own.

    Raises:
        ModelError: the model is not usable.
        LibraryError: the plugin is not usable.
        UsageError: an argument is not usable, or the model does not run on the inputs.

    Does not time single kernels on accelerators: a node there has the time of its launch.
    """
    from myops.bench import machine
    from myops.bench.measure import copy_bandwidth

    require(WHERE, "onnx", "onnxruntime")
    if runs < 1 or warmup < 0:
        raise UsageError(
            WHERE,
            "runs should be at least 1 and warmup at least 0",
            f"{runs}, {warmup}",
            "Correct it",
        )
    from myops.onnx.names import named

    load = os.getloadavg()[0]
    step = on_step or (lambda: None)
    settings: dict[str, Any] = {
        "intra_op_num_threads": threads,
        "graph_optimization_level": level,
        "plugin": plugin,
        "providers": providers,
    }
    copy_gbps = copy_gbps or copy_bandwidth(threads=threads or len(os.sched_getaffinity(0)))
    with named(model) as (path, proto, unnamed), contextlib.ExitStack() as stack:
        arrays = model_inputs(proto, inputs, dims)
        plain = runner(session(path, **settings), arrays)
        check_run(plain, arrays, os.fspath(model))
        plain_ms = _plain_ms(plain, warmup, runs, step)
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        profiled = session(path, profile=Path(folder) / "profile", **settings)
        run = runner(profiled, arrays)
        for _ in range(warmup + runs):
            run()
            step()
        written = Path(profiled.end_profiling())
        found = read(written)
        if trace is not None:
            _keep(written, Path(trace))
    if len(found.runs_us) != warmup + runs:
        raise MyopsError(
            WHERE,
            f"the profile should hold {warmup + runs} runs",
            f"{len(found.runs_us)}: ONNX Runtime stops recording after {MAX_EVENTS:,} events",
            "Ask for fewer runs",
        )
    counted = Trace(
        tuple(call for call in found.calls if call.run >= warmup), found.runs_us[warmup:]
    )
    ours = _our_names(proto) if plugin is not False else {}
    nodes = node_rows(counted, ours, copy_gbps)
    return Profile(
        model=os.fspath(model),
        inputs={name: f"{array.dtype}{list(array.shape)}" for name, array in arrays.items()},
        runs=runs,
        warmup=warmup,
        threads=threads,
        plugin=plugin is not False,
        run_ms=float(np.mean(counted.runs_us)) / 1e3,
        plain_ms=plain_ms,
        nodes=nodes,
        ops=op_rows(nodes),
        named=unnamed,
        not_run=[] if plugin is False else _not_run(proto, nodes),
        copy_gbps=copy_gbps,
        trace=None if trace is None else os.fspath(trace),
        machine=machine.describe(),
        load=load,
    )


def _not_run(model: ModelProto, nodes: Sequence[NodeRow]) -> list[str]:
    """Our nodes of the model that did not run: in a branch not taken, or optimised away."""
    ran = {(node.op, node.name) for node in nodes if node.ours}
    return [
        f"{op} {name}"
        for op, names in _our_names(model).items()
        for name in sorted(names)
        if not any(o == op and (n == name or n.endswith(f"_{name}")) for o, n in ran)
    ]
