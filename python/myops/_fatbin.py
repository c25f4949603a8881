# SPDX-License-Identifier: Apache-2.0
"""Which CUDA architectures a library holds kernels for, read from the file, without CUDA.

nvcc puts fat binaries into the section ``.nv_fatbin``, one per translation unit and one of the
device linker, each a header and a row of entries. The layout is not documented; it was found by
compiling for known architectures (nvcc 13.0), and a test repeats that. The headers of the entries
are plain even where their payload is compressed.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_SECTION = ".nv_fatbin"
_MAGIC = 0xBA55ED50
_FATBIN = struct.Struct("<IHHQ")  # magic, version, size of this header, size of the entries
_ENTRY = struct.Struct("<HHIQ12xI8xI")  # kind, version, header size, payload size, sm, flags
_PTX, _CUBIN = 1, 2
_ARCHITECTURE_SPECIFIC, _FAMILY_SPECIFIC = 0x100000, 0x200000


def _entries(data: bytes) -> Iterator[str]:
    offset = 0
    while offset + _FATBIN.size <= len(data):
        magic, _, header, size = _FATBIN.unpack_from(data, offset)
        if magic != _MAGIC or header < _FATBIN.size:
            offset += 8  # padding: fat binaries are aligned to 8 bytes
            continue
        entry, end = offset + header, min(offset + header + size, len(data))
        while entry + _ENTRY.size <= end:
            kind, _, entry_header, payload, number, flags = _ENTRY.unpack_from(data, entry)
            if entry_header < _ENTRY.size:
                break
            if kind in (_PTX, _CUBIN):
                suffix = "a" if flags & _ARCHITECTURE_SPECIFIC else ""
                suffix = "f" if flags & _FAMILY_SPECIFIC else suffix
                yield f"{'sm' if kind == _CUBIN else 'compute'}_{number}{suffix}"
            entry += entry_header + payload
        offset = end if end > offset else offset + 8


def _order(name: str) -> tuple[bool, int, str]:
    kind, _, rest = name.partition("_")
    number = rest.rstrip("af")
    return kind != "sm", int(number), rest[len(number) :]


def of_elf(elf: Any) -> list[str]:
    """As ``architectures``, of an open ``elftools.elf.elffile.ELFFile``."""
    section = elf.get_section_by_name(_SECTION)
    return [] if section is None else sorted(set(_entries(section.data())), key=_order)


def architectures(path: str | os.PathLike[str]) -> list[str]:
    """The CUDA architectures a library is built for.

    Args:
        path: an ELF file.

    Returns:
        Like ``["sm_80", "sm_90a", "compute_90"]``: machine code first, then PTX, by number; empty
        where the file holds no CUDA kernels. ``a`` runs on that architecture only, ``f`` on its
        family.

    Raises:
        OSError: the file cannot be read.
        elftools.common.exceptions.ELFError: it is not an ELF file.
    """
    from elftools.elf.elffile import ELFFile

    with Path(path).open("rb") as file:
        return of_elf(ELFFile(file))


def runs_on(names: list[str], capability: tuple[int, int]) -> str:
    """How kernels for these architectures run on a GPU of this compute capability.

    Returns:
        "native" where there is machine code for it, "jit" where the driver can compile PTX for
        it, "" where it cannot run. Source: CUDA C++ Programming Guide, "Binary Compatibility",
        "PTX Compatibility" and "Feature sets".
    """
    found = set()
    for name in names:
        kind, _, rest = name.partition("_")
        number = int(rest.rstrip("af"))
        built = divmod(number, 10)
        same_family = built[0] == capability[0] and built[1] <= capability[1]
        if rest.endswith("a"):
            runs = built == capability
        elif kind == "sm" or rest.endswith("f"):
            runs = same_family
        else:
            runs = built <= capability
        if runs:
            found.add("native" if kind == "sm" else "jit")
    return "native" if "native" in found else "jit" if found else ""
