# SPDX-License-Identifier: Apache-2.0
"""Find or fetch a header-only third-party package; print its include folder on stdout.

Order: the folder the user names (--root or the package's variable), system and prefix folders,
the cache, the machine's own package manager, the project's release archive. stdout carries that
one line alone, because a build system reads it; progress goes to stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import functools
import hashlib
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import apt_package

SYSTEM_FOLDERS = (Path("/usr/local/include"), Path("/usr/include"))
RELEASE_SECONDS = 10

SOURCE_ERRORS = (
    apt_package.SourceError,
    subprocess.SubprocessError,
    OSError,
    http.client.HTTPException,
    tarfile.TarError,
)

Unpack = Callable[[Path], Path]


class FetchError(RuntimeError):
    """Ends the script; the text is the whole message for the user."""


@dataclass(frozen=True)
class Package:
    name: str
    header: str  # as it is included, relative to the include folder
    subfolders: tuple[str, ...]  # where packagers put the include folder
    defines: tuple[str, ...]  # the macros that hold the version, most significant first
    lowest: tuple[int, ...]
    highest: tuple[int, ...]
    wanted: str
    variable: str
    apt_name: str
    archive: str  # or empty
    sha256: str

    @property
    def payload(self) -> str:
        """What to copy of a foreign include folder: never the neighbours of a shared one."""
        return self.header.split("/")[0] if "/" in self.header else "."


PACKAGES = {
    package.name: package
    for package in (
        Package(
            name="onnxruntime",
            header="onnxruntime_c_api.h",
            subfolders=("onnxruntime", "onnxruntime/core/session", "."),
            defines=("ORT_API_VERSION",),
            lowest=(21,),
            highest=(99,),
            wanted="ORT_API_VERSION between 21 and 99",
            variable="ONNXRUNTIME_ROOT",
            apt_name="libonnxruntime-dev",
            # The headers do not differ between processors: one archive serves all machines.
            archive="https://github.com/microsoft/onnxruntime/releases/download/v1.21.0/"
            "onnxruntime-linux-x64-1.21.0.tgz",
            sha256="7485c7e7aac6501b27e353dcbe068e45c61ab51fbaf598d13970dfae669d20bf",
        ),
        Package(
            name="doctest",
            header="doctest/doctest.h",
            subfolders=(".",),
            defines=("DOCTEST_VERSION_MAJOR", "DOCTEST_VERSION_MINOR"),
            lowest=(2, 4),
            highest=(99, 99),
            wanted="version 2.4 or newer",
            variable="DOCTEST_ROOT",
            apt_name="doctest-dev",
            archive="https://github.com/doctest/doctest/archive/refs/tags/v2.4.11.tar.gz",
            sha256="632ed2c05a7f53fa961381497bf8069093f0d6628c5f26286161fbd32a560186",
        ),
        Package(
            name="kissfft",
            header="kissfft/kissfft.hh",
            subfolders=(".",),
            defines=(),  # it has none
            lowest=(),
            highest=(),
            wanted="any version",
            variable="KISSFFT_ROOT",
            apt_name="libkissfft-dev",
            archive="",
            sha256="",
        ),
    )
}


def say(text: str) -> None:
    print(f"[fetch_headers] {text}", file=sys.stderr)


def flaw(package: Package, include: Path) -> str:
    """What is wrong with `include` as the package's include folder; empty when it is right."""
    try:
        text = (include / package.header).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return f"no {package.header} in {include}"
    version = []
    for define in package.defines:
        match = re.search(rf"^[ \t]*#[ \t]*define[ \t]+{define}[ \t]+(\d+)", text, re.MULTILINE)
        if not match:
            return f"{include / package.header} without the define {define}"
        version.append(int(match.group(1)))
    if not package.lowest <= tuple(version) <= package.highest:
        found = ", ".join(f"{d} {v}" for d, v in zip(package.defines, version, strict=True))
        return f"{include / package.header} with {found}"
    return ""


def search(package: Package, bases: list[Path]) -> tuple[Path | None, str]:
    """The first right include folder below `bases`, or None and what is wrong with a wrong one."""
    reason = ""
    for base in bases:
        for subfolder in package.subfolders:
            include = base / subfolder
            if (include / package.header).is_file():
                problem = flaw(package, include)
                if not problem:
                    return include, ""
                reason = reason or problem
    return None, reason


def from_user(package: Package, root: str) -> Path:
    base = Path(root).expanduser().absolute()
    include, reason = search(package, [base / "include", base / "usr" / "include", base])
    if include is None:
        raise FetchError(
            f"[fetch_headers] {package.variable} ({base}) should hold {package.header} with "
            f"{package.wanted}. Received {reason or 'no such header'}. Point {package.variable} "
            f"at a folder that holds include/{package.header}, or unset it to look elsewhere."
        )
    return include


def from_system(package: Package) -> Path | None:
    prefixes = [Path(p) for p in os.environ.get("CMAKE_PREFIX_PATH", "").split(os.pathsep) if p]
    bases = [prefix / "include" for prefix in (*prefixes, Path(sys.prefix))]
    include, reason = search(package, [*bases, *SYSTEM_FOLDERS])
    if reason:
        say(f"passed over: {reason}")
    return include


def digests(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def from_cache(package: Package, cache: Path) -> Path | None:
    """The cached include folder, if every file of it is as it was when it was stored."""
    home = cache / package.name
    try:
        manifest = json.loads((home / "manifest.json").read_text(encoding="utf-8"))
        intact = manifest["files"] == digests(home / "include")
    except (OSError, ValueError, KeyError, TypeError):
        intact = False
    if intact and not flaw(package, home / "include"):
        return home / "include"
    if home.exists():
        say(f"the cached copy in {home} is damaged: fetching it again")
    return None


def unpack_release(package: Package, work: Path) -> Path:
    with urllib.request.urlopen(package.archive, timeout=RELEASE_SECONDS) as reply:
        data = reply.read()
    digest = hashlib.sha256(data).hexdigest()
    if digest != package.sha256:
        raise apt_package.SourceError(f"sha256 {digest} instead of {package.sha256}")
    archive = work / "archive.tgz"
    archive.write_bytes(data)
    tree = work / "tree"
    with tarfile.open(archive) as tar:
        # Early releases of Python 3.10 and 3.11 lack the filter.
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        for member in tar:
            if member.isfile() and member.name.endswith(".h"):
                tar.extract(member, tree)
    return next(tree.iterdir())


def attempts(package: Package) -> Iterator[tuple[str, Unpack]]:
    """The sources to fetch from, in order: a label, and what fills an empty working folder."""
    for entries in apt_package.suite_groups():
        suites = " ".join(suite for entry in entries for suite in entry.suites)
        unpack = functools.partial(apt_package.unpack, entries, package.apt_name)
        yield f"apt package {package.apt_name} ({suites})", unpack
    if package.archive:
        yield package.archive, functools.partial(unpack_release, package)


def store(package: Package, include: Path, source: str, work: Path, cache: Path) -> None:
    """Put the headers into the cache in one rename: a reader never sees half a copy."""
    staged = work / "staged"
    target = cache / package.name
    shutil.copytree(include / package.payload, staged / "include" / package.payload)
    manifest = {"source": source, "files": digests(staged / "include")}
    (staged / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    if target.exists():
        target.rename(work / "damaged")
    staged.rename(target)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Two builds configured at once fetch once: the second waits and finds the first's copy."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def fetch(package: Package, cache: Path) -> Path:
    reasons = []
    for source, unpack in attempts(package):
        say(f"{package.name}: trying {source}")
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=cache) as folder:
            work = Path(folder)
            try:
                tree = unpack(work)
                include, reason = search(package, [tree / "include", tree / "usr/include", tree])
                if include is not None:
                    store(package, include, source, work, cache)
                    return cache / package.name / "include"
                reason = reason.replace(f"{work}/", "") or f"no {package.header} in it"
            except SOURCE_ERRORS as error:
                reason = str(error)
            reasons.append(f"{source}: {reason}")
    raise FetchError(
        f"[fetch_headers] {package.header} with {package.wanted} should be on this machine or "
        f"within reach. Received no such header ({'; '.join(reasons) or 'no source to try'}). "
        f"Set {package.variable} to a folder that holds it."
    )


def resolve(package: Package, root: str, cache: Path) -> Path:
    root = root or os.environ.get(package.variable, "")
    if root:
        return from_user(package, root)
    include = from_system(package) or from_cache(package, cache)
    if include is None:
        try:
            cache.mkdir(parents=True, exist_ok=True)
            with locked(cache / f"{package.name}.lock"):
                include = from_cache(package, cache) or fetch(package, cache)
        except OSError as error:
            raise FetchError(
                f"[fetch_headers] the cache folder {cache} should be writable. Received {error}. "
                f"Name another with --cache or MYOPS_HEADER_CACHE, or set {package.variable}."
            ) from error
    return include


def default_cache() -> Path:
    named = os.environ.get("MYOPS_HEADER_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(named) if named else Path(base) / "myops" / "headers"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("package", choices=sorted(PACKAGES))
    parser.add_argument("--root", default="", help="a folder that holds the package's headers")
    parser.add_argument("--cache", type=Path, help="the folder that keeps fetched headers")
    options = parser.parse_args(arguments)
    cache = (options.cache or default_cache()).expanduser().absolute()
    try:
        print(resolve(PACKAGES[options.package], options.root, cache))
    except FetchError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
