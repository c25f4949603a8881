# SPDX-License-Identifier: Apache-2.0
"""What the demo found, as tables, Markdown and a picture."""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table

from myops.bench.report import BenchReport
from myops.demo.chain import Exported, Run
from myops.demo.train import TARGET, Epoch

if TYPE_CHECKING:
    from myops.verify import Report


@dataclass(frozen=True)
class DemoResult:
    """Everything the demo found.

    Attributes:
        accuracy: share of the held-out digits read correctly.
        epochs: loss and held-out accuracy after each pass.
        exports: the exported files and their runs.
        operators: verification of the operators in every dtype.
        model: verification of ``model.onnx``.
        benchmark: speed of the operators.
        folder: where the files are.
        files: all that were written, relative to ``folder``.
        machine: processor and versions.
    """

    accuracy: float
    epochs: list[Epoch]
    exports: list[Exported]
    operators: Report
    model: Report
    benchmark: BenchReport
    folder: Path
    machine: dict[str, str | int]
    files: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether every check held. Speed is no check."""
        runs = [run for exported in self.exports for run in exported.runs]
        verified = self.operators.ok and self.model.ok
        return self.accuracy > TARGET and verified and all(run.ok for run in runs)

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for json."""
        return {
            "ok": self.ok,
            "accuracy": self.accuracy,
            "target": TARGET,
            "epochs": [asdict(epoch) for epoch in self.epochs],
            "exports": [exported.to_dict() for exported in self.exports],
            "verification": {
                "operators": self.operators.to_dict(),
                "model": self.model.to_dict(),
            },
            "benchmark": self.benchmark.to_dict(),
            "machine": self.machine,
            "folder": str(self.folder),
            "files": self.files,
        }


def _grouped(nodes: list[str]) -> str:
    """Nodes in order, without the constants, which hold attribute values."""
    return " → ".join(node for node in nodes if node != "Constant")


def nodes_table(exports: list[Exported]) -> Table:
    """The nodes of each file, in order."""
    table = Table(title="Nodes of the files", title_justify="left", box=box.SIMPLE)
    table.pad_edge = False
    for header in ("mode", "exporter", "nodes"):
        table.add_column(header)
    for exported in exports:
        report = exported.report
        nodes = _grouped(report.nodes)
        for name, body in exported.functions.items():
            nodes += f"\n  with function {name} = {_grouped(body)}"
        table.add_row(report.mode, report.exporter, nodes)
    return table


def _operator_kernels(run: Run, network: set[str]) -> str:
    """What ran in place of the operators: neither the rest of the network nor ONNX Runtime's
    changes of memory layout."""
    found = {
        name: count
        for name, count in run.kernels.items()
        if name not in network and not name.startswith("Reorder")
    }
    return ", ".join(f"{count} {name}" for name, count in found.items())


def runs_table(exports: list[Exported]) -> Table:
    """Each file with and without the plugin, compared with torch."""
    table = Table(
        title="The files in ONNX Runtime, compared with torch on the held-out digits",
        title_justify="left",
        caption="The custom files need the plugin: to refuse them without it is right.",
        caption_justify="left",
        box=box.SIMPLE,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for header in ("mode", "exporter", "plugin", "ran as"):
        table.add_column(header)
    for header in ("max diff", "same bits", "accuracy", ""):
        table.add_column(header, justify="right")
    network = {node for e in exports if e.report.mode == "custom" for node in e.report.nodes}
    for exported in exports:
        report = exported.report
        for run in exported.runs:
            names = [report.mode, report.exporter, "yes" if run.plugin else "no"]
            verdict = "[green]ok[/]" if run.ok else f"[bold red]WRONG[/] {run.note}"
            if run.max_difference is None or run.equal_bits is None or run.accuracy is None:
                table.add_row(*names, "refused", "", "", "", verdict)
                continue
            table.add_row(
                *names,
                _operator_kernels(run, network),
                f"{run.max_difference:.1e}",
                f"{run.equal_bits:.1%}",
                f"{run.accuracy:.1%}",
                verdict,
            )
    return table


def as_text(renderable: RenderableType, width: int = 100) -> str:
    """What a terminal without colours shows."""
    text = io.StringIO()
    Console(file=text, width=width, color_system=None).print(renderable)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()).strip("\n")


_NEXT = """\
With the plugin, the fused kernel runs:

```python
import myops.ort

session = myops.ort.session("model.onnx")
```

Without it the same file runs on ONNX Runtime's own operators:

```python
import onnxruntime

session = onnxruntime.InferenceSession("model.onnx")
```

Any host of ONNX Runtime (C, C++, C#, Java, Rust) loads the plugin with
`RegisterCustomOpsLibrary`; `myops.ort.library_path()` says where it is. It needs neither Python
nor PyTorch.

Your own model:

```python
import myops.nn  # put myops.nn.Swish() where the activation goes, and train
import myops.onnx
import myops.verify

myops.onnx.export(model, (example,), "mine.onnx", dynamic={"x": {0: "batch"}})
myops.verify.verify_model("mine.onnx", torch_model=model, inputs={"x": array})
```
"""


def markdown(result: DemoResult) -> str:
    """The report to read."""
    tables = {
        "What the files hold": nodes_table(result.exports),
        "What runs": runs_table(result.exports),
        "Do all layers agree: the operators": result.operators.table(),
        "Do all layers agree: model.onnx": result.model.table(),
        "Speed": result.benchmark.table(),
    }
    parts = [
        "# myops demo",
        f"A network with Swish reads **{result.accuracy:.1%}** of the held-out handwritten digits "
        f"of scikit-learn after {len(result.epochs)} epochs. It was exported in three modes "
        f"through both of PyTorch's exporters, run with and without the plugin, and measured. "
        f"Checks: **{'all hold' if result.ok else 'SOME FAILED'}**.",
        "![training, function, speed](report.png)",
        *(f"## {title}\n\n```text\n{as_text(table)}\n```" for title, table in tables.items()),
        "## Files\n\n" + "\n".join(f"- [{name}]({name})" for name in result.files),
        "## How to go on\n\n" + _NEXT.rstrip(),
        "## Measured on\n\n" + "\n".join(f"- {k}: {v}" for k, v in result.machine.items()),
    ]
    return "\n\n".join(parts) + "\n"
