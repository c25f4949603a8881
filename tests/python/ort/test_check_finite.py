# SPDX-License-Identifier: Apache-2.0
"""MYOPS_CHECK_FINITE: one message on standard error that names node, element and inputs."""

from __future__ import annotations

import pytest

RUN = """
import sys
import numpy as np
import myops.ort
from myops.spec import SPECS
from myops.verify import operators
(spec,) = [spec for spec in SPECS if spec.name == sys.argv[1]]
dtype, bad = sys.argv[2], float(sys.argv[3])
model = operators.one_node_model(spec, dtype, spec.defaults()).SerializeToString()
feeds = {name: np.full((3, 5), 2, dtype) for name in spec.inputs}
feeds[spec.inputs[0]][1, 2] = bad
if spec.kind == "norm":
    feeds[spec.inputs[-1]] = np.full(5, 2, dtype)
else:
    feeds = {name: value.ravel() for name, value in feeds.items()}
session = myops.ort.session(model)
for _ in range(3):
    session.run(None, feeds)
"""


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize(
    ("operator", "output", "values"),
    [
        ("Swish", "y", "x = inf"),
        ("SwiGLU", "y", "gate = inf, x = 2"),
        ("SwishTensor", "y", "x = inf, beta = 2"),
        ("AddRMSNorm", "sum", "x = inf, residual = 2, weight = 2"),
    ],
)
def test_first_value_that_is_not_finite(run_python, operator, output, values, dtype):
    env = {"MYOPS_CHECK_FINITE": "1"}
    (line,) = run_python(RUN, operator, dtype, "inf", env=env).stderr.splitlines()
    assert line.startswith(f'[{operator}] {output} of node "node" should be finite')
    assert f"Received inf at element 7 of 15 from {values}." in line


@pytest.mark.parametrize(("value", "bad"), [("1", "1"), ("0", "inf"), ("", "nan"), (None, "inf")])
def test_silent_where_all_is_finite_or_nobody_asked(run_python, value, bad):
    env = {} if value is None else {"MYOPS_CHECK_FINITE": value}
    assert run_python(RUN, "Swish", "float32", bad, env=env).stderr == ""
