# SPDX-License-Identifier: Apache-2.0
"""The pages of the documentation that are written from the specs."""

from __future__ import annotations

import io
import runpy
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from myops.spec import NORMS, SPECS, SWISH, Attribute

from .made_up import MADE_UP

HOOK = Path(__file__).parents[2] / "docs" / "hooks" / "operators.py"


@pytest.fixture(scope="module")
def written() -> dict[str, Any]:
    """The hook's names, and below "files" what it wrote."""
    files: dict[str, str | bytes] = {}

    @contextmanager
    def opened(name: str, mode: str):
        buffer = io.BytesIO() if "b" in mode else io.StringIO()
        yield buffer
        files[name] = buffer.getvalue()

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "mkdocs_gen_files", SimpleNamespace(open=opened))
        return {**runpy.run_path(str(HOOK)), "files": files}


def test_every_operator_has_its_picture_and_place(written):
    page = written["files"]["reference/operators.md"]
    for spec in SPECS:
        assert f"## {spec.name}\n" in page
        assert b"<svg" in written["files"][f"reference/images/{spec.torch_name}.svg"]
    functions = written["files"]["reference/functional.md"]
    assert "rms_norm" in functions and "RMSNorm" in functions
    assert functions.count("add_rms_norm") == 0


@pytest.mark.parametrize("spec", MADE_UP, ids=lambda spec: spec.torch_name)
def test_a_norm_with_any_attributes(written, spec):
    picture = written["_picture"](spec)
    assert b"<svg" in picture
    table = written["_table"](spec)
    assert all(f"attribute `{name}`" in table for name in spec.defaults())
    assert "ReduceMean" in written["_body"](spec)
    assert written["_varied"](spec) == written["_varied"](NORMS[0])


def test_of_several_attributes_the_first_is_varied(written):
    spec = replace(
        SWISH,
        attributes=(*SWISH.attributes, Attribute("shift", 3.0, "Added.")),
        reference=lambda x, beta, shift: SWISH.reference(x, beta) + shift,
    )
    x = np.linspace(-1, 1, 5)
    np.testing.assert_array_equal(written["_value"](spec, x, 0.5), SWISH.reference(x, 0.5) + 3.0)
