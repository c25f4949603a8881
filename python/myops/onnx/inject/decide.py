# SPDX-License-Identifier: Apache-2.0
"""Gives every candidate its target, or the reason why it has none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from myops.onnx.inject import measure, rules
from myops.onnx.inject.candidates import CUSTOM, TARGETS, Candidate
from myops.onnx.inject.options import Options

_CAST_LIKE_SINCE = 15


def one_type_per_function(candidates: Sequence[Candidate], opset: int) -> None:
    """Refuses our nodes where a function would have to serve two element types at an opset that
    cannot: all but the most frequent."""
    if opset >= _CAST_LIKE_SINCE:
        return
    counts: dict[str, Counter[int]] = {}
    able = [c for c in candidates if not c.why_not(CUSTOM)]
    for candidate in able:
        kinds = counts.setdefault(candidate.spec.name, Counter())
        kinds[candidate.site(CUSTOM).element_type] += 1
    for candidate in able:
        kept = counts[candidate.spec.name].most_common(1)[0][0]
        if candidate.site(CUSTOM).element_type != kept:
            candidate.refused_for[CUSTOM] = (
                f"one function for several element types needs opset {_CAST_LIKE_SINCE}"
            )


def leave(candidates: Sequence[Candidate], reason: str) -> None:
    """Leaves all alone."""
    for candidate in candidates:
        candidate.choice, candidate.reason = "", candidate.refused or reason


def force(candidates: Sequence[Candidate], target: str) -> None:
    """One target for all that can have it."""
    for candidate in candidates:
        candidate.reason = candidate.why_not(target)
        candidate.choice = "" if candidate.reason else target


def by_rules(candidates: Sequence[Candidate], version: tuple[int, int]) -> None:
    """What ``rules.TABLE`` says, as far as it is possible."""
    for candidate in candidates:
        target, why = rules.by_rule(candidate, version)
        reason = candidate.why_not(target) if target else why
        candidate.reason = candidate.refused or reason
        candidate.choice = "" if candidate.reason else target


def _options_by_group(candidates: Sequence[Candidate]) -> dict[str, list[str]]:
    """Group -> targets that a member can have, the group with most places first."""
    groups: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        if not candidate.refused:
            groups.setdefault(candidate.group, []).append(candidate)
    found = {}
    for group, members in sorted(groups.items(), key=lambda item: -len(item[1])):
        allowed = [t for t in TARGETS if any(not c.why_not(t) for c in members)]
        if allowed:
            found[group] = allowed
    return found


def _choose(candidates: Sequence[Candidate], choices: measure.Choices) -> None:
    for candidate in candidates:
        target = choices.get(candidate.group, "")
        candidate.choice = target if target and not candidate.why_not(target) else ""


def _figures(candidate: Candidate, trials: Sequence[measure.Trial]) -> str:
    """What was measured about a candidate's group."""
    for stage in (candidate.group, measure.ALIKE):
        of_stage = [t for t in trials if t.stage == stage and t.name != measure.AGAIN]
        if of_stage:
            return ", ".join(f"{t.name} {t.ratio:.3f}" for t in of_stage)
    return "not measured alone"


def by_measuring(
    candidates: Sequence[Candidate],
    options: Options,
    plugin: str | bool | None,
    feeds: Mapping[str, Any],
    write: Callable[[str], Path],
) -> list[measure.Trial]:
    """What is fastest here.

    Args:
        candidates: whose choices are set.
        options: of the user.
        plugin: as for ``session``.
        feeds: inputs of the model.
        write: writes the model with the present choices under a name.

    Returns:
        All that was measured.
    """
    written: list[Path] = []

    def build(choices: measure.Choices) -> Path:
        _choose(candidates, choices)
        written.append(write(f"trial_{len(written)}.onnx"))
        return written[-1]

    contest = measure.Contest(
        build, feeds, options.threads, plugin, options.on_step, options.seconds
    )
    choices, final = measure.decide(contest, _options_by_group(candidates))
    _choose(candidates, choices)
    for candidate in candidates:
        candidate.reason = ""
        if candidate.choice:
            continue
        if candidate.refused or all(candidate.why_not(target) for target in TARGETS):
            candidate.reason = candidate.why_not(CUSTOM)
        elif final is not None and not any(choices.values()):
            candidate.reason = (
                f"it is no faster here: ratio {final.ratio:.3f} of the whole model, noise "
                f"{max(final.noise, measure.LEAST_GAIN):.3f}"
            )
        else:
            candidate.reason = f"it is slower here: {_figures(candidate, contest.trials)}"
    return contest.trials
