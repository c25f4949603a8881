# SPDX-License-Identifier: Apache-2.0
"""The command line. Each command prints for people, or with ``--json`` for machines. Exit codes:
0 done, 1 failed or refused, 2 wrong usage."""

from __future__ import annotations

import importlib
import json
import platform
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from myops import __version__, _build_info
from myops._errors import MyopsError, UsageError

app = typer.Typer(
    help="One operator, written once, from PyTorch training to ONNX Runtime.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_out = Console()
_err = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Plugin = Annotated[
    Path | None, typer.Option(help="Another libmyops_ort.so than the installed one.")
]
Dims = Annotated[
    list[str] | None, typer.Option("--dim", help="Size of a symbolic dim, name=size. Repeatable.")
]


def _print_json(data: Any) -> None:
    sys.stdout.write(json.dumps(data, indent=2, default=str) + "\n")


def _versions() -> dict[str, str]:
    from importlib import metadata

    found = {}
    for name in ("torch", "onnx", "onnxscript", "onnxruntime", "onnxruntime-gpu", "numpy"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


@app.command()
def info(as_json: Json = False) -> None:
    """What is installed: build, libraries, operators, versions of the neighbours."""
    from myops import _library

    libraries = {}
    for name, find in (("torch", _library.torch_library), ("ort", _library.ort_library)):
        try:
            libraries[name] = str(find())
        except MyopsError as error:
            libraries[name] = str(error)
    data = {
        "myops": __version__,
        "python": platform.python_version(),
        "compiler": _build_info.compiler,
        "built_for_torch": _build_info.torch_version or None,
        "ort_api_version": _build_info.ort_api_version or None,
        "cuda": _build_info.cuda_message() or "built in",
        "isa": _build_info.isa(),
        "isas": _build_info.isas(),
        "libraries": libraries,
        "versions": _versions(),
        "operators": _build_info.ops(),
        "dtypes": _build_info.dtypes,
    }
    if as_json:
        _print_json(data)
        return
    table = Table(show_header=False, box=None)
    for key, value in data.items():
        if key == "operators":
            value = ", ".join(
                f"{op['name']}({', '.join(f'{k}={v:g}' for k, v in op['attributes'].items())})"
                for op in _build_info.ops()
            )
        elif isinstance(value, dict):
            value = "\n".join(f"{k} {v}" for k, v in value.items())
        elif isinstance(value, list):
            value = ", ".join(map(str, value))
        table.add_row(f"[bold]{key.replace('_', ' ')}[/]", escape(str(value)))
    _out.print(table)


def load_factory(target: str) -> Any:
    """The torch module that ``package.module:factory`` names: a module or a callable that makes
    one.

    Raises:
        UsageError: it cannot be imported, or is neither.
    """
    import torch

    where = "myops"
    module_name, separator, attribute = target.partition(":")
    if not separator or not attribute:
        raise UsageError(where, "a model is named package.module:factory", target, "Name one")
    sys.path.insert(0, str(Path.cwd()))
    try:
        value = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise UsageError(
            where,
            "package.module:factory should be importable",
            f"{target}: {error}",
            "Run in the folder that holds it, or install it",
        ) from error
    model = value if isinstance(value, torch.nn.Module) else value()
    if not isinstance(model, torch.nn.Module):
        raise UsageError(
            where,
            f"{target} should give a torch.nn.Module",
            type(model).__name__,
            "Return the module",
        )
    return model


def parse_input(text: str) -> tuple[str, Any]:
    """``x=float32[2,8]`` as a name and a random tensor.

    Raises:
        UsageError: the text has another form.
    """
    import torch

    name, _, rest = text.partition("=")
    dtype_name, _, shape_text = rest.removesuffix("]").partition("[")
    dtype = getattr(torch, dtype_name, None)
    try:
        shape = [int(size) for size in shape_text.split(",") if size.strip()]
    except ValueError:
        shape = [-1]
    if (
        not name.isidentifier()
        or not isinstance(dtype, torch.dtype)
        or min(shape, default=0) < 0
        or not rest.endswith("]")
    ):
        raise UsageError(
            "myops export", "--input has the form x=float32[2,8]", repr(text), "Correct it"
        )
    generator = torch.Generator().manual_seed(0)
    if dtype.is_floating_point:
        return name, torch.randn(shape, generator=generator).to(dtype)
    return name, torch.zeros(shape, dtype=dtype)


def parse_dynamic(texts: list[str]) -> dict[str, dict[int, str]]:
    """``x.0=batch`` as ``{"x": {0: "batch"}}``.

    Raises:
        UsageError: a text has another form.
    """
    result: dict[str, dict[int, str]] = {}
    for text in texts:
        place, _, symbol = text.partition("=")
        name, _, axis = place.rpartition(".")
        if not name or not axis.isdigit() or not symbol:
            raise UsageError(
                "myops export", "--dynamic has the form x.0=batch", repr(text), "Correct it"
            )
        result.setdefault(name, {})[int(axis)] = symbol
    return result


@app.command()
def export(
    model: Annotated[str, typer.Argument(help="package.module:factory")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .onnx file to write.")],
    inputs: Annotated[
        list[str], typer.Option("--input", help="Example input, x=float32[2,8]. Repeatable.")
    ],
    dynamic: Annotated[
        list[str] | None, typer.Option(help="Symbolic dim, x.0=batch. Repeatable.")
    ] = None,
    mode: Annotated[str, typer.Option(help="native, custom or portable.")] = "portable",
    opset: Annotated[int | None, typer.Option(help="Default opset of the file.")] = None,
    exporter: Annotated[str, typer.Option(help="auto, dynamo or torchscript.")] = "auto",
    as_json: Json = False,
) -> None:
    """Exports a torch model to a checked ONNX file."""
    from myops import onnx as myops_onnx

    module = load_factory(model)
    arguments = dict(parse_input(text) for text in inputs)
    with _err.status("Exporting"):
        report = myops_onnx.export(
            module,
            (),
            output,
            mode=mode,
            opset=opset,
            dynamic=parse_dynamic(dynamic or []),
            exporter=exporter,
            kwargs=arguments,
        )
    if as_json:
        _print_json(report.to_dict())
        return
    operators = ", ".join(f"{n} {name}" for name, n in report.operators.items()) or "none"
    _out.print(
        f"Wrote {escape(str(report.path))} ({report.size:,} bytes): mode {report.mode}, "
        f"exporter {report.exporter}, opset {report.opset}, myops nodes: {operators}"
    )
    _out.print(f"Nodes: {escape(', '.join(report.nodes))}", style="dim")


def parse_dims(texts: list[str]) -> dict[str, int]:
    """``batch=4`` as ``{"batch": 4}``.

    Raises:
        UsageError: a text has another form.
    """
    result = {}
    for text in texts:
        name, _, size = text.partition("=")
        if not name or not size.isdigit():
            raise UsageError("myops", "--dim has the form batch=4", repr(text), "Correct it")
        result[name] = int(size)
    return result


@app.command()
def verify(
    model: Annotated[
        Path | None, typer.Argument(help="An .onnx file; without one, all operators.")
    ] = None,
    torch_model: Annotated[
        str | None, typer.Option("--torch", help="package.module:factory it was exported from.")
    ] = None,
    inputs: Annotated[Path | None, typer.Option(help=".npz file with the model's inputs.")] = None,
    dim: Dims = None,
    plugin: Plugin = None,
    tolerance: Annotated[
        float | None, typer.Option(help="Largest error of a model, relative to its largest output.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every row with all figures; wants 150 columns.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Judges every layer against float64: torch, ONNX Runtime with and without the plugin, onnx."""
    from myops import verify as myops_verify

    with _err.status("Verifying"):
        if model is None:
            report = myops_verify.verify_operators(plugin=plugin)
        else:
            report = myops_verify.verify_model(
                model,
                torch_model=load_factory(torch_model) if torch_model else None,
                inputs=inputs,
                dims=parse_dims(dim or []),
                plugin=plugin,
                tolerance=tolerance,
            )
    if as_json:
        _print_json(report.to_dict())
    else:
        _out.print(report.details() if every else report.table())
        if any(row.verdict == "off" for row in report.rows):
            _out.print(
                "off: a runtime without our kernels differs from float64 by more than rounding. "
                "It is shown, not counted.",
                style="dim",
            )
        _out.print("[green]All our layers agree.[/]" if report.ok else "[bold red]Not equal.[/]")
    if not report.ok:
        raise typer.Exit(1)


@app.command()
def bench(
    op: Annotated[list[str] | None, typer.Option(help="Operator; all if none. Repeatable.")] = None,
    size: Annotated[
        list[int] | None, typer.Option(help="Elements per tensor; 65536 and 3145728. Repeatable.")
    ] = None,
    dtype: Annotated[
        list[str] | None, typer.Option(help="float32 (default), float64, ... Repeatable.")
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads of each framework.")] = 1,
    rounds: Annotated[int, typer.Option(help="Samples per row.")] = 30,
    plot: Annotated[
        Path | None, typer.Option(help="Picture of the ratios: .png, .svg or .pdf.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measures the operators against torch's and ONNX Runtime's own, in one run."""
    from rich.progress import Progress

    from myops import bench as myops_bench
    from myops.bench import machine

    suffixes = (".png", ".svg", ".pdf")
    if plot is not None:
        machine.require("myops bench", "matplotlib")
        if plot.suffix not in suffixes:
            raise UsageError(
                "myops bench",
                f"--plot should end in one of {', '.join(suffixes)}",
                str(plot),
                "Rename it",
            )
    with Progress(console=_err, transient=True) as progress:
        report = myops_bench.run(
            op or None,
            size or (65_536, 3_145_728),
            dtype or ("float32",),
            threads,
            rounds,
            progress=progress,
        )
    if plot is not None:
        temporary = plot.with_name(f".tmp.{plot.name}")
        report.plot(temporary)
        temporary.replace(plot)
    if as_json:
        _print_json(report.to_dict())
    else:
        _out.print(report.table())


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for model, report and pictures.")],
    quick: Annotated[bool, typer.Option(help="Fewer benchmark rounds.")] = False,
    as_json: Json = False,
) -> None:
    """Trains a network, exports it in every way, runs, verifies and measures it."""
    from myops.demo import run_demo

    result = run_demo(out, quick=quick, console=_err if as_json else _out)
    if as_json:
        _print_json(result.to_dict())
    if not result.ok:
        raise typer.Exit(1)


def main() -> None:
    """Entry point: errors of ours as one line and exit code 1."""
    try:
        app()
    except MyopsError as error:
        _err.print(f"[bold red]error[/] {escape(str(error))}", soft_wrap=True)
        sys.exit(2 if isinstance(error, UsageError) else 1)


if __name__ == "__main__":
    main()
