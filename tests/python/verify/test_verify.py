# SPDX-License-Identifier: Apache-2.0
"""Verification: right results pass, each kind of wrong one is found and named."""

from __future__ import annotations

import json

import myops.nn
import myops.onnx
import numpy as np
import onnx
import pytest
import torch
from myops._errors import ModelError, UsageError
from myops.spec import SPECS
from myops.verify import compare, operators, verify_model, verify_operators
from myops.verify.compare import Tolerance
from onnx import numpy_helper

STRICT = Tolerance(ulp=0.5)


def test_compare_special_values() -> None:
    truth = np.array([np.nan, np.inf, -np.inf, 1e300, 0.0, 1.0])
    same = np.array([np.nan, np.inf, -np.inf, np.inf, -0.0, 1.0], np.float32)
    assert compare(same, truth, "float32", STRICT).ok
    for index, wrong in enumerate([1.0, -np.inf, np.inf, -np.inf, 1e-3, np.nan]):
        changed = same.copy()
        changed[index] = wrong
        result = compare(changed, truth, "float32", STRICT)
        assert (result.wrong, result.first_wrong) == (1, (index,))


@pytest.mark.parametrize(("dtype", "step"), [("float32", 2.0**-23), ("float16", 2.0**-10)])
def test_compare_counts_in_units_of_the_dtype(dtype: str, step: float) -> None:
    result = compare(np.array([1 + 3 * step]), np.array([1.0]), dtype, STRICT)
    assert result.max_ulp == pytest.approx(3)
    assert not result.ok
    assert compare(np.array([1 + 3 * step]), np.array([1.0]), dtype, Tolerance(ulp=3)).ok


def test_compare_refuses_other_shapes() -> None:
    with pytest.raises(ValueError, match=r"should have the shape of its truth"):
        compare(np.zeros(2), np.zeros(3), "float32", STRICT)


def test_all_operators_agree() -> None:
    report = verify_operators()
    assert report.ok
    assert {row.subject for row in report.rows} == {spec.name for spec in SPECS}
    assert {row.layer for row in report.rows} == {1}
    assert len({row.party for row in report.rows}) == 4
    assert all(row.same_bits for row in report.rows if row.party == "ORT + plugin")
    json.dumps(report.to_dict())


@pytest.mark.parametrize("party", ["torch library", "ORT + plugin"])
def test_a_wrong_kernel_of_ours_is_named(party: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if party == "torch library":
        right = operators.run_torch
        monkeypatch.setattr(operators, "run_torch", lambda *a: right(*a) * np.float32(1 + 1e-6))
    else:
        parties = operators.onnx_parties()
        plugin = parties[0]
        wrong = type(plugin)(
            plugin.name,
            plugin.ours,
            lambda model, inputs: [y * np.float32(1 + 1e-6) for y in plugin.run(model, inputs)],
        )
        monkeypatch.setattr(operators, "onnx_parties", lambda plugin=None: [wrong, *parties[1:]])
    report = verify_operators(SPECS[:1], ["float32"])
    assert not report.ok
    off = {
        row.party for row in report.rows if row.ours and not (row.comparison and row.comparison.ok)
    }
    assert off == {party}


@pytest.fixture
def model(tmp_path):
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), myops.nn.Swish(1.5), torch.nn.Linear(4, 3))
    path = tmp_path / "model.onnx"
    myops.onnx.export(module, (torch.randn(2, 4),), path, dynamic={"input": {0: "batch"}})
    return module, path


def test_model_agrees_with_torch_and_without(model) -> None:
    module, path = model
    report = verify_model(path, module, dims={"batch": 5})
    assert report.ok
    layers = [[row.party for row in report.rows if row.layer == n] for n in (1, 2)]
    assert layers == [
        ["torch library", "ORT + plugin"],
        ["torch model", "the file in float64", "ORT + plugin", "ORT alone", "onnx reference"],
    ]
    assert verify_model(path).ok


def test_a_changed_weight_is_found(model) -> None:
    module, path = model
    proto = onnx.load(path)
    weight = proto.graph.initializer[0]
    array = numpy_helper.to_array(weight) * np.float32(1.001)
    weight.CopyFrom(numpy_helper.from_array(array, weight.name))
    onnx.save(proto, path)
    report = verify_model(path, module)
    assert not report.ok
    # Whoever runs the file runs it rightly: the file is to blame.
    assert report.off() == ["the file in float64"]


def test_usage_errors(model, tmp_path) -> None:
    module, path = model
    with pytest.raises(UsageError, match="dims should name symbolic dims of the model \\(batch\\)"):
        verify_model(path, module, dims={"rows": 3})
    with pytest.raises(UsageError, match="inputs should be named input"):
        verify_model(path, module, inputs={"x": np.zeros((2, 4), np.float32)})
    (tmp_path / "inputs.npz").write_bytes(b"nothing")
    with pytest.raises(UsageError, match=r"inputs should be an \.npz file"):
        verify_model(path, module, inputs=tmp_path / "inputs.npz")
    with pytest.raises(ModelError, match="the model file should exist"):
        verify_model(tmp_path / "none.onnx")
