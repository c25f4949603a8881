# SPDX-License-Identifier: Apache-2.0
"""The look of the tables that measurements are printed in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def compact_table(title: str, notes: Sequence[str] = ()) -> Table:
    """A table without a frame, its notes below it."""
    from rich import box
    from rich.table import Table

    return Table(
        title=title,
        caption="\n".join(notes) or None,
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
