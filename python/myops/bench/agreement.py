# SPDX-License-Identifier: Apache-2.0
"""A rival that computes something else would be timed for nothing: results are compared first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from myops._errors import MyopsError
from myops.bench.measure import WHERE
from myops.bench.rivals import CHECKED, Case, Data
from myops.spec import OpSpec

# Sanity only, wide enough for a chain of roundings and for runtimes that are less exact than we
# are; myops.verify is the one that is strict.
TOLERANCE = {"float64": 1e-6, "float32": 1e-3, "float16": 5e-2, "bfloat16": 3e-1}


def expected_result(
    spec: OpSpec, data: Data, repeats: int = 1, attributes: Mapping[str, float] | None = None
) -> npt.NDArray[Any]:
    """The first ``CHECKED`` elements, or whole rows of about so many, of the operator's first
    result after ``repeats`` applications in float64, flat. Results are the next inputs."""
    rows = max(1, CHECKED // data.output.shape[-1]) if spec.kind == "norm" else CHECKED
    feed: list[npt.NDArray[Any]] = []
    for array in data.inputs:
        whole = array.shape != data.output.shape  # a norm's weight
        feed.append((array if whole else array[:rows]).astype(np.float64))
    for _ in range(repeats):
        results = spec.reference(*feed, **{**spec.defaults(), **(attributes or {})})
        results = results if isinstance(results, tuple) else (results,)
        feed[: len(results)] = results
    flat: npt.NDArray[Any] = feed[0].reshape(-1)
    return flat


def check_case(case: Case, expected: npt.NDArray[Any], dtype: str, what: str) -> None:
    """Calls the case once.

    Raises:
        MyopsError: its result is not ``expected``.
    """
    case.call()
    found = case.result().reshape(-1)[: expected.size]
    expected = expected.reshape(-1)
    if not np.allclose(found, expected, rtol=TOLERANCE[dtype], atol=0.1 * TOLERANCE[dtype]):
        raise MyopsError(
            WHERE,
            f"every row should compute {what}",
            f"a difference of {np.abs(found - expected).max():.3g} in row {case.name} "
            f"({case.framework})",
            "Run: myops verify",
        )
