# SPDX-License-Identifier: Apache-2.0
"""What is found out about a model by running it before it is packed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from myops.pack import triton
from myops.pack.triton import Arrays
from myops.verify import compare, golden
from myops.verify.tolerances import MODEL_TOLERANCE


class Measured:
    """A model on its golden inputs.

    Attributes:
        inputs, outputs: golden arrays by name.
        limits: by output name.
    """

    def __init__(self, model: Path, meta: Mapping[str, Any], arrays: Arrays) -> None:
        self.model, self.meta = model, meta
        self.inputs = {k[len("input:") :]: a for k, a in arrays.items() if k.startswith("input:")}
        self.outputs = {name: arrays[f"output:{name}"] for name in meta["outputs"]}
        self.limits = {
            name: golden.allowed(about, meta, self.outputs[name])
            for name, about in meta["outputs"].items()
        }

    def dtype(self, name: str) -> str:
        """To judge an output in."""
        dtype = str(self.meta["outputs"][name]["dtype"])
        return dtype if dtype in MODEL_TOLERANCE else "float64"

    def _runner(self, plugin: Path | None) -> Callable[[Arrays], dict[str, Any]]:
        from myops.ort import session

        made, names = session(self.model, plugin=plugin or False), list(self.outputs)

        def run(inputs: Arrays) -> dict[str, Any]:
            results = made.run(names, dict(inputs))
            return {name: np.asarray(a) for name, a in zip(names, results, strict=True)}

        return run

    def right_without_plugin(self) -> bool:
        """Whether it can do without the plugin: with functions of its own, or without our nodes."""
        try:
            results = self._runner(None)(self.inputs)
        except Exception:  # each onnxruntime has its own words for a node it does not know
            return False
        return all(
            compare(results[name], truth, self.dtype(name), self.limits[name]).ok
            for name, truth in self.outputs.items()
        )

    def why_rows_differ(self, plugin: Path | None) -> str:
        """See ``triton.why_rows_differ``."""
        return triton.why_rows_differ(self._runner(plugin), self.inputs, self.limits)

    def judged(self) -> dict[str, Any]:
        """What check.py needs to judge each output."""
        return {
            name: {"dtype": self.dtype(name), "absolute": limit.absolute}
            for name, limit in self.limits.items()
        }
