# SPDX-License-Identifier: Apache-2.0
"""These tests need a GPU, a torch with CUDA, and a build with MYOPS_CUDA=ON: ``make test-gpu``."""

from __future__ import annotations

import torch
from myops import _build_info

if not torch.cuda.is_available():
    raise RuntimeError(
        "[test-gpu] torch should see a CUDA device. Received none. Run this on a GPU machine."
    )
if _build_info.cuda_message():
    raise RuntimeError(_build_info.cuda_message())
