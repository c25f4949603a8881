# SPDX-License-Identifier: Apache-2.0
"""Copies of the source tree, to add operators to and build."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).parents[3]


def run(command: list[object], cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "MYOPS_ISA"} | variables
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**environment, "PYTHONPATH": str(cwd / "python")},
        capture_output=True,
        text=True,
        check=False,
    )


def succeed(command: list[object], cwd: Path, **variables: str) -> str:
    done = run(command, cwd, **variables)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def copy_tree(folder: Path) -> Path:
    """The source tree, with the native libraries of this build."""
    for path in ("native", "python", "cmake", "third_party", "tests"):
        shutil.copytree(
            ROOT / path, folder / path, ignore=shutil.ignore_patterns("__pycache__", "*.so")
        )
    for path in ("CMakeLists.txt", "LICENSE", "pyproject.toml", ".clang-format"):
        shutil.copy(ROOT / path, folder / path)
    return folder


def with_libraries(tree: Path, built: Path) -> None:
    """Puts libraries beside the tree's package."""
    (tree / "python/myops/lib").mkdir(exist_ok=True)
    for path in built.rglob("*.so"):
        place = "" if path.name.startswith("_build_info") else "lib"
        shutil.copy(path, tree / "python/myops" / place / path.name)


def contents(tree: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(tree)): path.read_bytes()
        for path in tree.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so"
    }


def build(tree: Path) -> Path:
    """Builds all libraries for one instruction set."""
    folder = tree / "build"
    succeed(
        [
            *("cmake", "-S", tree, "-B", folder, "-G", "Ninja", "-DMYOPS_CUDA=OFF"),
            *("-DMYOPS_ISAS=baseline", "-DMYOPS_BUILD_PYTHON=ON"),
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-DMYOPS_TORCH_ROOT={Path(torch.__file__).parent}",
        ],
        tree,
    )
    succeed(["cmake", "--build", folder], tree)
    return folder


def new(tree: Path, *arguments: str) -> dict[str, object]:
    command = [sys.executable, "-m", "myops.cli", "new", *arguments, "--json"]
    result: dict[str, object] = json.loads(succeed(command, tree))
    return result
