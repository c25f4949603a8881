# SPDX-License-Identifier: Apache-2.0
"""The catalogue: everything ``myops doctor`` can find, each with a stable id."""

from __future__ import annotations

from myops.doctor.catalogue import environment, library, model, session
from myops.doctor.catalogue.entry import Area, Entry, Severity

CATALOGUE: tuple[Entry, ...] = (
    *library.ENTRIES,
    *environment.ENTRIES,
    *model.ENTRIES,
    *session.ENTRIES,
)

BY_ID = {entry.id: entry for entry in CATALOGUE}

__all__ = ["BY_ID", "CATALOGUE", "Area", "Entry", "Severity"]
