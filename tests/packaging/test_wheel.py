# SPDX-License-Identifier: Apache-2.0
"""What the wheel and the source archive hold."""

from __future__ import annotations

import re
import tarfile
import zipfile
from pathlib import Path

from environments import PYTHON, ROOT, environment, run


def test_wheel_holds_package_plugin_sources_and_licence_only(torch_free_wheel: Path) -> None:
    names = set(zipfile.ZipFile(torch_free_wheel).namelist())
    sources = {
        f"myops/{path.relative_to(ROOT / 'python/myops')}"
        for path in (ROOT / "python/myops").rglob("*")
        if path.suffix in (".py", ".pyi", ".typed", ".in")
    }
    # For projects with operators of their own.
    sources |= {
        f"myops/share/{path.relative_to(ROOT)}"
        for folder in ("kernels", "torch", "ort")
        for path in (ROOT / "native" / folder).rglob("*")
        if path.is_file() and path.name != "CMakeLists.txt"
    }
    sources |= {
        f"myops/share/third_party/{name}.py" for name in ("apt_package", "fetch_headers")
    } | {f"myops/share/cmake/myopsConfig{end}.cmake" for end in ("", "Version")}
    modules = {name for name in names if name.startswith("myops/share/cmake/")} - sources
    assert {name.removeprefix("myops/share/") for name in modules} == {
        f"cmake/{name}.cmake"
        for name in (
            *("FindOnnxRuntimeHeaders", "FindTorchLibrary", "MyopsCuda", "MyopsFetchHeaders"),
            *("MyopsIsa", "MyopsLibraries", "MyopsOperatorLibrary", "MyopsTargets"),
        )
    }
    sources |= modules
    assert sources <= names
    native = sorted(
        name for name in names - sources if name.startswith("myops/") and not name.endswith("/")
    )
    assert [re.sub(r"\.[^/]*\.so$", ".so", name) for name in native] == [
        "myops/_build_info.so",
        "myops/lib/libmyops_ort.so",
    ]
    rest = [name for name in names - sources if not name.startswith("myops/")]
    assert all(".dist-info/" in name for name in rest), rest
    assert any(name.endswith("licenses/LICENSE") for name in rest)


def test_wheel_names_the_version_of_cmake_and_this_platform(torch_free_wheel: Path) -> None:
    (version,) = re.findall(
        r"project\(myops VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text()
    )
    assert torch_free_wheel.name.startswith(f"myops-{version}-cp3")
    assert "linux" in torch_free_wheel.name


def test_source_archive_builds_without_the_repository(tmp_path: Path) -> None:
    run(
        [PYTHON, "-m", "build", "--sdist", "--no-isolation", "--outdir", tmp_path, ROOT],
        env=environment(),
    )
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    (source,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    names = {str(path.relative_to(source)) for path in source.rglob("*")}
    assert {"third_party/fetch_headers.py", "cmake/MyopsIsa.cmake", "LICENSE"} <= names
    assert not [n for n in names if n.startswith(("build/", ".venv", ".ci")) or n.endswith(".so")]
    build = tmp_path / "built"
    run(
        [
            "cmake",
            "-S",
            source,
            "-B",
            build,
            "-G",
            "Ninja",
            "-DMYOPS_BUILD_TORCH=OFF",
            "-DMYOPS_CUDA=OFF",
        ]
    )
    run(["cmake", "--build", build, "--target", "myops_ort"])
