# SPDX-License-Identifier: Apache-2.0
"""Many sessions, threads and orders of destruction in one process, which must end with code 0."""

from __future__ import annotations

import pytest

from ..support import one_spec
from .support import (
    attributes,
    model,
    node,
)

COMMON = """
import gc, random, sys, threading
import numpy as np
import onnxruntime as ort
import myops.ort

content = open(sys.argv[1], "rb").read()
x = np.linspace(-3, 3, 70_000, dtype=np.float32).reshape(-1, 4)

def make(times=1):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 4
    for _ in range(times):
        options.register_custom_ops_library(myops.ort.library_path())
    return ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])

expected = make().run(None, {"x": x})[0]

def run(session):
    assert np.array_equal(session.run(None, {"x": x})[0], expected)
"""

SCENARIOS = {
    "hundred_sessions_destroyed_in_any_order": """
sessions = [make() for _ in range(100)]
random.seed(0)
random.shuffle(sessions)
while sessions:
    run(sessions[-1])
    sessions.pop(random.randrange(len(sessions)))
    gc.collect()
run(make())
""",
    "hundred_sessions_left_to_the_end": """
sessions = [make() for _ in range(100)]
for session in sessions:
    run(session)
""",
    "two_threads_on_one_session": """
session = make()
failures = []
def work():
    try:
        for _ in range(200):
            run(session)
    except BaseException as error:
        failures.append(error)
threads = [threading.Thread(target=work) for _ in range(2)]
[t.start() for t in threads]
[t.join() for t in threads]
assert not failures, failures
""",
    "two_threads_that_make_and_destroy_sessions": """
failures = []
def work():
    try:
        for _ in range(50):
            run(make())
    except BaseException as error:
        failures.append(error)
threads = [threading.Thread(target=work) for _ in range(2)]
[t.start() for t in threads]
[t.join() for t in threads]
assert not failures, failures
""",
    "registered_twice": """
for _ in range(3):
    try:
        make(2)
        raise SystemExit("registering twice was accepted")
    except Exception as error:
        assert "registry" in str(error), error
    run(make())
""",
    "options_outlive_and_precede_sessions": """
kept = ort.SessionOptions()
kept.register_custom_ops_library(myops.ort.library_path())
sessions = [ort.InferenceSession(content, kept) for _ in range(10)]
del kept
gc.collect()
for session in sessions:
    run(session)
lonely = ort.SessionOptions()
lonely.register_custom_ops_library(myops.ort.library_path())
""",
    "copied_library_beside_the_first": """
import shutil
copy = shutil.copy(myops.ort.library_path(), sys.argv[2])
for path in (copy, myops.ort.library_path(), copy):
    options = ort.SessionOptions()
    options.register_custom_ops_library(path)
    run(ort.InferenceSession(content, options))
""",
    "failed_session_before_a_good_one": """
for _ in range(20):
    try:
        ort.InferenceSession(content[:-9], ort.SessionOptions())
    except Exception:
        pass
    run(make())
""",
}


@one_spec
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_process_ends_well(spec, scenario, run_python, tmp_path):
    (tmp_path / "m.onnx").write_bytes(model([node(spec, **attributes(spec))]))
    code = COMMON + SCENARIOS[scenario] + "\nprint('done')\n"
    done = run_python(code, tmp_path / "m.onnx", tmp_path / "copy.so")
    assert done.stdout.strip() == "done"
