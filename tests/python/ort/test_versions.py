# SPDX-License-Identifier: Apache-2.0
"""The plugin in runtimes that are too old, too new, or broken: an error or a lower version of the
API, never a crash. The runtimes are made of ctypes."""

from __future__ import annotations

import json

import myops.ort
import pytest
from myops import _build_info

# OrtApiBase has two functions; CreateStatus is the first of OrtApi in every version.
HOST = """
import ctypes, json, sys

library = ctypes.CDLL(sys.argv[1])
version, offered = json.loads(sys.argv[2])
asked, statuses = [], []

Create = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
Get = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)
Version = ctypes.CFUNCTYPE(ctypes.c_void_p)

def create(code, message):
    statuses.append([code, message.decode()])
    return 1

def unexpected(*_):
    raise SystemExit("a function behind CreateStatus was called")

create = Create(create)
api = (ctypes.c_void_p * 500)(ctypes.cast(create, ctypes.c_void_p).value)
text = ctypes.create_string_buffer(version.encode()) if version is not None else None

def get(number):
    asked.append(number)
    return ctypes.addressof(api) if number in offered else None

get = Get(get)
name = Version(lambda: ctypes.addressof(text) if text is not None else None)
base = (ctypes.c_void_p * 2)(
    ctypes.cast(get, ctypes.c_void_p).value, ctypes.cast(name, ctypes.c_void_p).value
)
library.RegisterCustomOps.restype = ctypes.c_void_p
library.RegisterCustomOps.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
result = library.RegisterCustomOps(None, ctypes.addressof(base) if sys.argv[3] == "base" else None)
print(json.dumps([bool(result), asked, statuses]))
"""


@pytest.fixture
def register(run_python):
    def run(version: str | None, offered: list[int], base: str = "base") -> list:
        done = run_python(HOST, myops.ort.library_path(), json.dumps([version, offered]), base)
        return json.loads(done.stdout)

    return run


@pytest.mark.parametrize("version", ["1.15.1", "1.8.0", "1.3", "2.0.0", "0.5", "nonsense", None])
def test_too_old_or_unknown(register, version, check_message):
    failed, asked, statuses = register(version, list(range(1, 30)))
    assert failed
    assert asked == [1], "no API above what the runtime has may be asked for"
    ((_, message),) = statuses
    text = check_message(message)
    assert "1.16" in text
    assert not version or version in text


@pytest.mark.parametrize(
    ("version", "wanted"), [("1.16.0", 16), ("1.20.1", 20), ("1.99.0", None), ("1.32.0-dev", None)]
)
def test_api_that_the_runtime_does_not_offer(register, version, wanted, check_message):
    wanted = _build_info.ort_api_version if wanted is None else wanted
    failed, asked, statuses = register(version, [1])
    assert failed
    assert asked == [1, wanted]
    ((_, message),) = statuses
    text = check_message(message)
    assert version in text
    assert f"API {wanted}" in text


def test_runtime_that_offers_nothing(register):
    """Without an API there is no way to answer; the process must go on."""
    assert register("1.32.0", []) == [False, [1], []]
    assert register("1.32.0", [], base="none") == [False, [], []]
