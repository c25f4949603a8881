# SPDX-License-Identifier: Apache-2.0
"""The file golden results travel in: an .npz that notices any changed or missing byte.

It is an ordinary .npz (``numpy.load`` reads it). The archive's comment, its last bytes, holds the
SHA-256 of all bytes before that number.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from myops._errors import ModelError, UsageError

WHERE = "myops.golden"
FORMAT = 1

_MARK = b"myops golden sha256 "
_DIGITS = 64
_META = "meta.json"

Arrays = Mapping[str, npt.NDArray[Any]]


def sha256(path: Path) -> str:
    """Of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def write(path: Path, meta: Mapping[str, Any], arrays: Arrays) -> None:
    """Writes the file beside its place, reads it back, and moves it there."""
    # The name ends in .npz, so that numpy appends nothing.
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.npz")
    text = json.dumps({"format": FORMAT, **meta}, indent=1).encode()
    try:
        stored: dict[str, Any] = {_META: np.frombuffer(text, np.uint8), **arrays}
        np.savez_compressed(temporary, **stored)
        with zipfile.ZipFile(temporary, "a") as archive:
            archive.comment = _MARK + b"0" * _DIGITS
        content = temporary.read_bytes()
        number = hashlib.sha256(content[:-_DIGITS]).hexdigest().encode()
        with temporary.open("r+b") as file:
            file.seek(-_DIGITS, os.SEEK_END)
            file.write(number)
        read(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read(path: Path) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """What was written, as a pair of the description and the arrays.

    Raises:
        UsageError: there is no such file.
        ModelError: the file is damaged, or none of ours.
    """
    if not path.is_file():
        raise UsageError(WHERE, "the golden file should exist", str(path), "Check the path")
    content = path.read_bytes()
    mark = content[-_DIGITS - len(_MARK) : -_DIGITS]
    number = hashlib.sha256(content[:-_DIGITS]).hexdigest().encode()
    if mark != _MARK or content[-_DIGITS:] != number:
        ours = _MARK[:-1] in content[-4 * _DIGITS :]
        found = "whose checksum is another" if ours else "without the checksum at its end"
        raise ModelError(
            WHERE,
            "the golden file should be as 'myops golden make' wrote it",
            f"{path}, {len(content)} bytes, {found}: the golden file was damaged or cut off in "
            "transfer, or is not one",
            "Copy the golden file again",
        )
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        arrays = dict(archive.items())
    meta = json.loads(arrays.pop(_META).tobytes())
    if meta["format"] != FORMAT:
        raise ModelError(
            WHERE,
            f"the golden file should be of format {FORMAT}",
            f"{path} of format {meta['format']}",
            "Make it again with this version of myops, or install the one that wrote it",
        )
    return meta, arrays
