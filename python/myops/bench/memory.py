# SPDX-License-Identifier: Apache-2.0
"""Peak memory of a model, in a process of its own: ``python -m myops.bench.memory JOB``.

The kernel's high-water mark of the process (VmHWM) is set back after everything is imported and
the inputs are loaded; what the peak is above the memory in use then is the session's: weights and
what kernels made of them, the arena with all intermediate tensors, the outputs, and the peak while
the model was loaded. ``ru_maxrss`` would not do: it is inherited from the process before ``exec``.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from myops._errors import MyopsError
from myops.bench.measure import WHERE

RUNS = 3


def _status(field: str) -> int:
    """Bytes that the kernel states for this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise KeyError(field)


def _reset_peak() -> None:
    # Without the right to do this, the mark stands where imports left it, hardly higher.
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_of(job: Mapping[str, Any]) -> dict[str, int]:
    """In this process: bytes before the session is made, and the peak after ``RUNS`` runs."""
    import onnxruntime

    from myops.bench.rivals import numpy_dtype
    from myops.ort.feeds import runner
    from myops.ort.session import _options, register

    with np.load(job["inputs"]) as archive:
        arrays = {
            name: array.view(numpy_dtype("bfloat16")) if array.dtype.kind == "V" else array
            for name, array in archive.items()
        }
    _reset_peak()
    baseline = _status("VmRSS")
    # Not myops.ort.session: its check of the model reads the whole file once more.
    options = _options(onnxruntime, job["threads"], job["level"], None)
    if job["plugin"] is not False:
        register(options, None if job["plugin"] is True else job["plugin"])
    session = onnxruntime.InferenceSession(
        job["model"], options, providers=["CPUExecutionProvider"]
    )
    run = runner(session, arrays)
    for _ in range(RUNS):
        run()
    return {"baseline": baseline, "peak": _status("VmHWM")}


def peak_memory(
    model: str | os.PathLike[str],
    arrays: Mapping[str, npt.NDArray[Any]],
    threads: int = 1,
    level: str = "all",
    plugin: str | os.PathLike[str] | bool | None = None,
) -> int:
    """Bytes that a session on ``model`` and its runs take at most.

    Contains: weights and prepacked copies, the arena with all intermediate tensors, outputs, and
    the peak while the model is loaded. Does not contain: Python, the libraries, the inputs.

    Raises:
        MyopsError: the process that measures it failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "inputs.npz"
        np.savez(inputs, **arrays)  # type: ignore[arg-type]
        job = {
            "model": os.fspath(model),
            "inputs": str(inputs),
            "threads": threads,
            "level": level,
            "plugin": plugin if plugin is None or isinstance(plugin, bool) else os.fspath(plugin),
        }
        done = subprocess.run(
            [sys.executable, "-m", "myops.bench.memory", json.dumps(job)],
            capture_output=True,
            text=True,
            check=False,
        )
    try:
        found = json.loads(done.stdout.splitlines()[-1])
        return max(0, int(found["peak"]) - int(found["baseline"]))
    except (IndexError, ValueError, KeyError) as error:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise MyopsError(
            WHERE,
            "the process that measures memory should end well",
            f"exit code {done.returncode}: {last}",
            "Leave it out (memory=False, --no-memory), or run the model alone to see why",
        ) from error


if __name__ == "__main__":
    print(json.dumps(peak_of(json.loads(sys.argv[1]))))
