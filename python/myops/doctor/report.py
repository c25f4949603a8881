# SPDX-License-Identifier: Apache-2.0
"""Examines what it is given and says what it found."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from myops import _library, registry
from myops._errors import MyopsError
from myops.doctor import environment, models, probe
from myops.doctor.environment import Facts, Wanted
from myops.doctor.explain import explain
from myops.doctor.findings import Finding

_TORCH_SAYS = "load this library"

_NAMES = (
    rf"{_TORCH_SAYS}: (\S+)",
    r"load library (\S+) with error",
    r"\(required by ([^\s)]+)\)",
    r"(?<!\S)(\S+): (?:undefined symbol|invalid ELF|file too short|wrong ELF)",
)

_SEVERITIES = ("error", "warning", "note")


@dataclass(frozen=True)
class Report:
    """Findings, worst first, and the facts they rest on."""

    findings: list[Finding]
    facts: Facts

    @property
    def ok(self) -> bool:
        """Whether there is nothing but notes."""
        return not any(finding.counts for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "findings": [finding.to_dict() for finding in self.findings],
            "facts": asdict(self.facts),
        }


@dataclass(frozen=True)
class Explanation:
    """A cause that an error text may have.

    Attributes:
        id: of the catalogue.
        excerpt: the part of the text that says so.
        status: "confirmed": an examination found just this; "ruled out": it looked and did not;
            "possible": nothing was there to be examined.
        finding: what the examination found.
    """

    id: str
    excerpt: str
    status: str
    finding: Finding


def examine(
    model: Path | None = None,
    library: Path | None = None,
    torch_library: Path | None = None,
    wanted: Wanted | None = None,
    load: bool = True,
    facts: Facts | None = None,
) -> Report:
    """Examines the environment, the two libraries, the plugins of other packages, and a model.

    Args:
        model: an .onnx file; none if None.
        library: the plugin; the installed one if None.
        torch_library: the torch library; the installed one if None.
        wanted: execution providers and threads.
        load: whether to load libraries and the model for trial, in processes of their own.
        facts: of the machine; gathered if None.
    """
    facts = facts or probe.gather()
    wanted = wanted or Wanted()
    found = list(environment.check(facts, wanted))
    plugin, of_plugin = _installed(library, _library.ort_library)
    torch_path, of_torch = _installed(torch_library, _library.torch_library)
    if facts.packages.get("pyelftools") is None:
        found.append(Finding("package-missing", "pyelftools", "libraries are not read"))
    if plugin is not None:
        of_plugin += _plugin(plugin, facts, load)
    if torch_path is not None:
        of_torch += _torch_library(torch_path, facts, load)
    of_others, others = _of_others(facts, load)
    found += of_plugin + of_torch + of_others
    if model is not None:
        usable = plugin if plugin is not None and not _broken(of_plugin) else None
        found += models.check(model, facts, wanted, usable, load, others)
    found.sort(key=lambda finding: _SEVERITIES.index(finding.entry.severity))
    return Report(found, facts)


def _of_others(facts: Facts, load: bool) -> tuple[list[Finding], list[Path]]:
    """What is wrong with the plugins of other packages, and those that can be used."""
    found, usable = [], []
    for path in registry.plugins():
        of_path = _plugin(path, facts, load)
        found += of_path
        usable += [] if _broken(of_path) else [path]
    return found, usable


def _installed(given: Path | None, find: Callable[[], Path]) -> tuple[Path | None, list[Finding]]:
    if given is not None:
        return given, []
    try:
        return find(), []
    except MyopsError as error:
        return None, [Finding("library-not-built", "myops", str(error))]


def _plugin(path: Path, facts: Facts, load: bool) -> list[Finding]:
    if not path.is_file() or facts.packages.get("pyelftools") is None:
        return [] if path.is_file() else [Finding("library-missing", str(path), "no such file")]
    from myops.doctor import libraries

    found = libraries.check_plugin(path, facts)
    if load and facts.ort_packages and not facts.ort_problem and not _broken(found):
        found += libraries.try_plugin(path)
    return found


def _torch_library(path: Path, facts: Facts, load: bool) -> list[Finding]:
    if facts.packages.get("pyelftools") is None:
        return []
    from myops.doctor import libraries

    found = libraries.check_torch_library(path, facts)
    if load and facts.torch_folder and not _broken(found):
        found += libraries.try_torch_library(path)
    return found


def _broken(findings: Sequence[Finding]) -> bool:
    return any(finding.entry.severity == "error" for finding in findings)


def explain_with(
    text: str,
    model: Path | None = None,
    library: Path | None = None,
    wanted: Wanted | None = None,
    facts: Facts | None = None,
) -> list[Explanation]:
    """The causes an error text may have: those that an examination confirms first, those that it
    rules out last.

    Args:
        text: what was printed.
        model: the model it is about; none if None.
        library: the library it is about; the one the text names, where it is on this machine, if
            None.
        wanted, facts: as in ``examine``.
    """
    matches = explain(text)
    library = library or _named_library(text)
    if not matches or (model is None and library is None):
        return [_explanation(m.id, m.excerpt, "possible", None) for m in matches]
    facts, wanted = facts or probe.gather(), wanted or Wanted()
    found = []
    if library is not None:
        check_library = _torch_library if _TORCH_SAYS in text else _plugin
        found += check_library(library, facts, load=True)
    usable = None if _broken(found) else library or _installed(None, _library.ort_library)[0]
    if model is not None:
        found += models.check(model, facts, wanted, usable, others=tuple(registry.plugins()))
    seen = {finding.id: finding for finding in found}
    looked_at = {"model"} if model is not None and facts.packages.get("onnx") else set()
    if library is not None and facts.packages.get("pyelftools") is not None:
        readable = facts.torch_folder is not None or _TORCH_SAYS not in text
        looked_at |= {"library"} if readable else set()
    result = []
    for match in matches:
        status = "ruled out" if match.entry.area in looked_at else "possible"
        status = "confirmed" if match.id in seen else status
        result.append(_explanation(match.id, match.excerpt, status, seen.get(match.id)))
    order = ("confirmed", "possible", "ruled out")
    return sorted(result, key=lambda explanation: order.index(explanation.status))


def _explanation(id: str, excerpt: str, status: str, finding: Finding | None) -> Explanation:
    return Explanation(id, excerpt, status, finding or Finding(id, "", excerpt))


def _named_library(text: str) -> Path | None:
    """The library that did not load, by the words of the loader, ONNX Runtime and torch."""
    for pattern in _NAMES:
        for name in re.findall(pattern, text):
            with contextlib.suppress(OSError):
                if Path(name).is_file():
                    return Path(name)
    return None
