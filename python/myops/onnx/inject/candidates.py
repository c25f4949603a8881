# SPDX-License-Identifier: Apache-2.0
"""The places of a model where one of the operators is computed, and whether they may be replaced.

Longer matches come first: SwiGLU before the Swish in it. Of one place several patterns can match,
so a place that is refused for one operator may still serve another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from onnx import NodeProto

from myops.onnx.inject import safety
from myops.onnx.inject.graph import Scope, label
from myops.onnx.inject.match import Match
from myops.onnx.inject.matcher import Matcher
from myops.onnx.inject.patterns import Pattern, patterns
from myops.spec import SPECS, OpSpec

CUSTOM = "custom"
NATIVE = "native"
TARGETS = (CUSTOM, NATIVE)


@dataclass
class Candidate:
    """A place.

    Attributes:
        spec: the operator it computes.
        scope: where it stands.
        match: its nodes, inputs and coefficients.
        index: of its last node.
        plain: how to replace it with the types it computes in.
        island: the same with the casts to and from a half type around it, if there are any.
        numeric: whether it rounds intermediate values to a half type, which we do not.
        refused: why it must not be replaced, empty if it may.
        refused_for: the same for one target.
        group: of places that are decided together.
        choice: the target it is rewritten to; empty if it is left alone.
        reason: why it is left alone.
    """

    spec: OpSpec
    scope: Scope
    match: Match
    index: int
    plain: safety.Site
    island: safety.Site | None
    numeric: bool = False
    refused: str = ""
    refused_for: dict[str, str] = field(default_factory=dict)
    group: str = ""
    choice: str = ""
    reason: str = ""

    @property
    def node(self) -> NodeProto:
        return self.scope.nodes[self.index]

    @property
    def place(self) -> str:
        """For people: its last node and the scope."""
        inside = f"{self.scope.path}/" if self.scope.path else ""
        return inside + label(self.node)

    def site(self, target: str) -> safety.Site:
        """What a target replaces. Only our node computes in the half type of an island: it is
        rounded once, as the island is."""
        return self.island if target == CUSTOM and self.island is not None else self.plain

    @property
    def nodes(self) -> frozenset[int]:
        return self.plain.nodes if self.island is None else self.island.nodes

    def why_not(self, target: str) -> str:
        """Why it cannot be rewritten to a target; empty if it can."""
        return self.refused or self.refused_for.get(target, "")


def _by_root(operators: Collection[str] | None) -> dict[str, list[Pattern]]:
    found: dict[str, list[Pattern]] = {}
    for pattern in patterns():
        if operators is not None and pattern.spec.name not in operators:
            continue
        for op_type in sorted(pattern.roots):
            found.setdefault(op_type, []).append(pattern)
    return found


class Finder:
    """Finds the candidates of one scope."""

    def __init__(
        self,
        scope: Scope,
        base: str,
        allow_numeric_change: bool,
        operators: Collection[str] | None,
    ) -> None:
        self.scope, self.base, self.allow = scope, base, allow_numeric_change
        self._by_root = _by_root(operators)
        self._domains = SPECS.namespaces()

    def _at(self, matcher: Matcher, index: int) -> Iterator[Candidate]:
        """The best candidate of each operator that ends in one node."""
        node = self.scope.nodes[index]
        if node.domain in self._domains or not node.output or not node.output[0]:
            return
        seen: dict[str, Candidate] = {}
        for pattern in self._by_root.get(node.op_type, ()):
            name = pattern.spec.name
            if name in seen and not seen[name].refused:
                continue
            for match in matcher.matches(pattern, index):
                candidate = self._judged(matcher, pattern.spec, match, index)
                if name not in seen or not candidate.refused:
                    seen[name] = candidate
                if not candidate.refused:
                    break
        yield from seen.values()

    def _judged(self, matcher: Matcher, spec: OpSpec, match: Match, index: int) -> Candidate:
        verdict = safety.judge(self.scope, matcher, spec, match, index, self.allow)
        return Candidate(
            spec,
            self.scope,
            match,
            index,
            verdict.plain,
            verdict.island,
            verdict.numeric,
            verdict.refused,
            dict(verdict.refused_for),
        )

    def find(self) -> list[Candidate]:
        strict = Matcher(self.scope, self.base)
        found = [c for i in range(len(self.scope.nodes)) for c in self._at(strict, i)]
        # sorted() keeps the order of the file among equals.
        found.sort(key=lambda c: -len(c.match.nodes))
        taken: set[int] = set()
        kept: list[Candidate] = []
        for candidate in (c for c in found if not c.refused):
            if not taken & candidate.nodes:
                taken |= candidate.nodes
                kept.append(candidate)
        refused = [c for c in found if c.refused]
        lenient = Matcher(self.scope, self.base, lenient=True)
        near = [
            c
            for i in range(len(self.scope.nodes))
            if i not in taken
            for c in self._at(lenient, i)
            if c.match.obstacles
        ]
        near.sort(key=lambda c: (len(c.match.obstacles), -len(c.match.nodes)))
        for candidate in (*refused, *near):
            if not taken & candidate.match.nodes:
                taken |= candidate.match.nodes
                kept.append(candidate)
        return sorted(kept, key=lambda c: c.index)


def find(
    model_scopes: Iterable[Scope],
    base: str = "",
    allow_numeric_change: bool = False,
    operators: Collection[str] | None = None,
) -> list[Candidate]:
    """All candidates, in the order of the file.

    Args:
        model_scopes: of a model, which may be without its external data.
        base: the folder of the external data; empty if there is none.
        allow_numeric_change: whether half-precision results may change by what their intermediate
            roundings cost.
        operators: names of those to look for; all if None.
    """
    return [
        candidate
        for scope in model_scopes
        for candidate in Finder(scope, base, allow_numeric_change, operators).find()
    ]
