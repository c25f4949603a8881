# SPDX-License-Identifier: Apache-2.0
"""An entry of the catalogue, found."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from myops.doctor.catalogue import BY_ID, Entry


@dataclass(frozen=True)
class Finding:
    """An entry of the catalogue, found.

    Attributes:
        id: the entry's.
        subject: the file, package or variable it is about.
        evidence: what was seen.
        remedy: what to do in this case, where that is more exact than the entry's fix.
    """

    id: str
    subject: str
    evidence: str
    remedy: str = ""

    def __post_init__(self) -> None:
        if self.id not in BY_ID:
            raise KeyError(self.id)

    @property
    def entry(self) -> Entry:
        return BY_ID[self.id]

    @property
    def counts(self) -> bool:
        """Whether it makes the examination fail; notes do not."""
        return self.entry.severity != "note"

    @property
    def fix(self) -> str:
        return self.remedy or self.entry.fix

    def to_dict(self) -> dict[str, str]:
        """The entry with what was found."""
        seen = {"subject": self.subject, "evidence": self.evidence, "fix": self.fix}
        return {**asdict(self.entry), **seen}
