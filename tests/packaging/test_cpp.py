# SPDX-License-Identifier: Apache-2.0
"""C++ users: the installed CMake package, and the plugin built and served without Python."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import Section
from environments import ROOT, environment, run
from myops import spec
from myops.verify import operators


def test_prefix_holds_libraries_headers_and_config(installed_prefix: Path) -> None:
    names = {
        str(path.relative_to(installed_prefix))
        for path in installed_prefix.rglob("*")
        if path.is_file()
    }
    headers = {f"include/myops/{p.name}" for p in (ROOT / "native/kernels/include/myops").iterdir()}
    assert headers <= names
    assert any(name.endswith("libmyops_kernels.a") for name in names)
    assert any(name.endswith("cmake/myops/myopsConfig.cmake") for name in names)


def test_consumer_project_builds_and_runs(installed_prefix: Path, tmp_path: Path) -> None:
    source = ROOT / "tests" / "packaging" / "consumer"
    prefix = f"-DCMAKE_PREFIX_PATH={installed_prefix}"
    run(["cmake", "-S", source, "-B", tmp_path, "-G", "Ninja", prefix])
    run(["cmake", "--build", tmp_path])
    run(["ctest", "--test-dir", tmp_path, "--output-on-failure"])


def test_plugin_builds_with_no_python_on_the_path(tmp_path: Path) -> None:
    """Only compiler, cmake and ninja are reachable; the headers come from ONNXRUNTIME_ROOT."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("c++", "gcc", "g++", "ld", "as", "ar", "ranlib", "nm", "strip", "readelf"):
        found = shutil.which(name)
        if found:
            (tools / name).symlink_to(found)
    import ninja

    import cmake

    # The wheels' own binaries: their launchers on the path are Python scripts.
    (tools / "cmake").symlink_to(Path(cmake.CMAKE_BIN_DIR) / "cmake")
    (tools / "ninja").symlink_to(Path(ninja.BIN_DIR) / "ninja")
    folder = run([sys.executable, ROOT / "third_party" / "fetch_headers.py", "onnxruntime"])
    surroundings = environment(PATH=str(tools), ONNXRUNTIME_ROOT=folder.strip())
    build = tmp_path / "build"
    run(
        ["cmake", "--preset", "ort-only", "-B", build, "-DMYOPS_CUDA=OFF"],
        cwd=ROOT,
        env=surroundings,
    )
    run(["cmake", "--build", build], env=surroundings)
    assert list(build.rglob("libmyops_ort.so"))


def test_plugin_alone_in_another_folder_serves_a_model(
    installed_prefix: Path, tmp_path: Path
) -> None:
    (plugin,) = installed_prefix.rglob("libmyops_ort.so")
    copied = tmp_path / "elsewhere" / plugin.name
    copied.parent.mkdir()
    shutil.copy(plugin, copied)
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(os.fspath(copied))
    for op in spec.SPECS:
        model = operators.one_node_model(op, "float32", op.defaults())
        del model.functions[:]
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        x = np.linspace(-4, 4, 9, dtype=np.float32)
        feeds = dict.fromkeys(op.inputs, x)
        if op.kind == "norm":  # rows, and a weight for them
            feeds |= dict.fromkeys(op.inputs[:-1], x[np.newaxis])
        wide = (feeds[name].astype(np.float64) for name in op.inputs)
        expected = op.reference(*wide, **op.defaults())
        exact = expected if isinstance(expected, tuple) else (expected,)
        for y, other in zip(session.run(None, feeds), exact, strict=True):
            assert np.allclose(y, other, rtol=1e-6, atol=0)


def plugin_section(prefix: Path, name: str) -> Section:
    (plugin,) = prefix.rglob("libmyops_ort.so")
    return ELFFile(plugin.open("rb")).get_section_by_name(name)


def test_plugin_needs_only_the_system_s_libraries(installed_prefix: Path) -> None:
    """With CUDA, too: its runtime is linked statically, and finds the driver when it is called."""
    dynamic = plugin_section(installed_prefix, ".dynamic")
    needed = {tag.needed for tag in dynamic.iter_tags("DT_NEEDED")}
    allowed = ("libstdc++.so.", "libm.so.", "libgcc_s.so.", "libc.so.", "ld-linux")
    assert all(name.startswith(allowed) for name in needed), needed


def test_plugin_names_no_path_of_its_builder(installed_prefix: Path) -> None:
    """Messages of ours name source files, relative to the source tree."""
    (plugin,) = installed_prefix.rglob("libmyops_ort.so")
    assert f"{ROOT}/".encode() not in plugin.read_bytes()


def test_plugin_runs_on_old_systems(prefix_with: Callable[[str], Path]) -> None:
    """Without CUDA. Its static runtime needs the C library of the machine that links it."""
    versions: dict[str, list[tuple[int, ...]]] = {"GLIBC_": [], "GLIBCXX_": []}
    for _, auxiliaries in plugin_section(prefix_with("cpu"), ".gnu.version_r").iter_versions():
        for auxiliary in auxiliaries:
            for prefix, found in versions.items():
                number = auxiliary.name.removeprefix(prefix)
                if number != auxiliary.name:
                    found.append(tuple(map(int, number.split("."))))
    assert max(versions["GLIBC_"]) <= (2, 28)
    assert max(versions["GLIBCXX_"]) <= (3, 4, 25)


def test_the_build_names_the_symbols_old_systems_lack(prefix_with: Callable[[str], Path]) -> None:
    """With limits that no plugin keeps."""
    (plugin,) = prefix_with("cpu").rglob("libmyops_ort.so")
    check = [
        *("cmake", "-DCHECK=old_systems", "-DMODE=WARNING", "-DREADELF=readelf"),
        f"-DLIBRARY={plugin}",
    ]
    script = ["-P", ROOT / "cmake" / "MyopsChecks.cmake"]
    kept = run([*check, "-DLIMITS=GLIBC_2.28;GLIBCXX_3.4.25", *script], errors_too=True)
    assert kept == ""
    printed = run([*check, "-DLIMITS=GLIBC_2.2;GLIBCXX_3.4", *script], errors_too=True)
    assert "[old_systems]" in printed
    assert re.search(r"memcpy\s+\(GLIBC_2\.14\)", printed)
