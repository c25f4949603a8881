# SPDX-License-Identifier: Apache-2.0
"""What vectorising brings each kernel: the kernel library is built twice, the second time without
the compiler's vectoriser, and both builds take turns.

A kernel that the compiler cannot vectorise shows as a ratio near 1. Needs CMake, a C++ compiler and
some minutes; no host takes part.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from claims import Claim, Goal, Row, Script, Settings, main
from myops import _build_info
from myops._errors import MyopsError

ROOT = Path(__file__).resolve().parent.parent
WHERE = "benchmarks"
SIZE = 2048
RIVAL = "the same without vectoriser"
# All three: the first only sets the default of the other two, which -O3 sets as well.
SCALAR_FLAGS = "-fno-tree-vectorize -fno-tree-loop-vectorize -fno-tree-slp-vectorize"
BUILDS = {"vectorised": "", "scalar": SCALAR_FLAGS}
ROUNDS = 20

CLAIMS = tuple(
    Claim(
        f"vectorised-{isa}-{dtype}",
        f"Every operator and pass, {isa}",
        RIVAL,
        "native",
        (Goal(SIZE, 2.0),),
        dtype=dtype,
        variant=isa,
    )
    for isa in ("v3", "v4")
    for dtype in ("float32", "float64")
)

Times = dict[tuple[str, str, str], float]
"""(ISA, dtype, "op pass") -> seconds per element."""


def _run(command: list[str], what: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr + done.stdout).strip().splitlines()[-1:] or ["no message"]
        raise MyopsError(
            WHERE,
            f"{what} should end well",
            f"exit code {done.returncode}: {last[0]}",
            "Correct it",
        )
    return done.stdout


def build(folder: Path, flags: str) -> Path:
    """The driver with the kernel library compiled with these flags on top."""
    cmake = shutil.which("cmake")
    if cmake is None:
        raise MyopsError(WHERE, "cmake should be on the PATH", "none", "Install it")
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    options = ["TORCH=OFF", "ORT=OFF", "PYTHON=OFF", "BENCHMARKS=ON"]
    defines = [f"-DMYOPS_BUILD_{option}" for option in options]
    defines += ["-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_CXX_FLAGS={flags}"]
    _run([cmake, "-S", str(ROOT), "-B", str(folder), *generator, *defines], "configuring")
    jobs = str(len(os.sched_getaffinity(0)))
    target = "myops_kernel_times"
    _run([cmake, "--build", str(folder), "--target", target, "-j", jobs], "the build")
    return folder / "benchmarks" / "native" / target


def _times(driver: Path, isas: list[str]) -> Times:
    found = json.loads(_run([str(driver), *isas], "the driver"))
    return {(t["isa"], t["dtype"], f"{t['op']} {t['pass']}"): t["seconds"] for t in found}


def measure(script: Script, settings: Settings, on_round: Callable[[], object]) -> list[Row]:
    isas: list[str] = [isa for isa in ("v3", "v4") if isa in _build_info.isas()]
    generator = random.Random(0)
    samples: dict[str, list[Times]] = {name: [] for name in BUILDS}
    with tempfile.TemporaryDirectory() as folder:
        drivers = {}
        for name, flags in BUILDS.items():
            drivers[name] = build(Path(folder) / name, flags)
            on_round()
        for _ in range(settings.rounds or ROUNDS):
            for name in generator.sample(list(BUILDS), len(BUILDS)):
                samples[name].append(_times(drivers[name], isas))
            on_round()
    rows = []
    for claim in script.claims:
        for key in samples["scalar"][0]:
            if key[:2] == (claim.variant, claim.dtype):
                ours, rival = (
                    tuple(times[key] for times in samples[name])
                    for name in ("vectorised", "scalar")
                )
                rows.append(Row.of(claim, claim.goals[0], 1, ours, rival, detail=key[2]))
    return rows


def total_rounds(script: Script, settings: Settings) -> int:
    return len(BUILDS) + (settings.rounds or ROUNDS)


SCRIPT = Script("vectorisation", CLAIMS, measure, total_rounds)

if __name__ == "__main__":
    main(SCRIPT)
