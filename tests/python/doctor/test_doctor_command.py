# SPDX-License-Identifier: Apache-2.0
"""``myops doctor`` as a user calls it."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import myops
import pytest
from myops import _library
from myops.doctor.report import examine
from myops.spec import SPECS

from ..ort.support import model, node
from .support import ENTRY, build, ids


@pytest.fixture
def run(myops_command):
    return functools.partial(myops_command, "doctor")


def test_clean(run, tmp_path):
    (tmp_path / "m.onnx").write_bytes(model([node(SPECS[0])]))
    done = run("m.onnx", _library.ort_library())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Nothing found." in done.stdout
    done = run("--json", "--no-load")
    assert done.returncode == 0
    data = json.loads(done.stdout)
    assert data["ok"] is True
    assert data["findings"] == []
    assert data["facts"]["packages"]["torch"] == importlib.metadata.version("torch")
    assert data["facts"]["torch_cxx11_abi"] in (True, False)


def test_findings(run, tmp_path):
    library = build(tmp_path, "l.so", ENTRY, suffix="cc")
    (tmp_path / "m.onnx").write_bytes(model([node(SPECS[0])], imports=[]))
    done = run(library, "m.onnx", "--json", "--no-load")
    assert done.returncode == 1, done.stderr
    data = json.loads(done.stdout)
    assert data["ok"] is False
    found = {finding["id"]: finding for finding in data["findings"]}
    assert set(found) == {"entry-symbol-mangled", "domain-not-imported"}
    assert found["entry-symbol-mangled"]["subject"] == str(library)
    for finding in found.values():
        assert all(finding[key] for key in ("sentence", "evidence", "fix", "severity"))
    done = run(library, "m.onnx", "--no-load")
    assert done.returncode == 1
    for text in ("entry-symbol-mangled", "_Z17RegisterCustomOps", "2 findings."):
        assert text in done.stdout


def test_truncated_library_does_not_kill_the_command(run, tmp_path):
    (tmp_path / "l.so").write_bytes(_library.ort_library().read_bytes()[:-5000])
    done = run("l.so", "--no-load")
    assert done.returncode == 1
    assert "library-truncated" in done.stdout


def test_explain(run, tmp_path):
    text = "FAIL : Fatal error: MyOps:Swish(-1) is not a registered function/op"
    done = run("--explain", text)
    assert done.returncode == 1
    assert "domain-case" in done.stdout
    done = run("--explain", "-", "--json", stdin=text)
    assert [cause["id"] for cause in json.loads(done.stdout)["causes"]] == ["domain-case"]
    assert json.loads(done.stdout)["causes"][0]["status"] == "possible"
    done = run("--explain", "all is well")
    assert done.returncode == 0
    assert "Nothing in this text is known" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [("a.onnx", "b.onnx"), ("a.so", "b.so"), ("a.txt",), ("--threads", "0"), ("--nonsense",)],
)
def test_wrong_usage(run, arguments):
    done = run(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_notes_do_not_count(tmp_path, monkeypatch):
    monkeypatch.setattr(_library, "_FOLDER", tmp_path)
    found = examine(library=Path(myops.__file__).parent / "lib" / "libmyops_ort.so")
    assert ids(found.findings) == ["library-not-built"]
    assert found.ok


LEFT_OUT = ("torch", "functorch", "onnx", "elftools", "pyelftools", "myops", "_myops")


@pytest.fixture
def bare(tmp_path):
    """Runs the command where nothing is installed but what myops cannot do without."""
    site = tmp_path / "site"
    site.mkdir()
    folders = dict.fromkeys(Path(path) for path in sys.path if path.endswith("site-packages"))
    entries = {entry.name: entry for folder in reversed(folders) for entry in folder.iterdir()}
    for name, entry in entries.items():
        if not name.lower().startswith(LEFT_OUT) and entry.suffix != ".pth":
            (site / name).symlink_to(entry)
    (site / "myops").symlink_to(Path(myops.__file__).parent)
    code = (
        "import sys\nsys.path.insert(0, sys.argv.pop(1))\nfrom myops.cli import main\n"
        "sys.argv[0] = 'myops'\nmain()"
    )

    def call(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-S", "-E", "-c", code, site, "doctor", *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
        )

    return call, site


def test_where_nothing_else_is_installed(bare, tmp_path):
    """No torch, onnx, onnxruntime, pyelftools: what is not examined is said, and is no fault."""
    call, _ = bare
    (tmp_path / "m.onnx").write_bytes(model([node(SPECS[0])]))
    done = call("--json", tmp_path / "m.onnx", _library.ort_library())
    assert done.returncode == 0, done.stdout + done.stderr
    findings = json.loads(done.stdout)["findings"]
    assert {finding["id"] for finding in findings} == {"package-missing"}
    missing = {finding["subject"] for finding in findings}
    assert missing == {"torch", "onnx", "onnxruntime", "pyelftools"}


def test_library_where_only_pyelftools_is_installed(bare, tmp_path):
    call, site = bare
    for name in ("elftools", *_metadata("pyelftools")):
        source = next(Path(p) / name for p in sys.path if (Path(p) / name).exists())
        (site / name).symlink_to(source)
    library = build(tmp_path, "l.so", ENTRY, suffix="cc")
    done = call("--json", library)
    assert done.returncode == 1, done.stdout + done.stderr
    counted = [f["id"] for f in json.loads(done.stdout)["findings"] if f["severity"] != "note"]
    assert counted == ["entry-symbol-mangled"]


def _metadata(name: str) -> list[str]:
    files = importlib.metadata.files(name) or []
    return sorted({file.parts[0] for file in files if file.parts[0].endswith(".dist-info")})
