# SPDX-License-Identifier: Apache-2.0
"""Where a bundle is written: beside its place first, in its place when it is whole."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from myops._errors import UsageError
from myops.pack.manifest import MANIFEST

WHERE = "myops.pack"

_CACHE = "__pycache__"


def _own_files(folder: Path) -> set[str] | None:
    """The files a bundle's manifest names, itself included; None if the folder is no bundle."""
    try:
        about = json.loads((folder / MANIFEST).read_bytes())
        return {MANIFEST, *(str(file["path"]) for file in about["files"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def check_free(target: Path) -> None:
    """Refuses a place that holds anything but a bundle.

    Raises:
        UsageError: it does.
    """
    rule = "the output should be a new folder, an empty one, or a bundle to replace"
    remedy = "Choose another folder, or remove it"
    if not target.exists() and not target.is_symlink():
        return
    if target.is_symlink() or not target.is_dir():
        raise UsageError(WHERE, rule, f"{target}, which is not a folder", remedy)
    if not any(target.iterdir()):
        return
    own = _own_files(target)
    if own is None:
        raise UsageError(WHERE, rule, f"{target}, which holds other files", remedy)
    found = {
        path.relative_to(target).as_posix()
        for path in target.rglob("*")
        if not path.is_dir() and _CACHE not in path.parts
    }
    if found - own:
        names = ", ".join(sorted(found - own)[:3])
        raise UsageError(WHERE, rule, f"a bundle with other files in it ({names})", remedy)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextlib.contextmanager
def staged_folder(target: Path) -> Iterator[Path]:
    """A temporary folder beside ``target``, which takes its place when the block ends without an
    error. A bundle that is there is replaced, and put back if that fails.

    Raises:
        UsageError: ``target`` holds anything else.
    """
    check_free(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise UsageError(
            WHERE, "the output's parent should be a folder to write into", str(error), "Choose one"
        ) from error
    with temporary as name:
        made, old = Path(name, "new"), Path(name, "old")
        made.mkdir(mode=0o777 & ~_umask())
        yield made
        check_free(target)  # the work may have taken a while
        if target.exists():
            target.rename(old)
        try:
            made.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise


def copy(source: Path, target: Path) -> None:
    """Copies contents, without the permissions and times of the source. Symbolic links are
    followed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
