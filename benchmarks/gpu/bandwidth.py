# SPDX-License-Identifier: Apache-2.0
"""How close the CUDA kernels come to a device-to-device copy, beside torch's own and composed
operators: ``make bench-gpu``. Prints a table and writes ``results/gpu.json``."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import myops.functional as F
import torch
from myops import _build_info
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

SIZES = (*(4 * 1024 * 8**i for i in range(7)), 4 * 1024**3)
"""Bytes of the input, 4 KiB to 4 GiB."""
CACHE_BYTES = 512 << 20
"""Buffers are rotated through at least this much, more than any cache holds."""
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

Run = Callable[[torch.Tensor, torch.Tensor], Any]


def rivals() -> dict[str, Run]:
    """By name: what reads ``x`` and gives its result in ``y`` or in new memory."""
    compiled = torch.compile(lambda x: x * torch.sigmoid(x))
    swish_out = torch.ops.myops.swish.out
    return {
        "copy": lambda x, y: y.copy_(x),
        "myops out=": lambda x, y: swish_out(x, out=y),
        "myops": lambda x, y: F.swish(x),
        "F.silu": lambda x, y: torch.nn.functional.silu(x),
        "composed": lambda x, y: x * torch.sigmoid(x),
        "torch.compile": lambda x, y: compiled(x),
    }


def milliseconds(run: Run, buffers: list[tuple[torch.Tensor, torch.Tensor]], repeat: int) -> float:
    """Time of one call by CUDA events around ``repeat`` calls, each on the next buffers."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for i in range(repeat):
        run(*buffers[i % len(buffers)])
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / repeat


def measure(size: int, dtype: torch.dtype, rounds: int) -> dict[str, dict[str, float]]:
    """Median time and bandwidth of each rival at ``size`` bytes, measured in turns."""
    free, _ = torch.cuda.mem_get_info()
    count = max(1, min(64, CACHE_BYTES // (2 * size)))
    elements = size // dtype.itemsize
    if free < (2 * count + 2) * size:
        return {}
    buffers = [
        (
            torch.randn(elements, device="cuda", dtype=torch.float32).to(dtype)
            if size < 1 << 30
            else torch.full((elements,), 0.7, device="cuda", dtype=dtype),
            torch.empty(elements, device="cuda", dtype=dtype),
        )
        for _ in range(count)
    ]
    runs = rivals()
    repeat = max(3, min(200, (1 << 30) // size))
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        milliseconds(run, buffers, 3)
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(milliseconds(run, buffers, repeat))
    result = {}
    for name, values in times.items():
        time = statistics.median(values)
        result[name] = {"ms": time, "gb_per_s": 2 * size / time / 1e6}
    for row in result.values():
        row["of_copy"] = row["gb_per_s"] / result["copy"]["gb_per_s"]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--json", type=Path, default=Path(__file__).parents[1] / "results" / "gpu.json"
    )
    arguments = parser.parse_args()
    if not torch.cuda.is_available() or _build_info.cuda_message():
        raise SystemExit(
            "[bench-gpu] a CUDA device and a build with CUDA are needed. Received "
            f"{_build_info.cuda_message() or 'no device'}. Run this on a GPU machine."
        )
    console = Console()
    rows = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for name, dtype in progress.track(list(DTYPES.items()), description="dtypes"):
            for size in SIZES:
                found = measure(size, dtype, arguments.rounds)
                rows.append({"dtype": name, "bytes": size, "rivals": found})
    table = Table(title=torch.cuda.get_device_name())
    for heading in ("dtype", "KiB", *rivals()):
        table.add_column(heading, justify="right")
    for row in rows:
        cells = [f"{v['gb_per_s']:.0f} ({v['of_copy']:.2f})" for v in row["rivals"].values()]
        table.add_row(row["dtype"], f"{row['bytes'] >> 10:,}", *(cells or ["too little memory"]))
    console.print(table)
    console.print("GB/s read and written, in brackets the share of the copy's.", style="dim")
    data = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}
    arguments.json.parent.mkdir(exist_ok=True)
    temporary = arguments.json.with_suffix(".tmp")
    temporary.write_text(json.dumps(data, indent=1) + "\n")
    temporary.replace(arguments.json)


if __name__ == "__main__":
    main()
