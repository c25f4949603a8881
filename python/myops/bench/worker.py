# SPDX-License-Identifier: Apache-2.0
"""``python -m myops.bench.worker PLAN RESULT``: measures one framework in this process.

PLAN is the JSON of a ``Plan``; RESULT is the file to write the measurements to. Every round is
reported by a line on standard output.
"""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from myops._errors import MyopsError
from myops.bench.runner import Plan, measure
from myops.registry import register_installed


def main(plan_text: str, result: str) -> None:
    fields: dict[str, Any] = json.loads(plan_text)
    lists: dict[str, Any] = {k: tuple(v) for k, v in fields.items() if isinstance(v, list)}
    with contextlib.suppress(MyopsError):  # said already by the process that started this one
        register_installed()
    plan = Plan(**(fields | lists))
    found = measure(plan, on_round=lambda: print("round", flush=True))
    Path(result).write_text(json.dumps(asdict(found)))


if __name__ == "__main__":
    main(*sys.argv[1:])
