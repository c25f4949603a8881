# SPDX-License-Identifier: Apache-2.0
"""What the plugin does in the onnxruntime of this environment, which need hold nothing else but
numpy. Prints a JSON list of [check, dtype, flaw]; an empty flaw means that the check passed.

    python runtime_probe.py FOLDER PLUGIN

FOLDER is what ``probe_models.write`` made.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

FOLDER, PLUGIN = Path(sys.argv[1]), sys.argv[2]
INFERS_SHAPES = not onnxruntime.__version__.startswith("1.16.")


def session(model: str, plugin: bool = True, threads: int = 1) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    if plugin:
        options.register_custom_ops_library(PLUGIN)
    path = str(FOLDER / model)
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def worst(results: list[Any], expected: list[Any], relative: float) -> str:
    """The largest error, where it is above what is allowed. Small numbers count as 1."""
    for result, other in zip(results, expected, strict=True):
        wide = np.asarray(result, np.float64)
        if wide.shape != other.shape:
            return f"shape {wide.shape}, not {other.shape}"
        error = float(np.max(np.abs(wide - other) / (np.abs(other) + 1), initial=0))
        if not error <= relative:
            return f"relative error {error:.2g}"
    return ""


def check_operators(case: dict[str, Any], plugin: bool, relative: float) -> str:
    """Every operator, against float64."""
    with np.load(FOLDER / case["data"]) as data:
        feeds = {name: data[name] for name in case["inputs"]}
        expected = [data[f"exact_{name}"] for name in case["outputs"]]
    results = session(case["model"], plugin).run(case["outputs"], feeds)
    return worst(results, expected, relative)


def check_shapes(model: str) -> str:
    """Dims keep their names behind a node, and the type is the input's. ONNX Runtime 1.16 infers
    types only."""
    loaded = session(model)
    (given,), (output,) = loaded.get_inputs(), loaded.get_outputs()
    if output.type != given.type:
        return f"type {output.type}, not {given.type}"
    if output.shape == ["N", 3, "M"] or (not INFERS_SHAPES and not output.shape):
        return ""
    return f"shape {output.shape}"


def check_threads(case: dict[str, Any]) -> str:
    """Two threads on one session with two threads of its own: the bits of a single thread."""
    with np.load(FOLDER / case["data"]) as data:
        feeds = {name: np.tile(data[name], 200) for name in case["inputs"]}
    (expected,) = session(case["model"], threads=1).run(None, feeds)
    shared = session(case["model"], threads=2)
    flaws: list[str] = []

    def work() -> None:
        for _ in range(10):
            (result,) = shared.run(None, feeds)
            if result.tobytes() != expected.tobytes():
                flaws.append("other bits than with one thread")

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return flaws[0] if flaws else ""


def main() -> None:
    rows: list[tuple[str, str, str]] = []

    def row(check: str, dtype: str, call: Any, *arguments: Any) -> None:
        try:
            flaw = call(*arguments)
        except Exception as error:
            flaw = " ".join(f"{type(error).__name__}: {error}".split())
        rows.append((check, dtype, flaw))

    for case in json.loads((FOLDER / "cases.json").read_text()):
        dtype, name = case["dtype"], case["operator"]
        row(f"{name} fused", dtype, check_operators, case, True, case["fused"])
        row(f"{name} fallback", dtype, check_operators, case, False, case["fallback"])
        if case["threads"]:
            row("threads", dtype, check_threads, case)
        if case["shapes"]:
            row("shapes" if INFERS_SHAPES else "types", dtype, check_shapes, case["shapes"])
    print(json.dumps({"version": onnxruntime.__version__, "rows": rows}))


main()
