# SPDX-License-Identifier: Apache-2.0
"""Makes existing models faster where that pays: finds our operators in what exporters wrote, and
replaces each by our node, by better standard nodes, or not at all."""

from myops.onnx.inject.options import TARGETS
from myops.onnx.inject.report import Report
from myops.onnx.inject.run import inject, inject_file, list_candidates

__all__ = ["TARGETS", "Report", "inject", "inject_file", "list_candidates"]
