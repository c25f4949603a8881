# SPDX-License-Identifier: Apache-2.0
"""Export to ONNX: ``export`` does it all, ``translation_table`` serves ``torch.onnx.export``.
``inject`` makes models faster that exist."""

try:
    import onnx
except ImportError as _error:
    # myops.functional takes myops.onnx.translate from here and must not need onnx for training.
    _reason = f"{type(_error).__name__}: {_error}"

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'myops.onnx' has no attribute {name!r}")
        from myops._errors import MissingPackageError

        raise MissingPackageError(
            "myops.onnx",
            "onnx should be installed",
            _reason,
            "Run: pip install 'myops[export]'",
        )

else:
    del onnx
    from myops.onnx.export import EXPORTERS, MODES, ExportReport, export
    from myops.onnx.functions import add_functions, expand, function_proto
    from myops.onnx.inject.run import inject
    from myops.onnx.translate import translation_table

__all__ = [
    "EXPORTERS",
    "MODES",
    "ExportReport",
    "add_functions",
    "expand",
    "export",
    "function_proto",
    "inject",
    "translation_table",
]
