# SPDX-License-Identifier: Apache-2.0
"""Which kernels does ONNX Runtime run for a model? Its own profile says so."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from myops.ort.trace import read


def kernels(
    model: str | os.PathLike[str] | bytes,
    inputs: Mapping[str, Any],
    plugin: bool = True,
    level: str | None = None,
) -> Counter[str]:
    """Runs the model once with profiling on and counts the kernels that ran.

    Args:
        model: path of an .onnx file, or its bytes.
        inputs: name -> numpy array or ``OrtValue``.
        plugin: whether the plugin is registered.
        level: graph optimization level, as in ``myops.ort.session``.

    Returns:
        Operator type -> count, in the order in which they first ran. Ours appear under the
        operator's name without its domain; what ONNX Runtime made of the model's nodes appears
        under its own names, such as ``QuickGelu``.

    Raises:
        ModelError: ONNX Runtime does not load the model.
    """
    from myops import ort

    with tempfile.TemporaryDirectory() as folder:
        session = ort.session(
            model,
            intra_op_num_threads=1,
            graph_optimization_level=level,
            profile=Path(folder) / "profile",
            plugin=plugin,
        )
        feeds = dict(inputs)
        if all(hasattr(value, "data_ptr") for value in feeds.values()):
            session.run_with_ort_values(None, feeds)
        else:
            session.run(None, feeds)
        trace = read(session.end_profiling())
    return Counter(call.op for call in trace.calls)
