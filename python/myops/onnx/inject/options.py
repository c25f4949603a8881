# SPDX-License-Identifier: Apache-2.0
"""What a caller may choose."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from myops._errors import UsageError
from myops.spec import find

WHERE = "myops.onnx.inject"

TARGETS = ("auto", "custom", "native")


@dataclass
class Options:
    """How to inject, see ``inject``."""

    target: str = "auto"
    operators: Sequence[str] | None = None
    threads: int | None = None
    inputs: Mapping[str, Any] | str | os.PathLike[str] | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    measure: bool | None = None
    remeasure: bool = False
    allow_numeric_change: bool = False
    ir_version: int | None = None
    plugin: str | os.PathLike[str] | None = None
    tolerance: float | None = None
    seconds: float = 6.0
    on_step: Callable[[str], object] = lambda text: None

    def __post_init__(self) -> None:
        if self.target not in TARGETS:
            raise UsageError(
                WHERE, f"target should be one of {', '.join(TARGETS)}", repr(self.target), "Choose"
            )
        if self.threads is not None and self.threads < 1:
            raise UsageError(WHERE, "threads should be at least 1", str(self.threads), "Pass more")
        if self.seconds <= 0:
            raise UsageError(WHERE, "seconds should be above 0", str(self.seconds), "Pass more")
        if self.operators is not None:
            self.operators = [find(name).name for name in self.operators]
