# SPDX-License-Identifier: Apache-2.0
"""Is the result the model it was? Both are run on the same inputs, and each output is compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto

from myops._errors import ModelError
from myops.ort import session
from myops.verify.compare import MODEL_TOLERANCE, Tolerance, compare

WHERE = "myops.onnx.inject"

Arrays = Mapping[str, npt.NDArray[Any]]

# ONNX Runtime's own optimisations move the outputs of a deep network, too; a replacement may do so
# within a small multiple.
DRIFTS = 4.0


@dataclass(frozen=True)
class Difference:
    """How far one output of the result is from the original's.

    Attributes:
        output: its name.
        dtype: of its elements.
        count: elements compared.
        max_abs: largest absolute difference.
        max_ulp: the same in units in the last place of each element.
        limit: largest absolute difference allowed.
        drift: largest absolute difference that ONNX Runtime's optimisations make of the original.
        explained: elements where the original overflows and the result is finite.
        wrong: elements outside the limit that are not explained.
    """

    output: str
    dtype: str
    count: int
    max_abs: float
    max_ulp: float
    limit: float
    drift: float
    explained: int
    wrong: int

    @property
    def ok(self) -> bool:
        return self.wrong == 0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"ok": self.ok}


def run(
    path: Path,
    feeds: Arrays,
    plugin: str | bool | None,
    level: str = "disable",
    threads: int | None = 1,
) -> list[Any]:
    """The outputs of a model in ONNX Runtime."""
    opened = session(
        path, intra_op_num_threads=threads, graph_optimization_level=level, plugin=plugin
    )
    outputs: list[Any] = opened.run(None, dict(feeds))
    return outputs


def run_reference(path: Path, feeds: Arrays) -> list[Any]:
    """The outputs in onnx's own evaluator, for models that ONNX Runtime cannot load."""
    from myops.verify.parties import onnx_parties

    reference = next(p for p in onnx_parties() if p.name == "onnx reference")
    return list(reference.run(str(path), dict(feeds)))


def _largest(values: npt.NDArray[np.float64]) -> float:
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def difference(
    name: str,
    original: Any,
    result: Any,
    optimised: Any | None = None,
    tolerance: float | None = None,
) -> Difference:
    """Compares one output.

    Args:
        name: of the output.
        original: the unoptimised original's.
        result: the injected model's.
        optimised: the optimised original's, if it is known.
        tolerance: largest difference relative to the largest element, in place of
            ``MODEL_TOLERANCE`` for the dtype and of what ONNX Runtime's optimisations do.
    """
    wanted, got = np.asarray(original), np.asarray(result)
    dtype = str(wanted.dtype)
    if dtype not in MODEL_TOLERANCE or wanted.shape != got.shape:
        same = wanted.shape == got.shape and wanted.dtype == got.dtype
        wrong = int((wanted != got).sum()) if same else max(wanted.size, 1)
        return Difference(name, dtype, wanted.size, 0.0, 0.0, 0.0, 0.0, 0, wrong)
    truth = wanted.astype(np.float64)
    values = got.astype(np.float64)
    overflowed = ~np.isfinite(truth) & np.isfinite(values)
    drift = 0.0
    if optimised is not None and np.shape(optimised) == wanted.shape:
        with np.errstate(invalid="ignore"):
            drift = _largest(np.asarray(optimised, np.float64) - truth)
    limit = (MODEL_TOLERANCE[dtype] if tolerance is None else tolerance) * _largest(truth)
    if tolerance is None:
        limit = max(limit, DRIFTS * drift)
    found = compare(
        np.where(overflowed, 0.0, values),
        np.where(overflowed, 0.0, truth),
        dtype,
        Tolerance(absolute=limit),
    )
    return Difference(
        name,
        dtype,
        found.count,
        found.max_abs,
        found.max_ulp,
        limit,
        drift,
        int(overflowed.sum()),
        found.wrong,
    )


def differences(
    model: ModelProto,
    original: Sequence[Any],
    result: Sequence[Any],
    optimised: Sequence[Any] | None,
    tolerance: float | None,
) -> list[Difference]:
    """Compares all outputs of a model."""
    found = []
    for i, value in enumerate(model.graph.output):
        fast = None if optimised is None else optimised[i]
        found.append(difference(value.name, original[i], result[i], fast, tolerance))
    return found


def require_equal(found: Sequence[Difference]) -> None:
    """Raises ``ModelError`` for the first output that differs by more than its limit."""
    for difference_ in found:
        if not difference_.ok:
            raise ModelError(
                WHERE,
                f"output {difference_.output!r} should be the original's within "
                f"{difference_.limit:.3g}",
                f"{difference_.wrong} of {difference_.count} elements outside, largest difference "
                f"{difference_.max_abs:.3g}",
                "Nothing was written. Leave out an operator with --op, or pass --tolerance if this "
                "is acceptable, and report the model",
            )
