# SPDX-License-Identifier: Apache-2.0
"""What the wheel and the source archive hold, and on which systems the wheel is for."""

from __future__ import annotations

import ast
import base64
import csv
import hashlib
import io
import json
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest
from environments import PYTHON, ROOT, environment, run
from myops import _build_info

PACKAGE = ROOT / "python" / "myops"
PLUGIN = "myops/lib/libmyops_ort.so"
# A platform older than which no runtime we serve has wheels for.
OLDEST_GLIBC = (2, 28)
SYSTEM_LIBRARIES = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6"}


def sources() -> set[str]:
    """The package's own files, as they are named in a wheel."""
    return {
        f"myops/{path.relative_to(PACKAGE).as_posix()}"
        for path in PACKAGE.rglob("*")
        if path.suffix in (".py", ".pyi", ".typed", ".in")
    }


def drivers() -> set[str]:
    """What projects with operators of their own build them from, as it is named in a wheel."""
    modules = ("FindOnnxRuntimeHeaders", "FindTorchLibrary", "MyopsCuda", "MyopsFetchHeaders")
    modules += ("MyopsIsa", "MyopsLibraries", "MyopsOperatorLibrary", "MyopsTargets")
    files = {f"cmake/{name}.cmake" for name in (*modules, "myopsConfig", "myopsConfigVersion")}
    files |= {f"third_party/{name}.py" for name in ("apt_package", "fetch_headers")}
    for folder in ("kernels", "torch", "ort"):
        for path in (ROOT / "native" / folder).rglob("*"):
            if path.is_file() and path.name != "CMakeLists.txt":
                files.add(path.relative_to(ROOT).as_posix())
    return {f"myops/share/{name}" for name in files}


def version() -> str:
    text = (ROOT / "CMakeLists.txt").read_text()
    (found,) = re.findall(r"project\(myops VERSION ([0-9.]+)", text)
    return str(found)


def read(wheel: Path, name: str) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(name)


def info_folder() -> str:
    return f"myops-{version()}.dist-info"


def test_wheel_holds_these_files_and_no_others(torch_free_wheel: Path) -> None:
    """No static libraries, caches or objects of the build; of the sources, the drivers."""
    with zipfile.ZipFile(torch_free_wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
    module = f"myops/_build_info{sysconfig.get_config_var('EXT_SUFFIX')}"
    info = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
    info_files = (f"{info_folder()}/{name}" for name in info)
    expected = {*sources(), *drivers(), module, PLUGIN, *info_files}
    assert sorted(names) == sorted(expected)


def test_wheel_is_typed(torch_free_wheel: Path) -> None:
    assert read(torch_free_wheel, "myops/py.typed") == b""
    stub = ast.parse(read(torch_free_wheel, "myops/_build_info.pyi"))
    declared = {node.name for node in stub.body if isinstance(node, ast.FunctionDef)}
    declared |= {node.target.id for node in stub.body if isinstance(node, ast.AnnAssign)}
    assert declared == {name for name in vars(_build_info) if not name.startswith("_")}
    metadata = Parser().parsestr(read(torch_free_wheel, f"{info_folder()}/METADATA").decode())
    assert "Typing :: Typed" in metadata.get_all("Classifier")


def test_wheel_carries_its_licence(torch_free_wheel: Path) -> None:
    licence = read(torch_free_wheel, f"{info_folder()}/licenses/LICENSE")
    assert licence == (ROOT / "LICENSE").read_bytes()
    metadata = Parser().parsestr(read(torch_free_wheel, f"{info_folder()}/METADATA").decode())
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("License-File") == ["LICENSE"]


def test_wheel_names_the_version_of_cmake_and_this_platform(torch_free_wheel: Path) -> None:
    """The module is for one Python, and the plugin for one processor: no wheel for any."""
    interpreter = f"cp{sys.version_info.major}{sys.version_info.minor}"
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    tag = f"{interpreter}-{interpreter}-{platform}"
    assert torch_free_wheel.name == f"myops-{version()}-{tag}.whl"
    wheel = Parser().parsestr(read(torch_free_wheel, f"{info_folder()}/WHEEL").decode())
    assert wheel.get_all("Tag") == [tag]
    assert wheel["Root-Is-Purelib"] == "false"


def test_record_has_the_checksum_of_every_file(torch_free_wheel: Path) -> None:
    record = read(torch_free_wheel, f"{info_folder()}/RECORD").decode()
    rows = {name: (digest, size) for name, digest, size in csv.reader(io.StringIO(record))}
    with zipfile.ZipFile(torch_free_wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        assert set(rows) == names
        for name in names - {f"{info_folder()}/RECORD"}:
            content = archive.read(name)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            assert rows[name] == (f"sha256={digest.decode()}", str(len(content))), name


def test_no_file_names_the_builder_s_folders(torch_free_wheel: Path) -> None:
    with zipfile.ZipFile(torch_free_wheel) as archive:
        for name in archive.namelist():
            content = archive.read(name)
            for folder in (ROOT, torch_free_wheel.parents[1], Path.home()):
                assert f"{folder}/".encode() not in content, (name, folder)


def auditwheel(wheel: Path) -> dict[str, Any]:
    command = [PYTHON, "-m", "auditwheel", "show", "--json", wheel]
    return dict(json.loads(run(command, env=environment())))


def test_auditwheel_names_a_policy_and_nothing_to_bundle(torch_free_wheel: Path) -> None:
    found = auditwheel(torch_free_wheel)
    assert re.fullmatch(r"manylinux_2_\d+_\w+", found["overall_tag"])
    assert found["external_libs"] == {}
    assert set(found["versioned_symbols"]) <= SYSTEM_LIBRARIES
    assert not found["unsupported_isa"]


def test_auditwheel_allows_the_plugin_on_old_systems(
    torch_free_wheel: Path, tmp_path: Path
) -> None:
    """The plugin travels without the Python module, which may need a newer libstdc++."""
    alone, record = tmp_path / torch_free_wheel.name, f"{info_folder()}/RECORD"
    with zipfile.ZipFile(torch_free_wheel) as whole, zipfile.ZipFile(alone, "w") as part:
        kept = [PLUGIN, f"{info_folder()}/METADATA", f"{info_folder()}/WHEEL"]
        for name in kept:
            part.writestr(name, whole.read(name))
        part.writestr(record, "".join(f"{name},,\n" for name in (*kept, record)))
    found = auditwheel(alone)
    policy = re.fullmatch(r"manylinux_(\d+)_(\d+)_\w+", found["overall_tag"])
    assert policy is not None, found
    assert (int(policy[1]), int(policy[2])) <= OLDEST_GLIBC
    assert found["external_libs"] == {}
    assert set(found["versioned_symbols"]) <= SYSTEM_LIBRARIES


@pytest.fixture(scope="module")
def source_archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source archive."""
    folder = tmp_path_factory.mktemp("sdist")
    run(
        [PYTHON, "-m", "build", "--sdist", "--no-isolation", "--outdir", folder, ROOT],
        env=environment(),
    )
    (archive,) = folder.glob("*.tar.gz")
    assert archive.name == f"myops-{version()}.tar.gz"
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    (source,) = [path for path in folder.iterdir() if path.is_dir()]
    return source


def test_source_archive_builds_without_the_repository(source_archive: Path, tmp_path: Path) -> None:
    names = {str(path.relative_to(source_archive)) for path in source_archive.rglob("*")}
    assert {"third_party/fetch_headers.py", "cmake/MyopsIsa.cmake", "LICENSE"} <= names
    droppings = (".so", ".a", ".o", ".pyc", ".whl")
    assert not [n for n in names if n.startswith(("build/", ".venv", ".ci"))]
    assert not [n for n in names if n.endswith(droppings)]
    build = tmp_path / "built"
    switches = ("-DMYOPS_BUILD_TORCH=OFF", "-DMYOPS_CUDA=OFF")
    run(["cmake", "-S", source_archive, "-B", build, "-G", "Ninja", *switches])
    run(["cmake", "--build", build, "--target", "myops_ort"])


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout: nothing to compare with")
def test_source_archive_holds_what_is_tracked(source_archive: Path) -> None:
    """All of it but the project's own test machinery, and the metadata on top."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    tracked = {name for name in listed.split("\0") if name and not name.startswith(".ci/")}
    held = {
        path.relative_to(source_archive).as_posix()
        for path in source_archive.rglob("*")
        if path.is_file()
    }
    assert held == tracked | {"PKG-INFO"}
