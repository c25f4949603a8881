# SPDX-License-Identifier: Apache-2.0
"""Measures the operators against their rivals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from myops._errors import MyopsError, UsageError
from myops.bench import machine
from myops.bench.agreement import TOLERANCE, check_case, expected_result
from myops.bench.measure import WHERE, copy_bandwidth, interleaved
from myops.bench.ort_rows import ort_cases
from myops.bench.report import BenchReport, Measurement
from myops.bench.rivals import Data, torch_cases, torch_threads
from myops.spec import SPECS, find

if TYPE_CHECKING:
    from rich.progress import Progress

FRAMEWORKS = ("torch", "onnxruntime")

_PACKAGES = {"torch": ("torch",), "onnxruntime": ("onnx", "onnxruntime")}


@dataclass(frozen=True)
class Plan:
    """What to measure: everything a process needs to know."""

    ops: tuple[str, ...]
    sizes: tuple[int, ...]
    dtypes: tuple[str, ...]
    frameworks: tuple[str, ...]
    threads: int
    rounds: int

    @property
    def total_rounds(self) -> int:
        """Calls of ``on_round`` to expect."""
        return len(self.ops) * len(self.sizes) * len(self.dtypes) * self.rounds


def measure(plan: Plan, on_round: Callable[[], object] | None = None) -> list[Measurement]:
    """Measures in this process. All rows of one operator, size and dtype, of all frameworks asked
    for, are interleaved in one run."""
    measurements = []
    with ExitStack() as stack:
        if "torch" in plan.frameworks:
            stack.enter_context(torch_threads(plan.threads))
        for spec in map(find, plan.ops):
            for dtype in plan.dtypes:
                for elements in plan.sizes:
                    data = Data.make(spec, elements, dtype)
                    cases = torch_cases(spec, data) if "torch" in plan.frameworks else []
                    if "onnxruntime" in plan.frameworks:
                        cases += ort_cases(spec, data, plan.threads)
                    for case in cases:
                        expected = expected_result(spec, data, case.repeats)
                        check_case(case, expected, dtype, spec.name)
                    timings = interleaved(
                        {f"{case.framework}/{case.name}": case.call for case in cases},
                        plan.rounds,
                        warmup=2,
                        min_sample=1e-3,
                        on_round=on_round,
                    )
                    measurements += [
                        Measurement(
                            op=spec.name,
                            framework=case.framework,
                            name=case.name,
                            kernels=case.kernels,
                            elements=elements,
                            dtype=dtype,
                            threads=plan.threads,
                            tensors=len(spec.inputs) + 1,
                            samples=tuple(s / case.repeats for s in timing.samples),
                        )
                        for case, timing in zip(cases, timings.values(), strict=True)
                    ]
    return measurements


def _measure_elsewhere(plan: Plan, on_round: Callable[[], object]) -> list[Measurement]:
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
        return [Measurement(**fields) for fields in json.loads(result.read_text())]


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


def run(
    ops: Sequence[str] | None = None,
    sizes: Sequence[int] = (65_536, 3_145_728),
    dtypes: Sequence[str] = ("float32",),
    threads: int = 1,
    rounds: int = 30,
    progress: Progress | None = None,
    frameworks: Sequence[str] = FRAMEWORKS,
) -> BenchReport:
    """Measures the forward operators, at their default attributes, against their rivals.

    In PyTorch: the operator composed of torch's own, torch's fused form where it has one, and ours;
    single eager calls into a shared output. In ONNX Runtime: the decomposed operator, what ONNX
    Runtime's fusions make of it, and ours; per link of a chain of 20 (``myops.bench.ort_rows``).

    Args:
        ops: ONNX or torch names; all elementwise ones if None.
        sizes: elements per tensor.
        dtypes: "float32", "float64", "float16", "bfloat16".
        threads: for each framework. Above 1 each framework runs in a process of its own, because
            two thread pools in one process take each other's cores.
        rounds: samples per row.
        progress: a running ``rich.progress.Progress`` to show a bar in.
        frameworks: "torch", "onnxruntime" or both.

    Returns:
        The rows. Times are only comparable within a report.

    Raises:
        UsageError: an argument is not usable.
        MissingPackageError: a framework is not installed.
        MyopsError: a row computes something else than the operator, or a process failed.

    Does not measure the backward operators, nor operators inside a model, where neighbours matter.
    """
    offered = [spec.name for spec in SPECS if spec.kind == "elementwise"]
    names = offered if ops is None else [find(n).name for n in ops]
    _check_choice("ops", names, offered)
    plan = Plan(tuple(names), tuple(sizes), tuple(dtypes), tuple(frameworks), threads, rounds)
    _check_choice("dtypes", plan.dtypes, tuple(TOLERANCE))
    _check_choice("frameworks", plan.frameworks, FRAMEWORKS)
    _check_counts("sizes", plan.sizes)
    _check_counts("threads", [threads])
    _check_counts("rounds", [rounds])
    for framework in plan.frameworks:
        machine.require(WHERE, *_PACKAGES[framework])
    apart = threads > 1
    plans = [
        Plan(plan.ops, plan.sizes, plan.dtypes, (framework,), threads, rounds)
        for framework in (plan.frameworks if apart else ())
    ] or [plan]

    task = None
    if progress is not None:
        total = sum(part.total_rounds for part in plans)
        task = progress.add_task("Benchmark", total=total)

    def on_round() -> None:
        if progress is not None and task is not None:
            progress.advance(task)

    load = os.getloadavg()[0]
    copy = copy_bandwidth(threads=threads)
    measurements = []
    for part in plans:
        measurements += _measure_elsewhere(part, on_round) if apart else measure(part, on_round)
    return BenchReport.of(measurements, copy, rounds, machine.describe(), load)
