# SPDX-License-Identifier: Apache-2.0
"""Measures the operators against their rivals."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from myops import registry
from myops._errors import MyopsError, UsageError, require
from myops.bench import machine
from myops.bench.agreement import TOLERANCE, check_case, expected_result
from myops.bench.compiled import NAME as COMPILED
from myops.bench.compiled import compiled_case
from myops.bench.measure import WHERE, copy_bandwidth, interleaved
from myops.bench.ort_rows import links_for, ort_cases
from myops.bench.report import BenchReport, Measurement, Missing
from myops.bench.rivals import OURS, Case, Data, rotation
from myops.bench.torch_rows import torch_cases, torch_threads
from myops.spec import SPECS, OpSpec, find

if TYPE_CHECKING:
    from rich.progress import Progress

FRAMEWORKS = ("torch", "onnxruntime")

_PACKAGES = {"torch": ("torch",), "onnxruntime": ("onnx", "onnxruntime")}

NOT_ASKED = "not asked for (torch_compile=True, or without --no-compile)"


@dataclass(frozen=True)
class Plan:
    """What to measure: everything a process needs to know."""

    ops: tuple[str, ...]
    sizes: tuple[int, ...]
    dtypes: tuple[str, ...]
    frameworks: tuple[str, ...]
    threads: int
    rounds: int
    warmup: int
    torch_compile: bool

    @property
    def total_rounds(self) -> int:
        """Calls of ``on_round`` to expect."""
        return len(self.ops) * len(self.sizes) * len(self.dtypes) * self.rounds


@dataclass(frozen=True)
class Found:
    """What was measured, and what could not be."""

    measurements: list[Measurement]
    missing: list[Missing]


def _cases(
    plan: Plan, spec: OpSpec, dtype: str, elements: int, data: Data
) -> tuple[list[Case], list[Missing]]:
    cases: list[Case] = []
    missing = []
    copies = rotation(data)[1:]
    if "torch" in plan.frameworks and not registry.in_torch(spec):
        why = f"the package of {spec.namespace} has a plugin only"
        missing.append(Missing(spec.name, "torch", OURS, elements, dtype, plan.threads, why=why))
    elif "torch" in plan.frameworks:
        cases += torch_cases(spec, data, copies)
        compiled = compiled_case(spec, data, copies) if plan.torch_compile else NOT_ASKED
        if isinstance(compiled, Case):
            cases.insert(len(cases) - 1, compiled)
        else:
            row = (spec.name, "torch", COMPILED, elements, dtype, plan.threads)
            missing.append(Missing(*row, why=compiled))
    if "onnxruntime" in plan.frameworks:
        cases += ort_cases(spec, data, plan.threads, links_for(elements), copies=copies)
    return cases, missing


def measure(plan: Plan, on_round: Callable[[], object] | None = None) -> Found:
    """Measures in this process. All rows of one operator, size and dtype, of all frameworks asked
    for, are interleaved in one run."""
    found = Found([], [])
    with ExitStack() as stack:
        if "torch" in plan.frameworks:
            stack.enter_context(torch_threads(plan.threads))
        for spec in map(find, plan.ops):
            for dtype in plan.dtypes:
                for elements in plan.sizes:
                    data = Data.make(spec, elements, dtype)
                    cases, missing = _cases(plan, spec, dtype, elements, data)
                    for case in cases:
                        expected = expected_result(spec, data, case.repeats)
                        check_case(case, expected, dtype, spec.name)
                    timings = interleaved(
                        {f"{case.framework}/{case.name}": case.call for case in cases},
                        plan.rounds,
                        plan.warmup,
                        min_sample=1e-3,
                        settle=plan.threads > 1,
                        on_round=on_round,
                    )
                    found.missing.extend(missing)
                    found.measurements.extend(
                        Measurement(
                            op=spec.name,
                            framework=case.framework,
                            name=case.name,
                            kernels=case.kernels,
                            elements=elements,
                            dtype=dtype,
                            threads=plan.threads,
                            moved=data.moved(spec),
                            samples=tuple(s / case.repeats for s in timing.samples),
                        )
                        for case, timing in zip(cases, timings.values(), strict=True)
                    )
    return found


def _measure_elsewhere(plan: Plan, on_round: Callable[[], object]) -> Found:
    """``measure`` in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        result, errors = Path(folder) / "result.json", Path(folder) / "errors"
        command = [sys.executable, "-m", "myops.bench.worker", json.dumps(asdict(plan))]
        with (
            errors.open("w") as stderr,
            subprocess.Popen(
                [*command, str(result)], stdout=subprocess.PIPE, stderr=stderr, text=True
            ) as process,
        ):
            assert process.stdout is not None
            for _ in process.stdout:
                on_round()
        if process.returncode != 0 or not result.is_file():
            last = errors.read_text().strip().splitlines()[-1:] or ["no message"]
            raise MyopsError(
                WHERE,
                f"the process that measures {', '.join(plan.frameworks)} should end well",
                f"exit code {process.returncode}: {last[0]}",
                "Try with threads=1, which needs no other process",
            )
        data = json.loads(result.read_text())
        return Found(
            [Measurement(**fields) for fields in data["measurements"]],
            [Missing(**fields) for fields in data["missing"]],
        )


def _check_choice(name: str, values: Sequence[str], choices: Sequence[str]) -> None:
    if not values or not set(values) <= set(choices):
        raise UsageError(
            WHERE, f"{name} should be among {', '.join(choices)}", repr(list(values)), "Choose some"
        )


def _check_counts(name: str, values: Sequence[int]) -> None:
    if not values or min(values) < 1:
        raise UsageError(
            WHERE, f"{name} should be at least 1", repr(list(values)), "Pass larger numbers"
        )


def _installed(frameworks: Sequence[str] | None) -> tuple[str, ...]:
    """Those asked for, which have to be there; else those that are."""
    if frameworks is None:
        found = tuple(
            name
            for name, packages in _PACKAGES.items()
            if all(importlib.util.find_spec(package) for package in packages)
        )
        return found or FRAMEWORKS
    return tuple(frameworks)


def run(
    ops: Sequence[str] | None = None,
    sizes: Sequence[int] = (65_536, 3_145_728),
    dtypes: Sequence[str] = ("float32",),
    threads: int | Sequence[int] = 1,
    rounds: int = 100,
    progress: Progress | None = None,
    frameworks: Sequence[str] | None = None,
    *,
    warmup: int = 10,
    torch_compile: bool = False,
) -> BenchReport:
    """Measures the forward operators, at their default attributes, against their rivals.

    In PyTorch: the operator composed of torch's own, torch's fused form where it has one, what
    ``torch.compile`` makes of it, and ours; single eager calls into a shared output. In ONNX
    Runtime: the decomposed operator, what ONNX Runtime's fusions make of it, and ours; per link of
    a chain (``myops.bench.ort_rows``). Calls take turns on several sets of buffers, written before,
    that together exceed the last-level cache where 64 sets suffice for that.

    Args:
        ops: ONNX or torch names; all if None.
        sizes: elements per tensor. Norms have rows of the largest divisor up to 1024.
        dtypes: "float32", "float64", "float16", "bfloat16".
        threads: for each framework; several numbers are measured one after the other. Above 1 each
            framework runs in a process of its own, because two thread pools in one process take
            each other's cores.
        rounds: samples per row.
        progress: a running ``rich.progress.Progress`` to show a bar in.
        frameworks: "torch", "onnxruntime" or both; those installed if None.
        warmup: calls of each row before its first sample.
        torch_compile: whether to compile a rival; takes a C++ compiler and some seconds for each
            operator, dtype and size.

    Returns:
        The rows, and those that could not be measured with the reason. Times are only comparable
        within a report.

    Raises:
        UsageError: an argument is not usable.
        MissingPackageError: a framework is not installed.
        MyopsError: a row computes something else than the operator, or a process failed.

    Does not measure the backward operators, nor operators inside a model, where neighbours matter:
    ``run_models`` does.
    """
    offered = [spec.name for spec in SPECS if spec.kind != "custom"]
    names = offered if ops is None else [find(n).name for n in ops]
    swept = (threads,) if isinstance(threads, int) else tuple(dict.fromkeys(threads))
    chosen = _installed(frameworks)
    _check_choice("ops", names, offered)
    _check_choice("dtypes", dtypes, tuple(TOLERANCE))
    _check_choice("frameworks", chosen, FRAMEWORKS)
    _check_counts("sizes", sizes)
    _check_counts("threads", swept)
    _check_counts("rounds", [rounds])
    for framework in chosen:
        require(WHERE, *_PACKAGES[framework])
    first = Plan(
        tuple(names), tuple(sizes), tuple(dtypes), chosen, 1, rounds, warmup, torch_compile
    )
    plans = []
    for number in swept:
        plan = replace(first, threads=number)
        # In a sweep the rows with one thread, too, run as the others do.
        apart = number > 1 or len(swept) > 1
        plans += [replace(plan, frameworks=(f,)) for f in chosen] if apart else [plan]

    task = None
    if progress is not None:
        total = sum(part.total_rounds for part in plans)
        task = progress.add_task("Benchmark", total=total)

    def on_round() -> None:
        if progress is not None and task is not None:
            progress.advance(task)

    load = os.getloadavg()[0]
    copy = {number: copy_bandwidth(threads=number) for number in swept}
    measurements: list[Measurement] = []
    missing: list[Missing] = []
    for part in plans:
        elsewhere = part.threads > 1 or len(swept) > 1
        found = _measure_elsewhere(part, on_round) if elsewhere else measure(part, on_round)
        measurements += found.measurements
        missing += found.missing
    return BenchReport.of(measurements, copy, rounds, warmup, machine.describe(), load, missing)
