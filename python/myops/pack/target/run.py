# SPDX-License-Identifier: Apache-2.0
"""Runs the bundle's model. Needs numpy and onnxruntime, and nothing else.

    python run.py                          the golden inputs
    python run.py --inputs x.npz -o y.npz  arrays by input name in, arrays by output name out

From Python, with this folder on the path: ``import run; session = run.session()``. Files are found
beside this one, wherever the folder lies. Python 3.8 and newer.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
CPU = "CPUExecutionProvider"


class BundleError(Exception):
    """``[where] what should hold. Received what was found. Do this.``"""

    def __init__(self, rule: str, received: str, remedy: str) -> None:
        parts = (" ".join(part.split()).rstrip(". ") for part in (rule, received, remedy))
        super().__init__("[bundle] {}. Received {}. {}.".format(*parts))


def manifest() -> dict[str, Any]:
    """What the bundle says of itself. ``check.py`` looks whether it is still true."""
    try:
        found: dict[str, Any] = json.loads((FOLDER / "manifest.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise BundleError(
            "manifest.json should lie beside run.py, as it was packed", str(error), "Copy it again"
        ) from error
    return found


def model_path() -> Path:
    """Of the .onnx file. Its weights lie beside it."""
    return FOLDER / str(manifest()["model"]["path"])


def plugin_paths() -> list[Path]:
    """Of the ONNX Runtime plugins that the model needs; mostly one, or none."""
    about = manifest()
    entries = [about["plugin"], *about["other_plugins"]]
    return [FOLDER / str(entry["path"]) for entry in entries if entry is not None]


def import_onnxruntime() -> Any:
    """The module.

    Raises:
        BundleError: it is not installed, or does not load.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise BundleError(
            "onnxruntime should be installed", str(error), "Run: pip install onnxruntime"
        ) from error
    return onnxruntime


def options(threads: int | None = None, plugin: bool = True) -> Any:
    """``onnxruntime.SessionOptions`` with the plugins registered.

    Args:
        threads: of the session's pool, which the operators use too; ONNX Runtime's default if None.
        plugin: False leaves plugins out, for a portable model where they cannot be loaded.

    Raises:
        BundleError: ONNX Runtime refuses a plugin, or the model cannot do without.
    """
    result = import_onnxruntime().SessionOptions()
    if threads is not None:
        result.intra_op_num_threads = threads
    about = manifest()
    paths = plugin_paths()
    for path in paths if plugin else ():
        try:
            result.register_custom_ops_library(os.fspath(path))
        except Exception as error:  # onnxruntime has a class for each of its codes
            remedy = "Pack again with a plugin that was built for machines like this one"
            if about["model"]["portable"]:
                remedy += ", or leave it out (--no-plugin), which costs speed only"
            raise BundleError(f"{path.name} should load here", str(error), remedy) from error
    if paths and not plugin and not about["model"]["portable"]:
        raise BundleError(
            "a model without functions of its own needs the plugin",
            "the plugin left out",
            "Use it, or pack a model that was exported with mode='portable'",
        )
    return result


def session(
    threads: int | None = None, providers: Sequence[Any] = (CPU,), plugin: bool = True
) -> Any:
    """A session of the model. Its ``run`` may be called from several threads at once.

    Args:
        threads, plugin: see ``options``.
        providers: execution providers in order of preference.

    Raises:
        BundleError: the plugin or the model does not load, or a provider does not start.
    """
    ort = import_onnxruntime()
    settings = options(threads, plugin)
    path = model_path()
    try:
        result = ort.InferenceSession(os.fspath(path), settings, providers=list(providers))
    except Exception as error:
        raise BundleError(
            f"{path.name} should load here",
            f"onnxruntime {ort.__version__}: {error}",
            "Run check.py; if the files are whole, use an onnxruntime at least as new as the one "
            f"it was packed with ({manifest()['made_with'].get('onnxruntime', 'unknown')})",
        ) from error
    for provider in providers:
        name = provider if isinstance(provider, str) else provider[0]
        if name not in result.get_providers():
            raise BundleError(
                f"{name} should start",
                f"a session with {', '.join(result.get_providers())} only",
                "Install the onnxruntime package that has it, with its driver and libraries",
            )
    return result


def golden() -> tuple[dict[str, Any], dict[str, Any]]:
    """The golden inputs and the right outputs, arrays by name."""
    import numpy as np

    inputs, outputs = {}, {}
    with np.load(FOLDER / "golden.npz", allow_pickle=False) as archive:
        for key in archive.files:
            kind, _, name = key.partition(":")
            if kind == "input":
                inputs[name] = archive[key]
            elif kind == "output":
                outputs[name] = archive[key]
    return inputs, outputs


def check_inputs(inputs: Mapping[str, Any]) -> None:
    """Compares arrays with what the model declares.

    Raises:
        BundleError: names, dtypes or shapes do not fit.
    """
    wanted = {value["name"]: value for value in manifest()["model"]["inputs"]}
    if set(inputs) != set(wanted):
        raise BundleError(
            f"inputs should be named {', '.join(sorted(wanted))}",
            ", ".join(sorted(inputs)) or "none",
            "Rename the arrays",
        )
    for name, array in inputs.items():
        dtype, dims = wanted[name]["dtype"], wanted[name]["dims"]
        fits = dims is None or (
            len(dims) == array.ndim
            and all(not isinstance(d, int) or d == n for d, n in zip(dims, array.shape))  # noqa: B905
        )
        if array.dtype.name != dtype or not fits:
            shape = "any shape" if dims is None else f"shape {dims}"
            raise BundleError(
                f"input {name} should be {dtype} of {shape}",
                f"{array.dtype.name} of shape {list(array.shape)}",
                "Convert it",
            )


def _read(path: Path) -> dict[str, Any]:
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as error:  # zipfile, zlib and numpy each have their own
        raise BundleError(
            "inputs should be an .npz file of arrays named like the model's inputs",
            f"{path}: {type(error).__name__}: {error}",
            "Write one with numpy.savez",
        ) from error


def _write(path: Path, arrays: Mapping[str, Any]) -> None:
    import numpy as np

    temporary = path.with_name(f".{path.name}.{os.getpid()}.npz")
    try:
        np.savez(temporary, **arrays)
        temporary.replace(path)
    finally:
        if temporary.exists():
            temporary.unlink()


def _run(arguments: argparse.Namespace) -> None:
    made = session(arguments.threads, [arguments.provider], arguments.plugin)
    inputs = golden()[0] if arguments.inputs is None else _read(arguments.inputs)
    check_inputs(inputs)
    names = [value.name for value in made.get_outputs()]
    outputs = dict(zip(names, made.run(names, inputs)))  # noqa: B905
    times = []
    for _ in range(max(1, arguments.repeat)):  # the first run of all, above, allocates
        start = time.perf_counter()
        made.run(names, inputs)
        times.append(1000 * (time.perf_counter() - start))
    if arguments.output is not None:
        _write(arguments.output, outputs)
    about = {n: {"dtype": a.dtype.name, "shape": list(a.shape)} for n, a in outputs.items()}
    milliseconds = statistics.median(times)
    if arguments.json:
        print(json.dumps({"outputs": about, "milliseconds": milliseconds}, indent=2))
        return
    for name, value in about.items():
        print(f"{name}: {value['dtype']}{value['shape']}")
    print(f"{milliseconds:.3g} ms, median of {len(times)}")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line. Exit codes: 0 done, 1 failed, 2 wrong usage."""
    parser = argparse.ArgumentParser(description="Runs the bundle's model.")
    parser.add_argument("--inputs", type=Path, help=".npz file with the model's inputs")
    parser.add_argument("--output", "-o", type=Path, help=".npz file to write the outputs to")
    parser.add_argument("--threads", type=int, help="of the session's pool")
    parser.add_argument("--provider", default=CPU, help="execution provider")
    parser.add_argument("--no-plugin", dest="plugin", action="store_false", help="leave it out")
    parser.add_argument("--repeat", type=int, default=1, help="how often, for the time")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):  # names may hold what the terminal cannot show
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        _run(arguments)
    except BundleError as error:
        print(f"error {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
