# SPDX-License-Identifier: Apache-2.0
"""Reads ELF files and finds the libraries they need, as the loader would, without loading them."""

from __future__ import annotations

import contextlib
import functools
import glob
import os
import re
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from myops import _fatbin

UNREADABLE = (
    *(ELFError, OSError, struct.error, AssertionError, ArithmeticError, MemoryError),
    *(ValueError, LookupError, TypeError, AttributeError),
)
"""What pyelftools raises on files that are damaged in one way or another."""

_SYSTEM_FOLDERS = ("/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib")


class Elf:
    """An ELF file: what the loader looks at. Use as a context manager.

    Raises:
        one of UNREADABLE: the file is missing or damaged, then or at a later access.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("rb")
        try:
            self._elf = ELFFile(self._file)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Elf:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def architecture(self) -> tuple[str, int, bool]:
        """Machine, word size in bits, little-endian."""
        return self._elf["e_machine"], self._elf.elfclass, self._elf.little_endian

    def _section(self, name: str) -> Any:
        return self._elf.get_section_by_name(name)

    @property
    def is_shared(self) -> bool:
        return self._elf["e_type"] == "ET_DYN" and self._section(".dynamic") is not None

    @functools.cached_property
    def _dynamic(self) -> list[Any]:
        section = self._section(".dynamic")
        return [] if section is None else list(section.iter_tags())

    def _tags(self, kind: str) -> list[str]:
        return [getattr(tag, kind[3:].lower()) for tag in self._dynamic if tag.entry.d_tag == kind]

    @property
    def needed(self) -> list[str]:
        """Names of the libraries it is linked with."""
        return self._tags("DT_NEEDED")

    @property
    def run_path(self) -> list[str]:
        """Folders of DT_RUNPATH, or else DT_RPATH, with $ORIGIN replaced."""
        texts = self._tags("DT_RUNPATH") or self._tags("DT_RPATH")
        origin = str(self.path.resolve().parent)
        folders = [folder for text in texts for folder in text.split(":") if folder]
        return [re.sub(r"\$\{?ORIGIN\}?", lambda _: origin, folder) for folder in folders]

    @property
    def inherited_path(self) -> list[str]:
        """Folders that an executable hands down to all it loads: DT_RPATH, unless DT_RUNPATH is
        there."""
        return [] if self._tags("DT_RUNPATH") else self.run_path

    @functools.cached_property
    def _needs(self) -> list[tuple[str, dict[int, str]]]:
        section = self._section(".gnu.version_r")
        found: list[tuple[str, dict[int, str]]] = []
        # A damaged table may link in a circle; an intact one has an entry per 16 bytes.
        left = self.path.stat().st_size // 16
        for need, versions in () if section is None else section.iter_versions():
            found.append((need.name, {}))
            for version in versions:
                found[-1][1][version["vna_other"]] = version.name
                if (left := left - 1) < 0:
                    raise ValueError("the table of versions has no end")
            if (left := left - 1) < 0:
                raise ValueError("the table of versions has no end")
        return found

    @property
    def version_needs(self) -> dict[str, list[str]]:
        """Versions of symbols it wants, by library."""
        return {name: list(versions.values()) for name, versions in self._needs}

    @functools.cached_property
    def version_definitions(self) -> list[str]:
        """Versions of symbols it has."""
        section = self._section(".gnu.version_d")
        if section is None:
            return []
        return [next(names).name for _, names in section.iter_versions()]

    @functools.cached_property
    def undefined(self) -> dict[str, str]:
        """Symbols it wants from others, with their version or "". Weak ones may stay absent and
        are left out."""
        versions = {index: name for _, group in self._needs for index, name in group.items()}
        table = self._section(".gnu.version")
        return {
            symbol.name: "" if table is None else versions.get(table.get_symbol(i)["ndx"], "")
            for i, symbol in self._symbols(".dynsym")
            if symbol["st_shndx"] == "SHN_UNDEF"
        }

    def exports_like(self, pattern: str) -> list[str]:
        """Exported symbols that match."""
        return self._defined(".dynsym", pattern)

    def holds_like(self, pattern: str) -> list[str]:
        """Symbols that match, exported or not, where the file is not stripped."""
        return self._defined(".symtab", pattern)

    def _defined(self, table: str, pattern: str) -> list[str]:
        wanted = re.compile(pattern)
        names = (s.name for _, s in self._symbols(table) if s["st_shndx"] != "SHN_UNDEF")
        return [name for name in names if wanted.search(name)]

    def _symbols(self, table: str) -> Iterator[tuple[int, Any]]:
        section = self._section(table)
        for index, symbol in enumerate(() if section is None else section.iter_symbols()):
            if symbol.name and symbol["st_info"]["bind"] != "STB_WEAK":
                yield index, symbol

    @functools.cached_property
    def _hash(self) -> Any:
        return self._section(".gnu.hash") or self._section(".hash")

    def defines(self, symbol: str) -> bool:
        """Whether it exports this symbol. Fast in libraries of any size."""
        if self._hash is None:
            return False
        found = self._hash.get_symbol(symbol)
        return found is not None and found["st_shndx"] != "SHN_UNDEF"

    @functools.cached_property
    def mentions_cxx11(self) -> bool:
        """Whether an exported name is of the C++11 ABI of std::string."""
        section = self._section(".dynstr")
        return section is not None and b"__cxx11" in section.data()

    @functools.cached_property
    def cuda_architectures(self) -> list[str]:
        return _fatbin.of_elf(self._elf)


def declared_size(head: bytes) -> int:
    """The least size of an ELF file whose first 64 bytes these are; 64 where they are fewer."""
    if len(head) < 64 or head[4] not in (1, 2) or head[5] not in (1, 2):
        return 64
    order = "<" if head[5] == 1 else ">"
    if head[4] == 2:
        offset, entry, count = struct.unpack_from(order + "40xQ10xHH", head)
    else:
        offset, entry, count = struct.unpack_from(order + "32xI10xHH", head)
    return int(offset + entry * count)


@dataclass(frozen=True)
class Search:
    """Where the loader looks.

    Attributes:
        first: folders whose libraries the process has already loaded (torch's own).
        variable: folders of the executable and of LD_LIBRARY_PATH.
        system: folders of the system.
    """

    first: Sequence[str] = ()
    variable: Sequence[str] = ()
    system: Sequence[str] = ()

    def find(self, name: str, requester: Elf) -> Path | None:
        """The file that serves ``name`` to ``requester``; None if there is none."""
        if "/" in name:
            return Path(name) if Path(name).is_file() else None
        for folder in (*self.first, *self.variable, *requester.run_path, *self.system):
            path = Path(folder) / name
            if path.is_file() and _same_architecture(path, requester):
                return path
        return None


def _same_architecture(path: Path, requester: Elf) -> bool:
    try:
        with Elf(path) as elf:
            return elf.architecture == requester.architecture
    except UNREADABLE:
        return False


@functools.cache
def host_architecture() -> tuple[str, int, bool] | None:
    """That of this Python, which is to load the library."""
    with contextlib.suppress(*UNREADABLE), Elf(Path(sys.executable).resolve()) as elf:
        return elf.architecture
    return None


def inherited_folders() -> list[str]:
    """Folders of this Python's executable; conda's libraries are found that way."""
    with contextlib.suppress(*UNREADABLE), Elf(Path(sys.executable).resolve()) as elf:
        return elf.inherited_path
    return []


def system_folders(root: str = "/etc/ld.so.conf") -> list[str]:
    """The loader's folders: those of ld.so.conf, then the built-in ones."""
    found = _configured(Path(root))
    triplet = getattr(sys.implementation, "_multiarch", "")
    if triplet:
        found += [f"/lib/{triplet}", f"/usr/lib/{triplet}"]
    return list(dict.fromkeys([*found, *_SYSTEM_FOLDERS]))


def _configured(file: Path) -> list[str]:
    found: list[str] = []
    with contextlib.suppress(OSError):
        for line in file.read_text().splitlines():
            text = line.partition("#")[0].strip()
            if text.startswith("include "):
                pattern = os.path.join(file.parent, text.removeprefix("include ").strip())  # noqa: PTH118
                for inner in sorted(glob.glob(pattern)):  # noqa: PTH207
                    found += _configured(Path(inner))
            elif text:
                found.append(text)
    return found


@contextlib.contextmanager
def closure(library: Elf, search: Search) -> Iterator[tuple[list[Elf], list[str]]]:
    """The libraries that are loaded with ``library``, and the names it needs that are not found."""
    with contextlib.ExitStack() as stack:
        loaded: dict[str, Elf] = {}
        waiting = [(name, library) for name in library.needed]
        missing: list[str] = []
        while waiting:
            name, requester = waiting.pop(0)
            if name in loaded or name in missing:
                continue
            path = search.find(name, requester)
            if path is None:
                # What torch's libraries need, torch finds by ways of its own.
                if requester is library or str(requester.path.parent) not in search.first:
                    missing.append(name)
                continue
            try:
                loaded[name] = stack.enter_context(Elf(path))
            except UNREADABLE:
                missing.append(name)
                continue
            waiting += [(inner, loaded[name]) for inner in loaded[name].needed]
        yield list(loaded.values()), missing
