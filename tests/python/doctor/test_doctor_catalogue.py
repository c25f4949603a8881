# SPDX-License-Identifier: Apache-2.0
"""The catalogue: ids, words, its page, and that every entry is tested."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from myops.doctor import CATALOGUE, Finding, document

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "doctor.md"


def test_page_is_the_catalogue():
    """Written by ``python -m myops.doctor.document > docs/doctor.md``."""
    assert PAGE.read_text() == document.markdown()


def test_ids():
    ids = [entry.id for entry in CATALOGUE]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)+", id) for id in ids)


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda entry: entry.id)
def test_words(entry):
    for text in (entry.sentence, entry.fix, entry.apart):
        names = ("nm ", "nvcc ", "torch ", "onnxruntime ")
        assert not text or text[0].isupper() or text.startswith(names), text
    assert entry.sentence.endswith(".")


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda entry: entry.id)
def test_every_entry_has_a_test(entry):
    tests = "".join(file.read_text() for file in HERE.glob("test_*.py") if file != Path(__file__))
    assert f'"{entry.id}"' in tests


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda entry: entry.id)
def test_every_entry_is_found_somewhere(entry):
    """No entry that nothing in the package reports."""
    import myops.doctor
    import myops.ort.check

    folder = Path(myops.doctor.__file__).parent
    sources = [*folder.glob("*.py"), Path(myops.ort.check.__file__)]
    assert any(f'"{entry.id}"' in file.read_text() for file in sources)


def test_findings_are_of_the_catalogue():
    with pytest.raises(KeyError):
        Finding("made-up", "", "")
