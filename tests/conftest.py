# SPDX-License-Identifier: Apache-2.0
"""What the Python tests share: exact error measures, subprocesses, the form of our messages."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# clang-format and cmake of this environment, which need not be activated.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

# Significant bits and least normal exponent of each storage type.
_FORMATS = {
    "float64": (53, -1022),
    "float32": (24, -126),
    "float16": (11, -14),
    "bfloat16": (8, -126),
}

_LARGEST = {
    "float64": float(np.finfo(np.float64).max),
    "float32": float(np.finfo(np.float32).max),
    "float16": 65504.0,
    "bfloat16": float.fromhex("0x1.fep127"),
}


def _ulp(exact: np.ndarray, dtype: str) -> np.ndarray:
    bits, least = _FORMATS[dtype]
    exponent = np.frexp(exact)[1] - 1
    return np.ldexp(np.longdouble(1), np.maximum(exponent, least) - bits + 1)


def _ulp_errors(actual: Any, exact: Any, dtype: str, slack: float = 0.0) -> np.ndarray:
    """Distance of ``actual`` from ``exact``, less ``slack``, in units in the last place of
    ``dtype``.

    NaN matches NaN only, an infinity matches what overflows ``dtype``, and a zero must have the
    sign of what it stands for: each mismatch counts as infinitely far.
    """
    actual = np.atleast_1d(np.asarray(actual, dtype=np.longdouble))
    exact = np.atleast_1d(np.asarray(exact, dtype=np.longdouble))
    assert actual.shape == exact.shape
    largest = np.longdouble(_LARGEST[dtype])
    overflow = np.abs(exact) >= largest + _ulp(largest, dtype) / 2
    expected = np.where(overflow, np.copysign(np.longdouble(np.inf), exact), exact)
    with np.errstate(invalid="ignore"):
        distance = np.maximum(np.abs(actual - expected) - np.longdouble(slack), 0)
        errors = distance / _ulp(np.where(np.isfinite(exact), exact, 1), dtype)
    errors = np.where(actual == expected, 0, errors)
    errors = np.where(np.isnan(actual) & np.isnan(expected), 0, errors)
    wrong_zero = (actual == 0) & (np.signbit(actual) != np.signbit(exact))
    return np.where(np.isnan(errors) | wrong_zero, np.inf, errors).astype(np.float64)


@pytest.fixture(scope="session")
def ulp_errors() -> Callable[[Any, Any, str], np.ndarray]:
    """``ulp_errors(actual, exact, dtype)``, see ``_ulp_errors``."""
    return _ulp_errors


@pytest.fixture(scope="session")
def check_ulp() -> Callable[..., None]:
    """``check_ulp(actual, exact, dtype, limit)`` fails with the worst element. ``slack`` is an
    absolute error that is allowed on top."""

    def check(
        actual: Any, exact: Any, dtype: str, limit: float, at: Any = None, slack: float = 0.0
    ) -> None:
        errors = _ulp_errors(actual, exact, dtype, slack)
        if errors.size == 0:
            return
        worst = int(np.argmax(errors))
        place = "" if at is None else f" at {np.ravel(np.asarray(at, dtype=np.float64))[worst]!r}"
        assert errors.flat[worst] <= limit, (
            f"{dtype}: {errors.flat[worst]} ulp{place}: {np.ravel(actual)[worst]!r}, "
            f"exact {np.ravel(exact)[worst]!r}"
        )

    return check


@pytest.fixture(scope="session")
def check_message() -> Callable[[BaseException | str], str]:
    """``[where] what should hold. Received what was found. Do this.``, on one line, ending once.

    Returns the text for further checks.
    """

    form = re.compile(r"^\[[\w.]+\] [^\n]+? Received:? [^\n]+?\. [A-Z][^\n]*\.$", re.DOTALL)

    def check(error: BaseException | str) -> str:
        text = str(error)
        assert form.match(text), text
        assert ".." not in text.replace("...", ""), text
        return text

    return check


def _run_python(
    folder: Path,
    code: str,
    *arguments: object,
    env: dict[str, str] | None = None,
    status: int | None = 0,
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=180,
        cwd=folder,
        env={**os.environ, **(env or {})},
        check=False,
    )
    if status is not None:
        assert done.returncode == status, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="session")
def run_python_in() -> Callable[..., subprocess.CompletedProcess[str]]:
    """``run_python_in(folder, code, *arguments, env=None, status=0)`` in a fresh interpreter;
    ``status=None`` accepts any exit code."""
    return _run_python


@pytest.fixture
def run_python(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """``run_python_in`` with the test's own folder."""
    return functools.partial(_run_python, tmp_path)


@pytest.fixture
def myops_command(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """``myops_command(*arguments, stdin="")`` runs ``myops ...`` in the test's own folder, on a
    terminal of 200 columns."""

    def call(*arguments: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "myops.cli", *map(str, arguments)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=os.environ | {"COLUMNS": "200"},
            input=stdin,
            check=False,
        )

    return call
