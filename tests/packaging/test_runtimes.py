# SPDX-License-Identifier: Apache-2.0
"""One plugin file in many releases of ONNX Runtime, each in an environment with nothing else. The
table of what was found is printed at the end of the run."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path

import matrix
import probe_models
import pytest
from environments import Venv, environment, run
from myops import _build_info
from myops.spec import SPECS

RELEASES = ["1.16.3", "1.18.1", "1.20.1", "1.22.1", "1.24.4", "1.28.0", "1.32.0"]
TOO_OLD = "1.15.1"
PROBE = Path(__file__).with_name("runtime_probe.py")


@pytest.fixture(scope="session")
def plugin(prefix_with: Callable[[str], Path]) -> Path:
    (found,) = prefix_with("cpu").rglob("libmyops_ort.so")
    return found


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    probe_models.write(folder)
    return folder


@pytest.fixture(scope="session")
def probe(
    with_runtime: Callable[[str], Venv],
    models: Path,
    plugin: Path,
    request: pytest.FixtureRequest,
) -> Callable[[str], list[list[str]]]:
    """What the probe prints in a release."""

    @functools.cache
    def get(release: str) -> list[list[str]]:
        venv = with_runtime(release)
        printed = run([venv.python, PROBE, models, plugin], cwd=models, env=environment())
        found = json.loads(printed.splitlines()[-1])
        assert found["version"] == release
        request.config.stash.setdefault(matrix.ROWS, {})[release] = found["rows"]
        return found["rows"]

    return get


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("dtype", _build_info.dtypes)
def test_everything_works(
    probe: Callable[[str], list[list[str]]], release: str, dtype: str
) -> None:
    """Every operator fused and as the model's own function, inference of shapes and types, and two
    threads on one session."""
    rows = [row for row in probe(release) if row[1] == dtype]
    assert len(rows) == 2 * len(SPECS) + 2
    assert [(check, flaw) for check, _, flaw in rows if flaw] == []


def test_too_old_runtime_gives_one_line(
    with_runtime: Callable[[str], Venv],
    plugin: Path,
    tmp_path: Path,
    check_message: Callable[[str], str],
) -> None:
    """In the real one; tests/native/test_fake_runtime.cpp has those that no wheel is left of."""
    code = """
import sys, onnxruntime
try:
    onnxruntime.SessionOptions().register_custom_ops_library(sys.argv[1])
except Exception as error:
    print(str(error)[str(error).index("[myops]"):])
"""
    printed = with_runtime(TOO_OLD).check(code, plugin, cwd=tmp_path)
    text = check_message(printed.strip())
    assert TOO_OLD in text
    assert "1.16" in text
