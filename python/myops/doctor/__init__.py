# SPDX-License-Identifier: Apache-2.0
"""Why does it not work? Examines the environment, the native libraries and a model, offline and
without loading what it examines; trial loads run in processes of their own.

* ``examine``: everything there is to find, as a ``Report``
* ``explain_with``: the causes that an error text may have
* ``CATALOGUE``: every kind of finding
"""

from __future__ import annotations

from myops.doctor.catalogue import CATALOGUE
from myops.doctor.environment import Facts, Wanted
from myops.doctor.findings import Finding
from myops.doctor.report import Explanation, Report, examine, explain_with

__all__ = [
    "CATALOGUE",
    "Explanation",
    "Facts",
    "Finding",
    "Report",
    "Wanted",
    "examine",
    "explain_with",
]
