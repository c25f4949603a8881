# SPDX-License-Identifier: Apache-2.0
"""Finding and loading the native libraries; two copies of the torch one in a process."""

from __future__ import annotations

import shutil

import pytest
from myops import _build_info, _library
from myops._errors import LibraryError
from myops.spec import DOMAIN, ELEMENTWISE, SPECS

# A process that never imports the package: the library alone must do.
RAW = f"""
import sys, torch
path = sys.argv[1]
torch.ops.load_library(path)
names = sys.argv[2].split(",")
for name in names:
    op = getattr(torch.ops.{DOMAIN}, name)
    count = sum("Tensor" in str(a.type) for a in op.default._schema.arguments)
    leaves = [torch.randn(4, 6, dtype=torch.float64, requires_grad=True) for _ in range(count)]
    (op(*leaves).sum() + leaves[0].sum()).backward()
    assert all(leaf.grad is not None for leaf in leaves)
    assert not torch.equal(leaves[0].grad, torch.ones(4, 6, dtype=torch.float64))
    assert torch.autograd.gradcheck(op, leaves, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(op, leaves)
    assert op(*[torch.empty(6, 4, device="meta").t()] * count).stride() == (1, 4)
    out = torch.empty(4, 6, dtype=torch.float64)
    op(*[leaf.detach() for leaf in leaves], out=out)
    assert torch.equal(out, op(*leaves))
assert not [name for name in sys.modules if name.split(".")[0] == "myops"]
print("done")
"""


@pytest.fixture
def copied_library(tmp_path):
    folder = tmp_path / "other place"
    folder.mkdir()
    return shutil.copy(_library.torch_library(), folder / "libmyops.so")


def test_places():
    assert _library.torch_library().name == "libmyops.so"
    assert _library.ort_library().name == "libmyops_ort.so"
    assert _library.torch_library().is_file()
    assert _library.ort_library().is_file()
    assert _build_info.torch_version
    assert _build_info.ort_api_version >= 16


@pytest.mark.parametrize("find", [_library.torch_library, _library.ort_library])
def test_missing_file(find, tmp_path, monkeypatch, check_message):
    monkeypatch.setattr(_library, "_FOLDER", tmp_path)
    with pytest.raises(LibraryError) as raised:
        find()
    assert str(tmp_path) in check_message(raised.value)


def test_loading_is_cached():
    assert _library.load_torch_library() == _library.load_torch_library()


def test_torch_not_installed(run_python, check_message):
    done = run_python(
        """
        import sys
        sys.modules["torch"] = None  # import torch raises ImportError
        from myops import _library
        try:
            _library.load_torch_library()
        except ImportError as error:
            print(error)
        """
    )
    assert "pip install 'myops[train]'" in check_message(done.stdout.strip())


def test_library_that_does_not_load(run_python, tmp_path, check_message):
    """Built for another torch: both versions, the reason and the remedy."""
    (tmp_path / "libmyops.so").write_bytes(b"\x7fELF" + bytes(200))
    done = run_python(
        """
        import pathlib, sys, torch
        from myops import _build_info, _library
        _library._FOLDER = pathlib.Path(sys.argv[1])
        try:
            _library.load_torch_library()
        except _library.LibraryError as error:
            text = str(error)
            assert torch.__version__ in text and _build_info.torch_version in text
            print(text)
        """,
        tmp_path,
    )
    assert str(tmp_path) in check_message(done.stdout.strip())


def test_the_library_alone(run_python):
    names = ",".join(spec.torch_name for spec in ELEMENTWISE)
    assert run_python(RAW, _library.torch_library(), names).stdout.strip() == "done"


def test_a_copy_alone(run_python, copied_library):
    names = ",".join(spec.torch_name for spec in ELEMENTWISE)
    assert run_python(RAW, copied_library, names).stdout.strip() == "done"


CALL_ALL = f"""
for name in sys.argv[3].split(","):
    op = getattr(torch.ops.{DOMAIN}, name)
    count = sum("Tensor" in str(a.type) for a in op.default._schema.arguments)
    result = op(*[torch.ones(2, requires_grad=True)] * count)
    (result if isinstance(result, torch.Tensor) else result[0]).sum().backward()
print("alive")
"""


@pytest.mark.parametrize("times", [1, 2])
def test_loading_twice(run_python, times):
    names = ",".join(spec.torch_name for spec in SPECS)
    code = (
        "import sys, torch\nimport myops.functional, myops.nn\n"
        + "torch.ops.load_library(sys.argv[1])\n" * times
        + CALL_ALL
    )
    done = run_python(code, _library.torch_library(), "", names)
    assert done.stdout.strip() == "alive"
    assert "[myops]" not in done.stderr


@pytest.mark.parametrize("first", ["package", "library", "copy"])
def test_two_copies_leave_the_process_alive(run_python, copied_library, first):
    """stderr names both files; what was loaded first works on."""
    original = _library.torch_library()
    names = ",".join(spec.torch_name for spec in SPECS)
    load_first, second = {
        "package": ("import myops.functional", copied_library),
        "library": ("torch.ops.load_library(sys.argv[1])", copied_library),
        "copy": ("torch.ops.load_library(sys.argv[2])", original),
    }[first]
    code = f"import sys, torch\n{load_first}\ntorch.ops.load_library({str(second)!r})\n" + CALL_ALL
    done = run_python(code, original, copied_library, names)
    assert done.stdout.strip() == "alive"
    assert str(original) in done.stderr
    assert str(copied_library) in done.stderr


def test_import_after_another_copy(run_python, copied_library):
    """The package refuses a registration that is not its own, on one line, each time."""
    done = run_python(
        """
        import sys, torch
        torch.ops.load_library(sys.argv[1])
        from myops._errors import LibraryError
        for _ in range(2):
            try:
                import myops.functional
            except LibraryError as error:
                print(error)
        """,
        copied_library,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert str(copied_library) in line
        assert str(_library.torch_library()) in line
        assert line.startswith("[myops")


def test_the_plugin_beside_the_torch_library(run_python):
    """Both hold the same kernels and may share a process, in either order."""
    code = """
        import sys
        import onnxruntime
        import torch
        def plugin():
            onnxruntime.SessionOptions().register_custom_ops_library(sys.argv[1])
        def library():
            torch.ops.load_library(sys.argv[2])
        for load in (plugin, library) if sys.argv[3] == "plugin" else (library, plugin):
            load()
        print("alive")
    """
    for first in ("plugin", "library"):
        done = run_python(code, _library.ort_library(), _library.torch_library(), first)
        assert done.stdout.strip() == "alive"
