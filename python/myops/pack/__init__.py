# SPDX-License-Identifier: Apache-2.0
"""A model as a folder that runs where nothing but numpy and onnxruntime is installed: the model
with its weights, the plugin, golden results, checksums, and the scripts that use them."""

from __future__ import annotations

from myops.pack.bundle import Bundle, make_bundle

__all__ = ["Bundle", "make_bundle"]
