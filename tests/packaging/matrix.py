# SPDX-License-Identifier: Apache-2.0
"""The table of ``test_runtimes.py``: releases of ONNX Runtime by what was checked in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

# Release -> rows of [check, dtype, flaw].
ROWS: pytest.StashKey[dict[str, list[list[str]]]] = pytest.StashKey()


def table(found: Mapping[str, Sequence[Sequence[str]]]) -> list[str]:
    """Lines of Markdown. A cell counts the checks that passed, of all operators."""
    dtypes = list(dict.fromkeys(dtype for rows in found.values() for _, dtype, _ in rows))
    lines = [
        "| ONNX Runtime | " + " | ".join(dtypes) + " |",
        "|---|" + "---|" * len(dtypes),
    ]
    for release in sorted(found, key=lambda text: [int(part) for part in text.split(".")]):
        cells = []
        for dtype in dtypes:
            parts: dict[str, list[bool]] = {}
            for check, of, flaw in found[release]:
                if of == dtype:
                    parts.setdefault(check.split()[-1], []).append(not flaw)
            cells.append(
                ", ".join(
                    (name if len(passed) == 1 else f"{name} {sum(passed)}/{len(passed)}")
                    + ("" if all(passed) else " FAILED")
                    for name, passed in parts.items()
                )
            )
        lines.append(f"| {release} | " + " | ".join(cells) + " |")
    return lines
