# SPDX-License-Identifier: Apache-2.0
"""The wheel installed where paths are unusual, and twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from environments import Venv, environment, install_folder, run
from myops.spec import ELEMENTWISE
from myops.verify.operators import one_node_model

SPEC = ELEMENTWISE[0]
RUN = """
import sys
import numpy as np
import myops, myops.ort
assert sys.argv[2] in myops.__file__, myops.__file__
assert sys.argv[2] in myops.ort.library_path()
session = myops.ort.session(sys.argv[1])
(y,) = session.run(None, {"x": np.float32([-2, 0, 1])})
print(*map(float, y))
"""

# Both packages, one after the other: two modules, two plugins, sessions of both at once.
RUN_TWO = """
import sys
import numpy as np
def load(folder):
    for name in [n for n in sys.modules if n.split(".")[0] == "myops"]:
        del sys.modules[name]
    sys.path.insert(0, folder)
    import myops.ort
    assert myops.ort.library_path().startswith(folder), myops.ort.library_path()
    return myops.ort.session
makers = [load(folder) for folder in sys.argv[2:]]
sessions = [make(sys.argv[1]) for make in makers * 3]
x = np.linspace(-4, 4, 100_000, dtype=np.float32)
first = sessions[0].run(None, {"x": x})[0]
for session in sessions:
    assert np.array_equal(session.run(None, {"x": x})[0], first)
while sessions:
    sessions.pop(0)
    for session in sessions:
        assert np.array_equal(session.run(None, {"x": x})[0], first)
print("alive", len({m.__globals__["ort_library"]() for m in makers}))
"""

UNUSUAL = "größer, 表 und Leerzeichen"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp(UNUSUAL) / "modèle 1.onnx"
    onnx.save(one_node_model(SPEC, "float32", SPEC.defaults()), str(path))
    return path


def test_installs_into_a_path_with_spaces_and_other_letters(
    torch_free_wheel: Path, model: Path, tmp_path: Path
) -> None:
    """A whole environment there: the command, too, whose first line names the interpreter."""
    place = Venv(tmp_path / UNUSUAL / "venv")
    place.install("onnxruntime", "numpy", torch_free_wheel)
    printed = place.check(RUN, model, UNUSUAL)
    expected = SPEC.reference(np.array([-2.0, 0.0, 1.0]), **SPEC.defaults())
    assert [float(word) for word in printed.split()] == pytest.approx(expected, rel=1e-6)
    command = place.python.with_name("myops")
    told = json.loads(run([command, "info", "--json"], env=environment()))
    assert UNUSUAL in told["libraries"]["ort"]


def test_two_installed_copies_share_a_process(
    torch_free: Callable[[str], Venv], torch_free_wheel: Path, model: Path, tmp_path: Path
) -> None:
    python = torch_free("1.32.0")
    folders = [tmp_path / "one", tmp_path / "two ü"]
    for folder in folders:
        install_folder(folder, torch_free_wheel)
    printed = python.check(RUN_TWO, model, *folders)
    assert printed.split() == ["alive", "2"]
