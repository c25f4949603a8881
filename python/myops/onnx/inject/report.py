# SPDX-License-Identifier: Apache-2.0
"""What an injection did, for machines and for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from onnx import TensorProto
from rich.markup import escape
from rich.table import Table

from myops.onnx.inject.candidates import CUSTOM, Candidate
from myops.onnx.inject.compare import Difference
from myops.onnx.inject.measure import AGAIN, Trial
from myops.onnx.inject.pieces import PieceDifference

FOUND = "found"
REWRITTEN = "rewritten"
SKIPPED = "skipped"


@dataclass(frozen=True)
class Row:
    """One candidate's fate.

    Attributes:
        operator: what its nodes compute.
        place: its last node, after the scope it stands in.
        output: the tensor it makes.
        dtype: of that tensor.
        attributes: coefficients.
        nodes: the names of the nodes it covers, of unnamed ones the results.
        group: of places that are decided together.
        decision: "rewritten", "skipped", or "found" when only listed.
        target: what it was rewritten to, "custom" or "native"; empty otherwise.
        reason: why it was skipped; empty otherwise.
    """

    operator: str
    place: str
    output: str
    dtype: str
    attributes: dict[str, float]
    nodes: tuple[str, ...]
    group: str
    decision: str
    target: str
    reason: str

    @classmethod
    def of(cls, candidate: Candidate, listed: bool) -> Row:
        site = candidate.site(candidate.choice or CUSTOM)
        reason = candidate.refused or candidate.reason
        decision = REWRITTEN if candidate.choice else SKIPPED
        if listed and not candidate.refused:
            decision, reason = FOUND, ""
        kind = TensorProto.DataType.Name(site.element_type).lower()
        return cls(
            candidate.spec.name,
            candidate.place,
            site.outputs[0],
            kind,
            dict(candidate.match.parameters),
            tuple(
                node.name or next(filter(None, node.output), "?")
                for node in (candidate.scope.nodes[i] for i in sorted(site.nodes))
            ),
            candidate.group,
            decision,
            candidate.choice,
            reason,
        )

    @property
    def fate(self) -> str:
        """In a sentence."""
        if self.decision == REWRITTEN:
            what = "standard nodes" if self.target == "native" else f"myops::{self.operator}"
            return f"rewritten to {what}"
        return f"skipped because {self.reason}" if self.decision == SKIPPED else FOUND


@dataclass
class Report:
    """The whole of it.

    Attributes:
        source, output: files; empty for models in memory.
        target: as asked for.
        rows: every candidate, in the order of the file.
        trials: what was measured.
        pieces: each kind of replacement against what it replaces.
        outputs: the result's outputs against the original's.
        inputs: what was run, as names and shapes.
        notes: what a user should know besides.
        onnxruntime: its version.
        threads: of each session; None is ONNX Runtime's default.
    """

    source: str = ""
    output: str = ""
    target: str = ""
    rows: list[Row] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    pieces: list[PieceDifference] = field(default_factory=list)
    outputs: list[Difference] = field(default_factory=list)
    inputs: str = ""
    notes: list[str] = field(default_factory=list)
    onnxruntime: str = ""
    threads: int | None = None

    @property
    def rewritten(self) -> int:
        return sum(row.decision == REWRITTEN for row in self.rows)

    @property
    def counts(self) -> dict[str, int]:
        """Candidates by operator, those that must not be replaced left out when only listed."""
        return dict(Counter(row.operator for row in self.rows if row.decision != SKIPPED))

    def to_dict(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "output": self.output,
            "target": self.target,
            "rewritten": self.rewritten,
            "candidates": [asdict(row) | {"fate": row.fate} for row in self.rows],
            "trials": [trial.to_dict() for trial in self.trials],
            "pieces": [piece.to_dict() for piece in self.pieces],
            "outputs": [difference.to_dict() for difference in self.outputs],
            "inputs": self.inputs,
            "notes": self.notes,
            "onnxruntime": self.onnxruntime,
            "threads": self.threads,
        }

    def tables(self, every: bool = False) -> list[Table]:
        """For a terminal.

        Args:
            every: a line for every candidate; otherwise one for those with the same fate.
        """
        found = [_candidates(self.rows, every)]
        if self.trials:
            found.append(_trials(self.trials))
        if self.pieces:
            found.append(_pieces(self.pieces))
        if self.outputs:
            found.append(_outputs(self.outputs))
        return found


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i < 2 else "right", overflow="fold")
    return table


def _candidates(rows: Sequence[Row], every: bool) -> Table:
    table = Table(title="Candidates", title_justify="left")
    for column in ("operator", "places", "fate"):
        table.add_column(column, overflow="fold")
    alike: dict[tuple[Any, ...], list[Row]] = {}
    for number, row in enumerate(rows):
        key = (row.operator, row.fate, row.dtype, number if every else -1)
        alike.setdefault(key, []).append(row)
    for same in alike.values():
        first = same[0]
        more = f" and {len(same) - 1} more" if len(same) > 1 else ""
        values = ", ".join(f"{k} {v:.6g}" for k, v in first.attributes.items())
        kind = "" if first.dtype == "float" else f" {first.dtype}"
        name = f"{first.operator}{kind}" + (f" ({values})" if values else "")
        table.add_row(escape(name), escape(f"{first.place}{more}"), escape(first.fate))
    return table


def _trials(trials: Sequence[Trial]) -> Table:
    table = _table("Tried: original / trial", "contest", "model", "ms", "ratio", "95 %", "")
    for trial in trials:
        table.add_row(
            escape(trial.stage),
            escape(trial.name),
            f"{trial.milliseconds:.3f}",
            f"{trial.ratio:.3f}",
            f"{trial.low:.3f} to {trial.high:.3f}",
            "noise" if trial.name == AGAIN else "faster" if trial.wins else "not faster",
        )
    return table


def _pieces(pieces: Sequence[PieceDifference]) -> Table:
    table = _table(
        "Replacements, against what they replace",
        *(
            "operator",
            "target",
            "places",
            "values",
            "differ",
            "largest",
            "ulp",
            "overflowed before",
        ),
    )
    for piece in pieces:
        table.add_row(
            f"{piece.operator} {piece.dtype}",
            piece.target,
            str(piece.places),
            f"{piece.count:,}",
            f"{piece.changed:,}",
            f"{piece.max_abs:.2g}",
            f"{piece.max_ulp:.3g}",
            str(piece.explained),
        )
    return table


def _outputs(outputs: Sequence[Difference]) -> Table:
    table = _table(
        "Outputs, against the original without optimisations",
        *("output", "dtype", "largest difference", "allowed", "ulp", "overflowed before"),
    )
    for found in outputs:
        table.add_row(
            escape(found.output),
            found.dtype,
            f"{found.max_abs:.2g}",
            f"{found.limit:.2g}",
            f"{found.max_ulp:.3g}",
            str(found.explained),
        )
    return table
