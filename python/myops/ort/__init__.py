# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime sessions with the plugin. Needs no torch."""

from myops.ort.session import library_path, session

__all__ = ["library_path", "session"]
