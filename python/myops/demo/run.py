# SPDX-License-Identifier: Apache-2.0
"""The demo from end to end."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from myops._errors import UsageError, require
from myops.bench import machine
from myops.bench.runner import run as run_benchmark
from myops.demo import chain, picture, report
from myops.demo.report import DemoResult
from myops.demo.train import TARGET, WHERE, Digits, Epoch, Training, train

_PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime", "sklearn", "matplotlib")

_MODEL = "model.onnx"
_REPORTS = ("report.json", "report.png", "report.md")


def _prepare(out: Path) -> None:
    """Makes the folder and tries to write to it: better before the training than after it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise UsageError(
            WHERE,
            "out should be a folder that can be made and written to",
            f"{out}: {error.strerror}",
            "Name another folder",
        ) from error


def _train(progress: Progress, digits: Digits) -> Training:
    task = progress.add_task("Training", total=TARGET)

    def on_epoch(epoch: Epoch) -> None:
        progress.update(
            task,
            completed=min(epoch.accuracy, TARGET),
            description=f"Training: {epoch.accuracy:.1%} of held-out digits",
        )

    return train(digits, on_epoch)


def run_demo(out: Path, quick: bool = False, console: Console | None = None) -> DemoResult:
    """Trains, exports, runs, verifies and measures, and writes a report of it.

    Args:
        out: folder for ``model.onnx`` (portable), ``exports/`` (every mode and exporter),
            ``report.md``, ``report.png`` and ``report.json``. It is made where it does not exist;
            files of these names are replaced, each only when its successor is complete.
        quick: fewer sizes and rounds in the benchmark. All checks stay.
        console: to show progress and tables on; standard output if None.

    Returns:
        What was found; ``ok`` says whether every check held.

    Raises:
        UsageError: ``out`` cannot be written to.
        MissingPackageError: a package of ``myops[all]`` is not installed.
        MyopsError: a step failed. Needs no network: the digits come with scikit-learn.
    """
    out = Path(out)
    console = console or Console()
    require(WHERE, *_PACKAGES)
    _prepare(out)
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=console,
    ) as progress:
        result, digits = _work(out, quick, progress)
        task = progress.add_task("Writing the report", total=1)
        _write(result, digits)
        progress.advance(task)
    for table in (
        report.nodes_table(result.exports),
        report.runs_table(result.exports),
        result.operators.table(),
        result.model.table(),
        result.benchmark.table(),
    ):
        console.print(table)
    verdict = "[green]All checks hold.[/]" if result.ok else "[bold red]Some checks failed.[/]"
    console.print(f"{verdict} Read on in {out / 'report.md'}", soft_wrap=True)
    return result


def _work(out: Path, quick: bool, progress: Progress) -> tuple[DemoResult, Digits]:
    from myops.onnx import MODES
    from myops.onnx.model import staged
    from myops.verify import verify_model, verify_operators

    digits = Digits.load()
    training = _train(progress, digits)

    total = len(chain.EXPORTERS) * len(MODES)
    task = progress.add_task("Exporting and running", total=total)
    exports = chain.export_and_run(
        training.model, digits, out / "exports", lambda: progress.advance(task)
    )
    portable = next(e for e in exports if e.report.mode == "portable")
    with staged(out / _MODEL) as folder:
        shutil.copyfile(portable.report.path, folder / _MODEL)

    task = progress.add_task("Verifying", total=2)
    operators = verify_operators()
    progress.advance(task)
    model = verify_model(out / _MODEL, torch_model=training.model, inputs={"x": digits.test_x})
    progress.advance(task)

    benchmark = run_benchmark(
        ops=("Swish",),  # what the network uses
        sizes=(65_536,) if quick else (65_536, 3_145_728),
        rounds=10 if quick else 30,
        progress=progress,
    )
    files = [_MODEL, *_REPORTS, *(os.path.relpath(e.report.path, out) for e in exports)]
    result = DemoResult(
        accuracy=training.accuracy,
        epochs=training.epochs,
        exports=exports,
        operators=operators,
        model=model,
        benchmark=benchmark,
        folder=out,
        machine=machine.describe(),
        files=files,
    )
    return result, digits


def _write(result: DemoResult, digits: Digits) -> None:
    from myops import ort
    from myops.onnx.model import staged

    session = ort.session(result.folder / _MODEL)
    scores = np.asarray(session.run(None, {"x": digits.test_x})[0])
    with staged(result.folder / "report.md") as folder:
        (folder / "report.json").write_text(json.dumps(result.to_dict(), indent=2) + "\n")
        (folder / "report.md").write_text(report.markdown(result), encoding="utf-8")
        picture.write(folder / "report.png", result.epochs, result.benchmark, digits, scores)
