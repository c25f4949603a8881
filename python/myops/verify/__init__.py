# SPDX-License-Identifier: Apache-2.0
"""Do all layers agree? ``verify_operators`` and ``verify_model`` judge every party against
float64: the torch library, ONNX Runtime with and without the plugin, onnx's reference evaluator."""

from myops.verify.compare import Comparison, compare
from myops.verify.model import verify_model
from myops.verify.operators import verify_operators
from myops.verify.report import Report, Row

__all__ = ["Comparison", "Report", "Row", "compare", "verify_model", "verify_operators"]
