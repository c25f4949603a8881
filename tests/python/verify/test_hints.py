# SPDX-License-Identifier: Apache-2.0
"""Each hint is given where its cause is at work, and not where it is not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
import torch
from myops.onnx import add_functions
from myops.verify import hints, verify_model
from myops.verify.bisect import bisect
from myops.verify.parties import ALONE, PLUGIN, REFERENCE, Party, onnxruntime_party
from onnx import TensorProto, helper, numpy_helper

from .networks import info, model_of, scalar, swish

RNG = np.random.default_rng(1)


def causes(report) -> list[str]:
    return [hint.cause for hint in report.hints]


@pytest.fixture
def verified(tmp_path) -> Callable[..., object]:
    def verify(model: onnx.ModelProto, *arguments, **options):
        path = tmp_path / "m.onnx"
        onnx.save(model, path)
        return verify_model(path, *arguments, **options)

    return verify


class Misreads(torch.nn.Module):
    """Takes the elements in the order they lie in memory, as careless kernels do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.as_strided((x.numel(),), (1,)).reshape(x.shape)


def test_non_contiguous_input(verified) -> None:
    model = model_of(
        [helper.make_node("Identity", ["x"], ["y"])], [info("x", (3, 4))], [info("y", (3, 4))]
    )
    x = RNG.standard_normal((4, 3)).astype(np.float32)
    report = verified(model, Misreads(), {"x": x.T})
    assert "non-contiguous input" in causes(report)
    assert "x is made contiguous" in str(report.hints[0])
    straight = verified(model, Misreads(), {"x": np.ascontiguousarray(x.T)})
    assert straight.ok
    assert straight.hints == []


class Twice(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x


def test_layout(verified) -> None:
    """A file that transposes, of a model that does not."""
    shape = (2, 4, 4, 4)
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["a"]),
        helper.make_node("Transpose", ["a"], ["y"], perm=[0, 2, 3, 1]),
    ]
    model = model_of(nodes, [info("x", shape)], [info("y", shape)], [scalar("two", 2.0)])
    x = RNG.standard_normal(shape).astype(np.float32)
    report = verified(model, Twice(), {"x": x})
    assert not report.ok
    assert causes(report) == ["layout"]
    assert "numpy.transpose(y, (0, 3, 1, 2))" in str(report.hints[0])


def test_layout_of_a_runtime() -> None:
    """A runtime that reads its inputs in the other order."""
    nodes = [helper.make_node("Mul", ["x", "ramp"], ["y"])]
    shape = (1, 3, 2, 2)
    ramp = scalar("ramp", np.arange(3.0).reshape(3, 1, 1))
    model = model_of(nodes, [info("x", shape)], [info("y", shape)], [ramp])
    x = {"x": RNG.standard_normal(shape).astype(np.float32)}

    def nhwc(proto, inputs):
        order = {n: np.transpose(a.reshape(1, 2, 2, 3), (0, 3, 1, 2)) for n, a in inputs.items()}
        return onnxruntime_party(False).run(proto, order)

    truth = [x["x"].astype(np.float64) * np.arange(3.0).reshape(3, 1, 1)]
    party = Party(ALONE, False, nhwc)
    hint = hints.layout(party, model, x, party.run(model, x), truth, 1e-6)
    assert hint is not None
    assert "numpy.transpose(x, (0, 2, 3, 1))" in hint.evidence
    right = onnxruntime_party(False)
    assert hints.layout(right, model, x, right.run(model, x), [truth[0] + 1], 1e-6) is None


def test_implicit_float64() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["d"], "widen", to=TensorProto.DOUBLE),
        helper.make_node("Mul", ["d", "scale"], ["e"], "scale_it"),
        helper.make_node("Cast", ["e"], ["y"], "narrow", to=TensorProto.FLOAT),
    ]
    model = model_of(nodes, [info("x")], [info("y")], [scalar("scale", 0.1, "float64")])
    hint = hints.implicit_float64(model)
    assert hint is not None
    assert "'widen' (Cast)" in hint.evidence
    plain = model_of([swish("x", "y", "s")], [info("x")], [info("y")])
    assert hints.implicit_float64(plain) is None


def test_decomposition_that_overflows(verified) -> None:
    """Our kernel computes float16 in float32 and rounds once; the body here does not."""
    half = TensorProto.FLOAT16
    model = model_of(
        [swish("x", "y", "s", beta=10.0)], [info("x", ("n",), half)], [info("y", ("n",), half)]
    )
    add_functions(model)
    function = model.functions[0]
    del function.node[:]
    function.node.extend(
        [
            helper.make_node("Constant", [], ["b"], value=scalar("", -10.0, "float16")),
            helper.make_node("Constant", [], ["one"], value=scalar("", 1.0, "float16")),
            helper.make_node("Mul", ["x", "b"], ["z"]),
            helper.make_node("Exp", ["z"], ["e"]),
            helper.make_node("Add", ["e", "one"], ["below"]),
            helper.make_node("Mul", ["below", "below"], ["squared"]),
            helper.make_node("Mul", ["x", "below"], ["above"]),
            helper.make_node("Div", ["above", "squared"], ["y"]),
        ]
    )
    x = np.linspace(-2, 2, 64).astype(np.float16)
    report = verified(model, inputs={"x": x})
    assert report.ok, "with the plugin"
    assert report.off() == [REFERENCE]  # ONNX Runtime itself computes this one in float32
    assert "decomposition" in causes(report)
    assert "overflow" in str(next(h for h in report.hints if h.cause == "decomposition"))


def test_optimization() -> None:
    """A runtime that is right without its optimisations; the real one stands in for it."""
    model = model_of([swish("x", "y", "s")], [info("x")], [info("y")])
    x = {"x": np.linspace(-3, 3, 16, dtype=np.float32)}
    right = x["x"].astype(np.float64) / (1 + np.exp(-1.5 * x["x"].astype(np.float64)))
    party = onnxruntime_party(None)
    hint = hints.optimization(party, None, model, x, [right], 1e-6)
    assert hint is not None
    assert f"{PLUGIN} is right with graph_optimization_level='disable'" in hint.evidence
    assert hints.optimization(party, None, model, x, [right + 1], 1e-6) is None


@pytest.mark.parametrize("nearest", [True, False])
def test_tf32(nearest: bool) -> None:
    """A product in TF32, as GPUs may compute it, against one that is wrong otherwise."""
    weight = RNG.standard_normal((32, 8)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "product")]
    initializers = [numpy_helper.from_array(weight, "w")]
    model = model_of(nodes, [info("x", (4, 32))], [info("y", (4, 8))], initializers)
    x = {"x": RNG.standard_normal((4, 32)).astype(np.float32)}

    def in_tf32(proto, inputs):
        left, right = (hints.to_tf32(a, nearest) for a in (inputs["x"], weight))
        return [left @ right]

    found = bisect(model, x, Party(ALONE, False, in_tf32))
    assert found.wrong is not None
    assert found.wrong.node == "product"
    hint = hints.tf32(found)
    assert hint is not None
    assert "allow_tf32" in hint.evidence

    off = Party(ALONE, False, lambda proto, inputs: [inputs["x"] @ weight * np.float32(1.0005)])
    assert hints.tf32(bisect(model, x, off)) is None


def test_to_tf32_keeps_ten_bits() -> None:
    values = np.float32([1 + 2.0**-10, 1 + 2.0**-11, 1 + 3 * 2.0**-11, -1 - 2.0**-12])
    assert hints.to_tf32(values).tolist() == [1 + 2.0**-10, 1.0, 1 + 2.0**-9, -1.0]
    assert hints.to_tf32(values, nearest=False).tolist() == [1 + 2.0**-10, 1, 1 + 2.0**-10, -1.0]


def test_a_reference_in_doubt() -> None:
    """Runtimes that agree with each other and not with onnx's evaluator."""
    nodes = [helper.make_node("Exp", ["x"], ["y"], "theirs")]
    model = model_of(nodes, [info("x")], [info("y")])
    x = {"x": np.linspace(-1, 1, 9, dtype=np.float32)}
    other = [np.exp(x["x"]) * np.float32(1.5)]
    found = bisect(model, x, Party(ALONE, False, lambda proto, inputs: other))
    hint = hints.reference_in_doubt(found, [other, other])
    assert hint is not None
    assert "'theirs' (Exp)" in hint.evidence
    assert hints.reference_in_doubt(found, [other, [other[0] + 1]]) is None
    assert hints.reference_in_doubt(found, [other]) is None


def test_no_hints_where_all_agree(verified) -> None:
    model = model_of([swish("x", "y", "s")], [info("x")], [info("y")])
    add_functions(model)
    assert verified(model).hints == []


def test_an_experiment_that_fails_gives_no_hint() -> None:
    def fails() -> None:
        raise RuntimeError("cannot be made")

    assert hints.safely((fails,), (lambda: hints.Hint("a", "b"),)) == [hints.Hint("a", "b")]
