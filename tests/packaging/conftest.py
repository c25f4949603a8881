# SPDX-License-Identifier: Apache-2.0
"""Fresh environments and builds, made once per test session."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from pathlib import Path

import matrix
import pytest
from environments import PYTHON, ROOT, NoWheelError, Venv, environment, install_folder, run


@pytest.fixture(scope="session")
def torch_free_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that ``pip wheel .`` makes, with build isolation, where there is no torch and no
    nvcc."""
    folder = tmp_path_factory.mktemp("wheel")
    builder = Venv(folder / "builder")
    output = folder / "dist"
    printed = run(
        [
            *(PYTHON, "-m", "pip", "--python", builder.python, "wheel", "-v", "--no-deps"),
            *("--wheel-dir", output, "-C", f"build-dir={folder / 'build'}"),
            *("-C", "cmake.define.MYOPS_CUDA=OFF", ROOT),
        ],
        env=environment(),
        errors_too=True,
    )
    assert "myops: no torch found, building without the torch library" in printed
    (wheel,) = output.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def with_runtime(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Venv]:
    """``with_runtime(version)``: an environment with that onnxruntime and the numpy it needs, and
    not even what onnxruntime depends on: importing it needs nothing else. Skips the test where
    there is no wheel of it for this Python.

    The packages are installed once; each call makes an environment around them."""

    @functools.cache
    def packages(requirement: str) -> Path:
        return install_folder(tmp_path_factory.mktemp("packages"), requirement)

    def get(version: str) -> Venv:
        numbers = tuple(map(int, version.split(".")))
        try:
            beside = [
                packages(f"onnxruntime=={version}"),
                packages("numpy<2" if numbers < (1, 19) else "numpy"),
            ]
        except NoWheelError as missing:
            pytest.skip(str(missing))
        return Venv(tmp_path_factory.mktemp(f"ort-{version}") / "venv", beside)

    return get


@pytest.fixture(scope="session")
def torch_free(
    with_runtime: Callable[[str], Venv], torch_free_wheel: Path
) -> Callable[[str], Venv]:
    """Environments by onnxruntime version that hold numpy, onnxruntime and our wheel only."""

    @functools.cache
    def get(version: str) -> Venv:
        made = with_runtime(version)
        made.install("--no-deps", torch_free_wheel)
        return made

    return get


BACK_ENDS = ["cpu", "cuda"] if shutil.which("nvcc") else ["cpu"]


@pytest.fixture(scope="session")
def prefix_with(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """What ``cmake --install`` gives a C++ user, by back end: no torch, no Python module."""

    @functools.cache
    def build_prefix(back_end: str) -> Path:
        folder = tmp_path_factory.mktemp(back_end)
        build = folder / "build"
        cuda = "ON" if back_end == "cuda" else "OFF"
        run(
            [
                *("cmake", "--preset", "ort-only", "-B", build),
                *(f"-DCMAKE_INSTALL_PREFIX={folder}/prefix", f"-DMYOPS_CUDA={cuda}"),
                "-DCMAKE_CUDA_ARCHITECTURES=80-real",
            ],
            cwd=ROOT,
        )
        run(["cmake", "--build", build])
        run(["cmake", "--install", build])
        return folder / "prefix"

    return build_prefix


@pytest.fixture(params=BACK_ENDS)
def installed_prefix(request: pytest.FixtureRequest, prefix_with: Callable[[str], Path]) -> Path:
    """The prefix of each back end this machine can build."""
    return prefix_with(request.param)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    found = terminalreporter.config.stash.get(matrix.ROWS, None)
    if found:
        terminalreporter.section("one plugin in many runtimes")
        for line in matrix.table(found):
            terminalreporter.write_line(line)
