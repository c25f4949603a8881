# SPDX-License-Identifier: Apache-2.0
"""The operators under torch's CUDA key. They are there in every build; without CUDA kernels they
say so."""

from __future__ import annotations

import myops.functional
import pytest
import torch
from myops import _build_info
from myops.spec import DOMAIN, ELEMENTWISE, NORMS

from ..support import NORMS_OF_ONE

NAMES = [
    *(f"{s.torch_name}{p}" for s in ELEMENTWISE for p in ("", "_backward", "_double_backward")),
    *(s.torch_name for s in NORMS),
    *(f"{s.torch_name}_backward" for s in NORMS_OF_ONE),
]


@pytest.mark.parametrize("name", NAMES)
def test_cuda_key_is_registered(name):
    assert hasattr(myops.functional, "swish")
    assert torch._C._dispatch_has_kernel_for_dispatch_key(f"{DOMAIN}::{name}", "CUDA")


def test_build_without_cuda_kernels_says_what_to_do(check_message):
    message = _build_info.cuda_message()
    if message:
        assert "CPU" in check_message(message)
