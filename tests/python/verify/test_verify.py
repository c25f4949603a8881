# SPDX-License-Identifier: Apache-2.0
"""Verification: right results pass, each kind of wrong one is found and named."""

from __future__ import annotations

import json

import myops.functional
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
from myops.verify.tolerances import MODEL_TOLERANCE, model_tolerance, parse_tolerances, precision
from onnx import TensorProto, helper, numpy_helper

from .networks import info, model_of, scalar, swish

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


def test_signed_zeros_where_asked_for() -> None:
    truth = np.array([-0.0, 0.0, -1e-60, 1.0])
    result = np.array([0.0, 0.0, -0.0, 1.0], np.float32)
    loose = Tolerance(absolute=1e-30)
    assert compare(result, truth, "float32", loose).ok
    strict = compare(result, truth, "float32", loose, signed_zeros=True)
    assert (strict.wrong, strict.first_wrong) == (1, (0,))


def test_what_stands_at_the_first_wrong_element() -> None:
    result = compare(np.array([1.0, 2.0, np.nan]), np.array([1.0, 2.5, 3.0]), "float32", STRICT)
    assert (result.first_wrong, result.received, result.expected) == ((1,), 2.0, 2.5)
    assert (result.wrong, result.special) == (2, 1)


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
    with pytest.raises(UsageError, match=r"as name\.axis: batch, input\.0"):
        verify_model(path, module, dims={"rows": 3})
    with pytest.raises(UsageError, match="inputs should be named input"):
        verify_model(path, module, inputs={"x": np.zeros((2, 4), np.float32)})
    (tmp_path / "inputs.npz").write_bytes(b"nothing")
    with pytest.raises(UsageError, match=r"inputs should be an \.npz file"):
        verify_model(path, module, inputs=tmp_path / "inputs.npz")
    with pytest.raises(ModelError, match="the model file should exist"):
        verify_model(tmp_path / "none.onnx")


def test_operators_with_another_limit() -> None:
    report = verify_operators(SPECS[:1], ["float32"], max_ulp={"float32": 0.1})
    assert not report.ok
    assert report.off()[:2] == ["torch library", "ORT + plugin"]
    assert verify_operators(SPECS[:1], ["float32"], max_ulp={"float16": 0.1}).ok


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1e-3"], dict.fromkeys(MODEL_TOLERANCE, 1e-3)),
        (["float16=0.1", "bfloat16=0.2"], {"float16": 0.1, "bfloat16": 0.2}),
        (["1", "float64=0"], dict.fromkeys(MODEL_TOLERANCE, 1.0) | {"float64": 0.0}),
        ([], {}),
    ],
)
def test_tolerances(texts, expected) -> None:
    assert parse_tolerances(texts) == expected


@pytest.mark.parametrize("text", ["", "much", "float15=1", "float16=", "-1", "nan"])
def test_tolerances_of_another_form(text: str, check_message) -> None:
    with pytest.raises(UsageError, match="--tolerance has the form") as error:
        parse_tolerances([text])
    check_message(error.value)


def test_the_coarsest_dtype_decides() -> None:
    half, wide = TensorProto.FLOAT16, TensorProto.FLOAT
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=half),
        helper.make_node("Exp", ["h"], ["e"]),
        helper.make_node("Cast", ["e"], ["y"], to=wide),
    ]
    model = model_of(nodes, [info("x")], [info("y")])
    assert model_tolerance(model) == MODEL_TOLERANCE["float16"]
    assert model_tolerance(model, {"float16": 0.5, "float32": 0.1}) == 0.5
    assert model_tolerance(model, {"float32": 0.1}) == MODEL_TOLERANCE["float16"]
    assert model_tolerance(model, 0.25) == 0.25
    quantized = helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])
    model.graph.node.append(quantized)
    assert precision(model) == "quantized"


def test_inputs_in_the_other_layout(tmp_path, check_message) -> None:
    shape = (1, 3, 4, 5)
    model = model_of(
        [helper.make_node("Exp", ["x"], ["y"])], [info("x", shape)], [info("y", shape)]
    )
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(UsageError, match="This looks like NHWC") as error:
        verify_model(tmp_path / "m.onnx", inputs={"x": np.zeros((1, 4, 5, 3), np.float32)})
    check_message(error.value)
    with pytest.raises(UsageError, match="float64 is numpy's default") as error:
        verify_model(tmp_path / "m.onnx", inputs={"x": np.zeros(shape)})
    check_message(error.value)


def test_a_torch_model_that_does_not_fit(model, check_message) -> None:
    _, path = model
    with pytest.raises(ModelError, match="the torch model should run on the inputs") as error:
        verify_model(path, torch.nn.Linear(5, 3))
    check_message(error.value)

    class Two(torch.nn.Module):
        def forward(self, input: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return input, input

    with pytest.raises(ModelError, match="should give the file's 1 outputs") as error:
        verify_model(path, Two())
    check_message(error.value)


def test_a_torch_model_that_has_no_float64_form(tmp_path) -> None:
    """It is held against the file in float64, with the reason in its row."""

    class Narrow(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return myops.functional.swish(self.linear(x.float()))

    module, path = Narrow(), tmp_path / "m.onnx"
    myops.onnx.export(module, (torch.randn(2, 4),), path)
    report = verify_model(path, module)
    assert report.ok
    row = next(row for row in report.rows if row.party == "torch model")
    assert row.note


def test_where_onnx_has_no_float64_either(tmp_path, check_message) -> None:
    """A model with an operator that onnx's evaluator lacks needs the torch model."""
    nodes = [helper.make_node("QuickGelu", ["x"], ["y"], domain="com.microsoft", alpha=1.0)]
    proto = model_of(nodes, [info("x", (4,))], [info("y", (4,))])
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="Pass the torch model") as error:
        verify_model(tmp_path / "m.onnx")
    check_message(error.value)

    class Silu(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.silu(x)

    report = verify_model(tmp_path / "m.onnx", Silu())
    assert report.ok
    assert report.truth == "the torch model in float64"


def test_inputs_that_no_runtime_takes(tmp_path, check_message, run_myops) -> None:
    """Sizes that fit the signature and not the model."""
    weight = scalar("w", np.ones((3, 2)))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    model = model_of(nodes, [info("x", ("n", "k"))], [info("y", ("n", 2))], [weight])
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="the model should run on its inputs") as error:
        verify_model(tmp_path / "m.onnx")
    check_message(error.value)
    assert verify_model(tmp_path / "m.onnx", dims={"k": 3}).ok
    done = run_myops(tmp_path, "verify", "m.onnx", "--check-finite")
    assert done.returncode == 1
    assert "ONNX Runtime should run the model on these inputs" in done.stderr


def test_integer_outputs_must_be_equal(tmp_path) -> None:
    outputs = [info("best", (), TensorProto.INT64)]
    model = model_of(
        [helper.make_node("ArgMax", ["x"], ["best"], keepdims=0)], [info("x", (9,))], outputs
    )
    onnx.save(model, tmp_path / "m.onnx")
    rows = [row for row in verify_model(tmp_path / "m.onnx").rows if row.layer == 2]
    assert {(row.dtype, row.verdict, str(row.tolerance)) for row in rows} == {
        ("int64", "ok", "0.0e+00")
    }


def test_command_line(tmp_path, run_myops) -> None:
    path = tmp_path / "m.onnx"
    half = TensorProto.FLOAT16
    nodes = [swish("x", "a", "first"), helper.make_node("Mul", ["a", "a"], ["y"], "square")]
    onnx.save(model_of(nodes, [info("x", ("n",), half)], [info("y", ("n",), half)]), path)
    np.savez(tmp_path / "small.npz", x=np.float16([1, 2, 3]))
    np.savez(tmp_path / "large.npz", x=np.float16([1, 2, 300]))
    files = ("verify", "m.onnx", "--inputs")
    done = run_myops(tmp_path, *files, "small.npz", "--bisect")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Bisect ORT + plugin, 2 nodes: every node is right" in done.stdout
    assert run_myops(tmp_path, *files, "small.npz", "--check-finite").returncode == 0
    done = run_myops(tmp_path, *files, "large.npz", "--check-finite")
    assert done.returncode == 1
    assert "made by 'square' (Mul, float16) from a 300; float64 gives 90000" in done.stdout
    done = run_myops(tmp_path, *files, "small.npz", "--json", "--tolerance", "float16=1e-9")
    assert done.returncode == 1
    assert json.loads(done.stdout)["off"] == ["ORT + plugin"]
    np.savez(tmp_path / "other.npz", x=np.float16([[1]]))
    done = run_myops(tmp_path, *files, "other.npz", "--check-finite")
    assert done.returncode == 2
    assert "should have the shape ['n']" in done.stderr
    for wrong in (("--bisect",), ("m.onnx", "--tolerance", "x=1"), ("--ulp", "float15=1")):
        assert run_myops(tmp_path, "verify", *wrong).returncode == 2
