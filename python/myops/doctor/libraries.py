# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a native library, read from the file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from myops import _fatbin
from myops.doctor import trial
from myops.doctor.elf import (
    UNREADABLE,
    Elf,
    Search,
    closure,
    declared_size,
    host_architecture,
    inherited_folders,
    system_folders,
)
from myops.doctor.environment import Facts
from myops.doctor.explain import explain
from myops.doctor.findings import Finding

ENTRY = "RegisterCustomOps"

# Names that a compiler gives the entry inside namespaces and classes, too.
_MANGLED = rf"^_ZN?.*{len(ENTRY)}{ENTRY}"
_OF_TORCH = re.compile(r"^lib(torch|c10)(_\w+)?\.so")
_TORCH_SYMBOL = re.compile(r"3c10|2at[\dE]|5torch")
_OPENMP = ("libgomp.", "libomp.", "libiomp5.")
_SHOWN = 5


def search(facts: Facts, with_torch: bool) -> Search:
    """Where the loader looks on this machine; in torch's folder, too, where torch has loaded its
    libraries before."""
    variable = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    return Search(
        first=[facts.torch_folder] if with_torch and facts.torch_folder else [],
        variable=[*inherited_folders(), *(folder for folder in variable if folder)],
        system=system_folders(),
    )


def check_plugin(path: Path, facts: Facts, where: Search | None = None) -> list[Finding]:
    """What keeps a file from being an ONNX Runtime plugin on this machine. Loads nothing."""
    where = where or search(facts, with_torch=False)
    return _check(path, lambda elf: _plugin(elf, path, facts, where))


def check_torch_library(path: Path, facts: Facts, where: Search | None = None) -> list[Finding]:
    """What keeps a file from being an extension of the installed torch. Loads nothing."""
    where = where or search(facts, with_torch=True)
    return _check(path, lambda elf: _torch_library(elf, path, facts, where))


def try_plugin(path: Path) -> list[Finding]:
    """What ONNX Runtime says of the plugin, in a process of its own."""
    return _tried(path, trial.plugin(path))


def try_torch_library(path: Path) -> list[Finding]:
    """What torch says of the library, in a process of its own."""
    return _tried(path, trial.torch_library(path))


def _tried(path: Path, result: trial.Result) -> list[Finding]:
    if not result.problem:
        return []
    matches = [] if result.killed else explain(result.problem)
    id = matches[0].id if matches else "library-does-not-load"
    return [Finding("library-kills-process" if result.killed else id, str(path), result.problem)]


def _check(path: Path, rest: Callable[[Elf], Iterator[Finding]]) -> list[Finding]:
    if (finding := _file(path)) is not None:
        return [finding]
    try:
        with Elf(path) as elf:
            if elf.architecture != (host := host_architecture()) and host is not None:
                evidence = f"the library is {_named(*elf.architecture)}, Python {_named(*host)}"
                return [Finding("library-wrong-architecture", str(path), evidence)]
            if not elf.is_shared:
                return [Finding("library-not-shared", str(path), "no shared library (ET_DYN)")]
            return list(rest(elf))
    except UNREADABLE as error:
        return [Finding("library-not-elf", str(path), f"{type(error).__name__}: {error}")]


def _file(path: Path) -> Finding | None:
    if not path.exists():
        return Finding("library-missing", str(path), "no such file")
    if not path.is_file():
        return Finding("library-not-elf", str(path), "not a regular file")
    with path.open("rb") as file:
        head = file.read(64)
    size = path.stat().st_size
    if size and not head.startswith(b"\x7fELF"[:size]):
        return Finding("library-not-elf", str(path), f"the file begins with {head[:24]!r}")
    if size < declared_size(head):
        evidence = f"{size} bytes of at least {declared_size(head)}"
        return Finding("library-truncated", str(path), evidence)
    return None


def _plugin(elf: Elf, path: Path, facts: Facts, where: Search) -> Iterator[Finding]:
    subject = str(path)
    if not elf.exports_like(f"^{ENTRY}$"):
        of_torch = [name for name in elf.needed if _OF_TORCH.match(name)]
        mangled = elf.exports_like(_MANGLED)
        if mangled:
            yield Finding("entry-symbol-mangled", subject, f"it exports {mangled[0]}")
        elif elf.holds_like(f"^{ENTRY}$"):
            yield Finding("entry-symbol-hidden", subject, f"{ENTRY} is a local symbol")
        elif of_torch:
            yield Finding("torch-library-for-plugin", subject, f"it needs {', '.join(of_torch)}")
        else:
            yield Finding("entry-symbol-missing", subject, f"{ENTRY} is not among its symbols")
        return
    openmp = [name for name in elf.needed if name.startswith(_OPENMP)]
    if openmp:
        yield Finding("openmp-in-plugin", subject, f"it needs {', '.join(openmp)}")
    yield from _dependencies(elf, subject, facts, where)
    yield from _gpus(elf, subject, facts)


def _torch_library(elf: Elf, path: Path, facts: Facts, where: Search) -> Iterator[Finding]:
    subject = str(path)
    if elf.exports_like(f"^{ENTRY}$") and not any(_OF_TORCH.match(name) for name in elf.needed):
        yield Finding("plugin-for-torch-library", subject, f"it exports {ENTRY}")
        return
    if facts.torch_folder is None:
        return  # the note that torch is missing says it all
    yield from _dependencies(elf, subject, facts, where)
    yield from _gpus(elf, subject, facts)


def _dependencies(elf: Elf, subject: str, facts: Facts, where: Search) -> Iterator[Finding]:
    with closure(elf, where) as (loaded, missing):
        if missing:
            yield Finding("needed-unresolved", subject, f"not found: {_some(missing)}")
        absent = _absent_versions(elf, loaded)
        for other, versions in absent:
            yield _version_finding(other, versions, subject)
        explained = {version for _, versions in absent for version in versions}
        undefined = [
            symbol
            for symbol, version in elf.undefined.items()
            if version not in explained and not any(other.defines(symbol) for other in loaded)
        ]
    # A library that is missing may hold them.
    if not undefined or missing:
        return
    ours = _cxx11_abi(list(elf.undefined))
    if facts.torch_cxx11_abi is not None and ours not in (None, facts.torch_cxx11_abi):
        evidence = f"the library {int(bool(ours))}, torch {int(facts.torch_cxx11_abi)}"
        yield Finding("cxx11-abi-mismatch", subject, f"{evidence}; {_some(undefined)}")
    else:
        yield Finding("undefined-symbol", subject, _some(undefined))


def _absent_versions(elf: Elf, loaded: Iterable[Elf]) -> list[tuple[Elf, list[str]]]:
    """The libraries that are too old, each with the versions of symbols that are wanted of it."""
    wanted = elf.version_needs
    found = []
    for other in loaded:
        has = other.version_definitions
        absent = [version for version in wanted.get(other.path.name, ()) if version not in has]
        if absent and has:
            found.append((other, absent))
    return found


def _version_finding(other: Elf, absent: Sequence[str], subject: str) -> Finding:
    kind = absent[0].partition("_")[0]
    kinds = {
        "GLIBC": "glibc-too-old",
        "GLIBCXX": "libstdcxx-too-old",
        "CXXABI": "libstdcxx-too-old",
    }
    has = [version for version in other.version_definitions if version.startswith(f"{kind}_")]
    newest = max(has, key=_version_key, default="none of these")
    evidence = f"it needs {_some(absent)}; {other.path} has {newest}"
    return Finding(kinds.get(kind, "symbol-version-missing"), subject, evidence)


def _version_key(name: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", name)]


def _cxx11_abi(symbols: Sequence[str]) -> bool | None:
    """_GLIBCXX_USE_CXX11_ABI of a library, from what it wants of torch; None where no string is
    among it."""
    wanted = [name for name in symbols if _TORCH_SYMBOL.search(name)]
    if any("__cxx11" in name for name in wanted):
        return True
    # Ss is the mangled name of the string of the old ABI.
    return False if any(re.search(r"(?<![a-z])[RKPO]*Ss", name) for name in wanted) else None


def _gpus(elf: Elf, subject: str, facts: Facts) -> Iterator[Finding]:
    built = elf.cuda_architectures
    for gpu in facts.driver.gpus if built else ():
        number = "{}{}".format(*gpu.capability)
        evidence = f"{gpu.name} is sm_{number}, the library holds {', '.join(built)}"
        how = _fatbin.runs_on(built, gpu.capability)
        if how == "":
            yield Finding("gpu-architecture-missing", subject, evidence)
        elif how == "jit":
            yield Finding("gpu-architecture-jit", subject, evidence)


def _some(names: Sequence[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _named(machine: str, bits: int, little: bool) -> str:
    order = "" if little else ", big-endian"
    return f"{str(machine).removeprefix('EM_').lower()}, {bits} bit{order}"
