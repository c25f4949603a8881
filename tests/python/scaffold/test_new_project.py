# SPDX-License-Identifier: Apache-2.0
"""``myops new --project``: what is written, and what is refused. tests/packaging builds it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from myops._errors import UsageError
from myops.scaffold import new_project
from myops.scaffold.project import TEMPLATES
from myops.spec import SPECS

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("kind", TEMPLATES)
def test_no_name_of_the_template_is_left(tmp_path: Path, kind: str) -> None:
    written = new_project("SoftStep", kind, tmp_path / "acme", "acme")
    found = {str(p.relative_to(written.folder)) for p in written.folder.rglob("*") if p.is_file()}
    assert found == set(written.files)
    assert {"CMakeLists.txt", "pyproject.toml", ".gitignore", "README.md"} <= found
    assert {"native/acme_ops.hpp", "python/acme/spec.py", "tests/test_acme.py"} <= found
    for name in found:
        text = (written.folder / name).read_text()
        assert "@namespace@" not in text
        assert "@Name@" not in text
        if name.endswith(".py"):
            compile(text, name, "exec")
    assert "SOFT_STEP" in (written.folder / "python/acme/spec.py").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["acme"]


@pytest.mark.parametrize("kind", TEMPLATES)
def test_project_is_clean(tmp_path: Path, kind: str) -> None:
    folder = new_project("SoftStep", kind, tmp_path / "acme", "acme").folder
    subprocess.run([sys.executable, "-m", "ruff", "check", folder], check=True)
    style = f"--style=file:{ROOT / '.clang-format'}"
    header = folder / "native" / "acme_ops.hpp"
    subprocess.run(["clang-format", style, "--dry-run", "-Werror", header], check=True)


@pytest.mark.parametrize(
    "namespace",
    [
        *("myops", "torch", "aten", "ai", "onnx", "com", "microsoft", "ai.onnx.ml"),
        *("com.microsoft", "", "Acme", "a-b", "1st", "class", "json", "numpy"),
    ],
)
def test_reserved_namespaces_are_refused(tmp_path: Path, namespace: str, check_message) -> None:
    with pytest.raises(UsageError) as raised:
        new_project("SoftStep", "activation", tmp_path / "acme", namespace)
    assert repr(namespace) in check_message(raised.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", [*(spec.name for spec in SPECS), "Pair", "Range", "Softstep_"])
def test_taken_names_are_refused(tmp_path: Path, name: str, check_message) -> None:
    with pytest.raises(UsageError) as raised:
        new_project(name, "activation", tmp_path / "acme", "acme")
    assert name in check_message(raised.value)
    assert not list(tmp_path.iterdir())


def test_folder_with_something_in_it_is_left_alone(tmp_path: Path, check_message) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(UsageError) as raised:
        new_project("SoftStep", "activation", tmp_path, "acme")
    check_message(raised.value)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_kinds_there_is_no_project_for(tmp_path: Path, check_message) -> None:
    with pytest.raises(UsageError) as raised:
        new_project("SoftStep", "norm", tmp_path / "acme", "acme")
    assert "norm" in check_message(raised.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--project", "acme"], "go together"),
        (["--namespace", "acme"], "go together"),
        (["--project", "acme", "--namespace", "acme", "--attribute", "a=1"], "Leave them out"),
    ],
)
def test_arguments_that_do_not_go_together(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    command = [sys.executable, "-m", "myops.cli", "new", "SoftStep", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert words in done.stderr


def test_json(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "myops.cli", "new", "SoftStep", "--project", "acme"]
    command += ["--namespace", "acme", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    assert report["torch_name"] == "soft_step"
    assert report["root"] == str(tmp_path / "acme")
    assert all((tmp_path / "acme" / name).is_file() for name in report["files"])
