# SPDX-License-Identifier: Apache-2.0
"""How fast are the operators and whole models, as ratios to rivals measured in the same run?

``run`` measures operators, ``run_models`` models; ``BenchReport`` and ``ModelReport`` hold the
rows. ``interleaved`` times any callables fairly.
"""

from myops.bench.measure import Timing, copy_bandwidth, interleaved
from myops.bench.model_report import ModelReport, ModelRow
from myops.bench.models import run_models
from myops.bench.profile import kernels
from myops.bench.report import BenchReport, BenchRow
from myops.bench.runner import run

__all__ = [
    "BenchReport",
    "BenchRow",
    "ModelReport",
    "ModelRow",
    "Timing",
    "copy_bandwidth",
    "interleaved",
    "kernels",
    "run",
    "run_models",
]
