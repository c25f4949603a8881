# SPDX-License-Identifier: Apache-2.0
"""Unpack one package of the machine's own apt mirror into a folder, without installing it.

Everything apt would write (lists, cache, state) is redirected into a working folder, so it runs
without root and leaves the system as it was. The mirror, the proxy settings and the key ring are
the machine's own: apt verifies the signatures as it does for any other package.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

APT_DIR = Path("/etc/apt")

# The first Debian release whose packages are new enough for every header this project needs.
FALLBACK_SUITE = "trixie"

COMMAND_SECONDS = 300

# `#clear` drops the hooks of the machine's configuration: they act on the system's own apt folders.
CONFIG = """\
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
APT::Default-Release "";
Dir::Etc::sourcelist "{work}/mirror.sources";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State "{work}/state/";
Dir::State::lists "{work}/lists/";
Dir::State::status "{work}/status";
Dir::Cache "{work}/cache/";
Acquire::Languages "none";
Acquire::Retries "1";
Acquire::http::Timeout "10";
Acquire::https::Timeout "10";
"""

ONE_LINE_ENTRY = re.compile(r"deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s+([^#]+)")


class SourceError(RuntimeError):
    """This source cannot provide the package; the text says why."""


@dataclass(frozen=True)
class Entry:
    """One binary-package entry of the apt sources."""

    uris: tuple[str, ...]
    suites: tuple[str, ...]
    components: tuple[str, ...]
    signed_by: str  # verbatim: a path, fingerprints, or an inline key over several lines

    def stanza(self) -> str:
        lines = [
            "Types: deb",
            f"URIs: {' '.join(self.uris)}",
            f"Suites: {' '.join(self.suites)}",
            f"Components: {' '.join(self.components)}",
            "Targets: Packages",
        ]
        if self.signed_by:
            lines.append(f"Signed-By: {self.signed_by}")
        return "\n".join(lines) + "\n"


def parse_one_line(text: str) -> list[Entry]:
    """Entries of the `deb [options] uri suite components` format."""
    entries = []
    for line in text.splitlines():
        match = ONE_LINE_ENTRY.match(line.strip())
        if match:
            options, uri, suite, components = match.groups()
            key = re.search(r"signed-by=(\S+)", options or "", re.IGNORECASE)
            signed_by = key.group(1) if key else ""
            entries.append(Entry((uri,), (suite,), tuple(components.split()), signed_by))
    return entries


def parse_deb822(text: str) -> list[Entry]:
    """Entries of the `Field: value` format, one stanza each."""
    text = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    entries = []
    for stanza in re.split(r"\n[ \t]*\n", text):
        fields: dict[str, str] = {}
        name = ""
        for line in stanza.splitlines():
            if line[:1].isspace():
                fields[name] = f"{fields.get(name, '')}\n{line}"
            elif ":" in line:
                name, _, value = line.partition(":")
                name = name.strip().lower()
                fields[name] = value.strip()
        if "deb" in fields.get("types", "").split() and fields.get("enabled", "yes") != "no":
            uris, suites, components = (
                tuple(fields.get(key, "").split()) for key in ("uris", "suites", "components")
            )
            entries.append(Entry(uris, suites, components, fields.get("signed-by", "")))
    return entries


def machine_entries() -> list[Entry]:
    """Every entry of this machine, the distribution's own files first."""
    own = {"debian.sources", "ubuntu.sources", "debian.list", "ubuntu.list"}
    parts = sorted(
        (APT_DIR / "sources.list.d").glob("*.*"), key=lambda path: (path.name not in own, path.name)
    )
    entries: list[Entry] = []
    for path in (APT_DIR / "sources.list", *parts):
        if path.suffix in (".list", ".sources") and os.access(path, os.R_OK):
            text = path.read_text(encoding="utf-8", errors="replace")
            entries += parse_deb822(text) if path.suffix == ".sources" else parse_one_line(text)
    return entries


def suite_groups() -> list[list[Entry]]:
    """The groups of entries to try, in order; empty where apt or its sources are missing."""
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        return []
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return []
    suites = {release.get("VERSION_CODENAME"), "stable", "testing", "unstable", "sid"}
    entries = machine_entries()
    main = next((e for e in entries if "main" in e.components and suites & {*e.suites}), None)
    if main is None:
        return []
    groups = [[entry for entry in entries if entry.uris == main.uris]]
    # A Debian suite on another distribution would mix two archives behind one key ring.
    if release.get("ID") == "debian" and not any(FALLBACK_SUITE in e.suites for e in groups[0]):
        groups.append([Entry(main.uris, (FALLBACK_SUITE,), ("main",), main.signed_by)])
    return groups


def run(command: list[str], folder: Path) -> str:
    """Run `command` and return its stderr."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if line.startswith("E:")]
        reason = (errors or done.stderr.strip().splitlines() or ["no output"])[0]
        name = command[0]
        raise SourceError(
            f"{name} ended with code {done.returncode} ({reason.removeprefix('E: ')})"
        )
    return done.stderr


def unpack(entries: list[Entry], package: str, work: Path) -> Path:
    """Download `package` from `entries` and return the folder that it was unpacked into."""
    work = work.absolute()
    tree = work / "tree"
    for folder in (tree, work / "state", work / "lists", work / "cache"):
        folder.mkdir()
    (work / "status").touch()
    stanzas = "\n".join(entry.stanza() for entry in entries)
    (work / "mirror.sources").write_text(stanzas, encoding="utf-8")
    config = work / "apt.conf"
    config.write_text(CONFIG.format(work=work), encoding="utf-8")
    apt_get = ["apt-get", "-c", str(config), "-qq"]
    # update succeeds without a network; only its warning tells why download finds no package.
    lines = run([*apt_get, "update"], work).splitlines()
    warning = next((line[3:] for line in lines if line.startswith("W: Failed to fetch")), "")
    try:
        run([*apt_get, "download", package], work)
    except SourceError as error:
        raise SourceError(f"{error}; {warning}" if warning else str(error)) from error
    archive = next(work.glob("*.deb"), None)
    if archive is None:
        raise SourceError("apt-get download left no package file")
    run(["dpkg", "-x", str(archive), str(tree)], work)
    return tree
