# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime sessions with the plugin, and where their time goes. Needs no torch."""

from myops.ort.profile import profile
from myops.ort.session import library_path, session

__all__ = ["library_path", "profile", "session"]
