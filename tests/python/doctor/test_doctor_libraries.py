# SPDX-License-Identifier: Apache-2.0
"""Broken libraries, each with exactly its finding."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from myops import _library
from myops.doctor import libraries
from myops.doctor.cuda import Driver, Gpu
from myops.doctor.elf import Elf, Search, system_folders
from myops.doctor.probe import gather

from .support import ENTRY, build, facts, ids

PLUGIN = _library.ort_library()
HERE = gather()


def _plugin(path: Path, **changes: object) -> list[str]:
    return ids(libraries.check_plugin(path, facts(**changes)))


def test_healthy(tmp_path):
    assert libraries.check_plugin(PLUGIN, HERE) == []
    assert libraries.check_torch_library(_library.torch_library(), HERE) == []
    assert libraries.try_plugin(PLUGIN) == []
    assert _plugin(build(tmp_path, "good.so", ENTRY)) == []


def test_torch_library_loads():
    assert libraries.try_torch_library(_library.torch_library()) == []


def test_missing(tmp_path):
    assert _plugin(tmp_path / "none.so") == ["library-missing"]


@pytest.mark.parametrize(
    "content",
    [
        b"version https://git-lfs.github.com/spec/v1\n" * 9,
        b"MZ" + bytes(200),
        b"\x7fELF" + bytes(200),
        b"\x7fELX",
    ],
)
def test_not_elf(tmp_path, content):
    (tmp_path / "l.so").write_bytes(content)
    assert _plugin(tmp_path / "l.so") == ["library-not-elf"]


def test_folder(tmp_path):
    assert _plugin(tmp_path) == ["library-not-elf"]


@pytest.mark.parametrize("size", [0, 4, 40, 64, 4096, -4096, -1])
def test_truncated(tmp_path, size):
    content = PLUGIN.read_bytes()
    (tmp_path / "l.so").write_bytes(content[:size])
    assert _plugin(tmp_path / "l.so") == ["library-truncated"]


@pytest.mark.parametrize(("offset", "value"), [(18, struct.pack("<H", 183)), (5, b"\x02")])
def test_wrong_architecture(tmp_path, offset, value):
    content = bytearray(build(tmp_path, "good.so", ENTRY).read_bytes())
    content[offset : offset + len(value)] = value
    if offset == 5:  # big-endian: the offsets of the header are nonsense, the kind of file is not
        content[16:64] = struct.pack(">HHIQQQIHHHHHH", 3, 22, 1, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0)
    (tmp_path / "l.so").write_bytes(content)
    assert _plugin(tmp_path / "l.so") == ["library-wrong-architecture"]


def test_not_shared(tmp_path):
    assert _plugin(build(tmp_path, "l.o", ENTRY, "-c", "-no-pie")) == ["library-not-shared"]


def test_no_entry(tmp_path):
    library = build(tmp_path, "l.so", "int other(void) { return 0; }")
    assert _plugin(library) == ["entry-symbol-missing"]


@pytest.mark.parametrize("place", ["{}", "namespace outer {{ namespace {{ {} }} {} }}"])
def test_mangled_entry(tmp_path, place):
    source = place.format(ENTRY, ENTRY.replace("void* options", "int options"))
    library = build(tmp_path, "l.so", source, suffix="cc")
    assert _plugin(library) == ["entry-symbol-mangled"]


def test_hidden_entry(tmp_path):
    library = build(tmp_path, "l.so", ENTRY, "-fvisibility=hidden")
    assert _plugin(library) == ["entry-symbol-hidden"]


def test_torch_library_for_the_plugin():
    found = libraries.check_plugin(_library.torch_library(), HERE)
    assert ids(found) == ["torch-library-for-plugin"]
    assert "libc10.so" in found[0].evidence


def test_plugin_for_the_torch_library():
    found = libraries.check_torch_library(PLUGIN, HERE)
    assert ids(found) == ["plugin-for-torch-library"]


def test_undefined_symbol(tmp_path):
    source = f"int nowhere(void); {ENTRY} int f(void) {{ return nowhere(); }}"
    library = build(tmp_path, "l.so", source)
    found = libraries.check_plugin(library, HERE)
    assert ids(found) == ["undefined-symbol"]
    assert found[0].evidence == "nowhere"


def test_weak_symbols_may_stay_undefined(tmp_path):
    source = f"int maybe(void) __attribute__((weak)); {ENTRY} int f(void) {{ return maybe(); }}"
    assert _plugin(build(tmp_path, "l.so", source)) == []


def test_needed_library(tmp_path):
    folder = tmp_path / "there"
    folder.mkdir()
    other = build(folder, "libmyops_other.so", "int f(void) { return 0; }")
    source = f"int f(void); {ENTRY} int g(void) {{ return f(); }}"
    library = build(tmp_path, "l.so", source, other, "-Wl,-soname,l.so")
    assert _plugin(library) == []  # linked by its path
    flags = ("-L", folder, "-lmyops_other")
    library = build(tmp_path, "l.so", source, *flags)
    found = libraries.check_plugin(library, HERE)
    assert ids(found) == ["needed-unresolved"]
    assert "libmyops_other.so" in found[0].evidence
    assert _plugin(build(tmp_path, "l.so", source, *flags, "-Wl,-rpath,$ORIGIN/there")) == []
    assert _plugin(build(tmp_path, "l.so", source, *flags, f"-Wl,-rpath,{folder}")) == []
    where = Search(variable=[str(folder)], system=system_folders())
    assert libraries.check_plugin(library, HERE, where) == []


@pytest.mark.parametrize(
    ("soname", "version", "id"),
    [
        ("libc.so.6", "GLIBC_9.9", "glibc-too-old"),
        ("libstdc++.so.6", "GLIBCXX_3.4.999", "libstdcxx-too-old"),
        ("libstdc++.so.6", "CXXABI_9.1", "libstdcxx-too-old"),
        ("libgcc_s.so.1", "GCC_99.0", "symbol-version-missing"),
    ],
)
def test_versions_of_symbols(tmp_path, soname, version, id):
    """Built against a newer library than this machine's."""
    (tmp_path / "versions").write_text(f"{version} {{ global: brand_new; }};")
    newer = build(
        tmp_path,
        f"newer-{soname}",
        "int brand_new(void) { return 0; }",
        *("-nostdlib", f"-Wl,-soname,{soname}", f"-Wl,--version-script={tmp_path / 'versions'}"),
    )
    source = f"int brand_new(void); {ENTRY} int f(void) {{ return brand_new(); }}"
    library = build(tmp_path, "l.so", source, newer)
    found = libraries.check_plugin(library, HERE)
    assert ids(found) == [id]
    assert version in found[0].evidence
    assert f"has {version.split('_')[0]}_" in found[0].evidence  # what this machine has


@pytest.mark.parametrize(("built", "torch"), [(0, 1), (1, 0)])
def test_string_abi(tmp_path, built, torch):
    source = "#include <string>\nnamespace c10 { void log(const std::string& text)%s }\n"
    folder = tmp_path / "torch"
    folder.mkdir()
    flag = "-D_GLIBCXX_USE_CXX11_ABI={}".format
    library = build(folder, "libc10.so", source % "{}", flag(torch), suffix="cc")
    uses = source % ";" + "void use() { c10::log({}); }"
    flags = (flag(built), "-L", folder, "-Wl,--no-as-needed", "-lc10")
    ours = build(tmp_path, "l.so", uses, *flags, suffix="cc")
    with Elf(library) as elf:
        assert elf.mentions_cxx11 == bool(torch)
    changes = {"torch_folder": str(folder), "torch_cxx11_abi": bool(torch)}
    found = libraries.check_torch_library(ours, facts(**changes))
    assert ids(found) == ["cxx11-abi-mismatch"]
    build(folder, "libc10.so", source % "{}", flag(built), suffix="cc")
    changes["torch_cxx11_abi"] = bool(built)
    assert libraries.check_torch_library(ours, facts(**changes)) == []


def test_symbol_of_another_torch(tmp_path):
    folder = tmp_path / "torch"
    folder.mkdir()
    build(folder, "libc10.so", "namespace c10 { void now() {} }", suffix="cc")
    source = "namespace c10 { void gone(); } void use() { c10::gone(); }"
    flags = ("-L", folder, "-Wl,--no-as-needed", "-lc10")
    library = build(tmp_path, "l.so", source, *flags, suffix="cc")
    found = libraries.check_torch_library(library, facts(torch_folder=str(folder)))
    assert ids(found) == ["undefined-symbol"]
    assert "_ZN3c104goneEv" in found[0].evidence


def test_openmp(tmp_path):
    source = (
        f"int omp_get_max_threads(void); {ENTRY} int f(void) {{ return omp_get_max_threads(); }}"
    )
    assert _plugin(build(tmp_path, "l.so", source, "-fopenmp")) == ["openmp-in-plugin"]


FATBIN = """
__asm__(".section .nv_fatbin,\\"a\\"\\n.balign 8\\n"
        ".long 0xBA55ED50\\n.short 1\\n.short 16\\n.quad %d\\n%s.previous\\n");
"""


def _with_cuda(folder: Path, *architectures: tuple[int, int]) -> Path:
    """A plugin with fat binaries of these (kind, number), empty ones."""
    entry = ".short %d\\n.short 0x101\\n.long 64\\n.quad 0\\n.zero 12\\n.long %d\\n.zero 32\\n"
    entries = "".join(entry % pair for pair in architectures)
    return build(folder, "l.so", ENTRY + FATBIN % (64 * len(architectures), entries))


@pytest.mark.parametrize(
    ("architectures", "capability", "expected"),
    [
        ([(2, 80), (2, 90)], (9, 0), []),
        ([(2, 80), (1, 80)], (8, 9), []),
        ([(2, 80), (1, 80)], (9, 0), ["gpu-architecture-jit"]),
        ([(2, 80)], (9, 0), ["gpu-architecture-missing"]),
        ([(2, 90), (1, 90)], (8, 0), ["gpu-architecture-missing"]),
        ([], (9, 0), []),
    ],
)
def test_cuda_architectures(tmp_path, architectures, capability, expected):
    library = _with_cuda(tmp_path, *architectures)
    driver = Driver((13, 0), (Gpu("some GPU", capability),))
    found = libraries.check_plugin(library, facts(driver=driver))
    assert ids(found) == expected
    if found:
        assert "some GPU" in found[0].evidence
        assert f"sm_{architectures[0][1]}" in found[0].evidence
    assert _plugin(library, driver=Driver(problem="none")) == []


def test_library_that_kills_the_process(tmp_path):
    """The file is in order; only the trial shows it."""
    source = f"#include <stdlib.h>\n{ENTRY}__attribute__((constructor)) void f(void) {{ abort(); }}"
    library = build(tmp_path, "l.so", source)
    assert _plugin(library) == []
    found = libraries.try_plugin(library)
    assert ids(found) == ["library-kills-process"]
    assert "SIGABRT" in found[0].evidence


def test_library_that_refuses(tmp_path):
    """An entry that answers with an error of its own."""
    source = """
    typedef void* (*Create)(int, const char*);
    struct Base { const void* const* (*get)(unsigned); };
    void* RegisterCustomOps(void* options, const struct Base* base) {
      return ((Create)base->get(1)[0])(1, "out of luck");
    }"""
    found = libraries.try_plugin(build(tmp_path, "l.so", source))
    assert ids(found) == ["library-does-not-load"]
    assert "out of luck" in found[0].evidence


def test_trial_agrees_with_the_file(tmp_path):
    source = f"int nowhere(void); {ENTRY} int f(void) {{ return nowhere(); }}"
    library = build(tmp_path, "l.so", source, "-Wl,-z,now")
    assert ids(libraries.try_plugin(library)) == ["undefined-symbol"]


@pytest.fixture(scope="module")
def small_library(tmp_path_factory):
    source = f'#include <stdio.h>\n{ENTRY} void f(void) {{ puts("x"); }}'
    return build(tmp_path_factory.mktemp("small"), "l.so", source)


PLACES = st.sampled_from(["head", "tail", "any"])


@settings(max_examples=150, deadline=5000)
@given(
    st.lists(
        st.tuples(st.sampled_from(["head", "tail", "any"]), st.integers(0), st.binary(max_size=9))
    )
)
def test_damaged_in_any_way(small_library, damages):
    """Whatever the bytes are, the answer is findings, and it comes."""
    content = bytearray(small_library.read_bytes())
    places = {"head": (0, 64), "tail": (len(content) - 2048, 2048), "any": (0, len(content))}
    for place, number, value in damages:
        start, length = places[place]
        offset = start + number % length
        content[offset : offset + len(value)] = value
    damaged = small_library.with_name("damaged.so")
    damaged.write_bytes(content)
    for finding in libraries.check_plugin(damaged, HERE):
        assert finding.evidence
