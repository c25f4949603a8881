# SPDX-License-Identifier: Apache-2.0
"""How fast are the operators, as ratios to their rivals measured in the same run?

``run`` measures, ``BenchReport`` holds the rows, ``interleaved`` times any callables fairly.
"""

from myops.bench.measure import Timing, copy_bandwidth, interleaved
from myops.bench.profile import kernels
from myops.bench.report import BenchReport, BenchRow
from myops.bench.runner import run

__all__ = [
    "BenchReport",
    "BenchRow",
    "Timing",
    "copy_bandwidth",
    "interleaved",
    "kernels",
    "run",
]
