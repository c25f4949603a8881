# SPDX-License-Identifier: Apache-2.0
"""Do all layers agree? Every party is judged against float64: the torch library, ONNX Runtime with
and without the plugin, onnx's reference evaluator.

* ``verify_operators``: each operator in isolation
* ``verify_model``: a model in everybody's hands, and which node is to blame
* ``check_finite``: the first node that makes a NaN or an infinity
* ``make_golden``, ``check_golden``: results to check on another machine, without torch or onnx
"""

from __future__ import annotations

import importlib
from typing import Any

# The module of the same name would hide the function if it were imported later.
from myops.verify.compare import Comparison, Tolerance, compare

_HOMES = {
    "Golden": "golden",
    "MODEL_TOLERANCE": "tolerances",
    "Report": "report",
    "Row": "report",
    "check_finite": "finite",
    "check_golden": "golden",
    "make_golden": "golden",
    "verify_model": "model",
    "verify_operators": "operators",
}

__all__ = [
    "MODEL_TOLERANCE",
    "Comparison",
    "Golden",
    "Report",
    "Row",
    "Tolerance",
    "check_finite",
    "check_golden",
    "compare",
    "make_golden",
    "verify_model",
    "verify_operators",
]


def __getattr__(name: str) -> Any:
    # Golden results are checked where onnx is not installed.
    if name in _HOMES:
        return getattr(importlib.import_module(f"myops.verify.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'myops.verify' has no attribute {name!r}")
