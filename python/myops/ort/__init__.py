# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime sessions with the plugin, where their time goes, and their best settings. Needs no
torch."""

from myops.ort.profile import profile
from myops.ort.session import library_path, session
from myops.ort.tune import tune

__all__ = ["library_path", "profile", "session", "tune"]
