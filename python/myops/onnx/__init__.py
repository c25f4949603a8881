# SPDX-License-Identifier: Apache-2.0
"""Export to ONNX: ``export`` does it all, ``translation_table`` serves ``torch.onnx.export``."""

from myops.onnx.export import EXPORTERS, MODES, ExportReport, export
from myops.onnx.functions import add_functions, expand, function_proto
from myops.onnx.translate import translation_table

__all__ = [
    "EXPORTERS",
    "MODES",
    "ExportReport",
    "add_functions",
    "expand",
    "export",
    "function_proto",
    "translation_table",
]
