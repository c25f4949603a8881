# SPDX-License-Identifier: Apache-2.0
"""The rival that torch.compile makes of an operator's body."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from myops.bench.compiled import NAME, body, compiled_case
from myops.bench.rivals import Case, Data
from myops.bench.torch_rows import tensor_on
from myops.spec import SPECS, SWISH


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.torch_name)
def test_body_in_torch_is_the_operator(spec) -> None:
    data = Data.make(spec, 96, "float64")
    results = body(spec, [tensor_on(array) for array in data.inputs])
    expected = spec.reference(*data.inputs, **spec.defaults())
    expected = expected if isinstance(expected, tuple) else (expected,)
    assert len(results) == len(spec.outputs)
    for found, right in zip(results, expected, strict=True):
        np.testing.assert_allclose(found.numpy(), right, rtol=1e-6, atol=1e-9)


def test_reason_where_it_does_not_compile(monkeypatch) -> None:
    def broken(*_: object, **__: object):
        raise RuntimeError("\n  No working C++ compiler found\nsecond line")

    monkeypatch.setattr(torch, "compile", broken)
    found = compiled_case(SWISH, Data.make(SWISH, 8, "float32"))
    assert found == "RuntimeError: No working C++ compiler found"


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_compiled_row_writes_the_shared_output() -> None:
    data = Data.make(SWISH, 64, "float32")
    case = compiled_case(SWISH, data, [data.copy()])
    assert isinstance(case, Case), case
    assert (case.framework, case.name) == ("torch", NAME)
    data.output[...] = np.nan
    case.call()
    case.call()
    expected = SWISH.reference(data.inputs[0].astype(np.float64), beta=1.0)
    np.testing.assert_allclose(case.result(), expected, rtol=1e-5, atol=1e-6)
