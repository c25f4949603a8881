# SPDX-License-Identifier: Apache-2.0
"""What each import costs and needs: the frameworks load only where they are used."""

from __future__ import annotations

import re
from pathlib import Path

import myops
import pytest

FRAMEWORKS = ("torch", "onnx", "onnxruntime", "onnxscript")

LOADED = """
import sys
exec(sys.argv[1])
print(*(name for name in ("torch", "onnx", "onnxruntime", "onnxscript") if name in sys.modules))
"""


@pytest.mark.parametrize(
    ("statement", "loaded"),
    [
        ("import myops", ()),
        ("import myops.spec", ()),
        ("import myops._library", ()),
        ("import myops.ort", ()),
        ("import myops; myops.ort.library_path()", ()),
        ("from myops import _build_info; _build_info.ops()", ()),
        ("import myops.doctor", ()),
        ("import myops.onnx", ("onnx",)),
        ("import myops; myops.onnx.export", ("onnx",)),
        ("import myops.pack", ("onnx",)),
    ],
)
def test_loads_no_more_than_it_needs(run_python, statement, loaded):
    assert tuple(run_python(LOADED, statement).stdout.split()) == loaded


@pytest.mark.parametrize(
    "module",
    [
        "verify",
        "verify.model",
        "bench",
        "bench.measure",
        "onnx",
        "onnx.model",
        "onnx.inject",
        "ort.check",
    ],
)
def test_any_module_may_be_the_first(run_python, module):
    """They use each other: none may need another one to be imported before."""
    run_python(f"import importlib; importlib.import_module('myops.{module}')")


@pytest.mark.parametrize("statement", ["import myops.functional", "import myops.nn"])
def test_operators_do_without_onnxscript_and_onnxruntime(run_python, statement):
    """onnxscript alone takes over half a second to import."""
    loaded = run_python(LOADED, statement).stdout.split()
    assert "torch" in loaded
    assert "onnxscript" not in loaded
    assert "onnxruntime" not in loaded


@pytest.mark.parametrize(
    "statement",
    [
        "import myops",
        "import myops.spec",
        "import myops.ort",
        "import myops.onnx",
        "import myops.onnx.functions, myops.onnx.model, myops.onnx.check",
        "import myops.onnx; myops.onnx.inject",
        "import myops.ort.check",
        "import myops.doctor.libraries",
        "import myops.pack",
    ],
)
def test_works_where_torch_is_not_installed(run_python, statement):
    run_python(f"import sys; sys.modules['torch'] = None\n{statement}")


@pytest.mark.parametrize("module", ["functional", "nn"])
def test_operators_work_where_onnx_is_not_installed(run_python, module):
    """Training needs torch only."""
    blocked = "".join(f"sys.modules[{name!r}] = None\n" for name in FRAMEWORKS[1:])
    run_python(f"import sys\n{blocked}import myops.{module}")


@pytest.mark.parametrize("module", ["functional", "nn"])
def test_missing_torch_is_named(run_python, module, check_message):
    done = run_python(
        f"""
        import sys
        sys.modules["torch"] = None
        try:
            import myops.{module}
        except ImportError as error:
            print(error)
        """
    )
    assert "torch" in done.stdout


def test_version_is_that_of_the_build():
    root = Path(__file__).resolve().parents[2]
    text = (root / "CMakeLists.txt").read_text()
    assert re.search(r"project\(myops VERSION ([0-9.]+)", text)[1] == myops.__version__


def test_submodules_are_attributes():
    for name in ("functional", "nn", "onnx", "ort", "pack", "spec"):
        assert getattr(myops, name).__name__ == f"myops.{name}"
        assert name in dir(myops)
    with pytest.raises(AttributeError, match="nonsense"):
        myops.nonsense  # noqa: B018
