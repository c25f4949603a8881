# SPDX-License-Identifier: Apache-2.0
"""The figures do not matter here: a bandwidth of little memory will do."""

from __future__ import annotations

import functools

import pytest
from myops.bench import measure, models, runner


@pytest.fixture(autouse=True)
def little_memory(monkeypatch) -> None:
    small = functools.partial(measure.copy_bandwidth, 2**20)
    monkeypatch.setattr(runner, "copy_bandwidth", small)
    monkeypatch.setattr(models, "copy_bandwidth", small)
