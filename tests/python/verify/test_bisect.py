# SPDX-License-Identifier: Apache-2.0
"""The node to blame is named, and no other."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from myops.spec import ELEMENTWISE
from myops.verify import verify_model
from myops.verify.bisect import bisect
from myops.verify.bisect_file import bisect_file
from myops.verify.parties import ALONE, PLUGIN, Party, onnx_parties
from onnx import helper

from .networks import (
    WRONG,
    add_to_function_beta,
    branch_model,
    changed,
    export,
    images,
    info,
    loop_model,
    model_of,
    network,
    our_nodes,
    scalar,
    scan_model,
    swish,
    to_float16,
    with_wrong_beta,
)

PARTIES = {party.name: party for party in onnx_parties()}
each_party = pytest.mark.parametrize("party", PARTIES.values(), ids=PARTIES)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> onnx.ModelProto:
    return export(network(), tmp_path_factory.mktemp("bisect") / "m.onnx")


@pytest.fixture(scope="module")
def half(model: onnx.ModelProto) -> onnx.ModelProto:
    return to_float16(model)


@each_party
def test_no_false_alarm(model: onnx.ModelProto, half: onnx.ModelProto, party: Party) -> None:
    for proto, inputs in ((model, images()), (half, images("float16"))):
        found = bisect(proto, inputs, party)
        assert found.ok, found.summary
        assert found.nodes == len(proto.graph.node)
        assert found.not_judged == []


@pytest.mark.parametrize("party", [PLUGIN, ALONE])
def test_a_kernel_with_a_beta_off_by_a_thousandth_is_named(
    model: onnx.ModelProto, party: str, tmp_path
) -> None:
    node = our_nodes(model)[WRONG]
    saved = tmp_path / "node.npz"
    found = bisect(model, images(), with_wrong_beta(PARTIES[party], node.name), saved)
    assert not found.ok
    assert found.wrong is not None
    assert (found.wrong.node, found.wrong.op) == (node.name, "myops::Swish")
    assert f"first wrong node '{node.name}'" in found.summary
    json.dumps(found.to_dict())
    with np.load(saved) as arrays:
        x = arrays[f"input:{node.input[0]}"].astype(np.float64)
        beta = node.attribute[0].f
        expected, received = (arrays[f"{k}:{node.output[0]}"] for k in ("expected", "received"))
    np.testing.assert_allclose(expected, x / (1 + np.exp(-beta * x)), rtol=1e-12)
    np.testing.assert_allclose(received, x / (1 + np.exp(-(beta + 1e-3) * x)), rtol=1e-5)
    assert {path.name for path in tmp_path.iterdir()} == {"node.npz"}


def test_our_kernels_are_held_to_their_promise_in_halves_too(half: onnx.ModelProto) -> None:
    """A beta that is off by a thousandth hardly shows in float16, but our kernels round once."""
    node = our_nodes(half)[WRONG]
    found = bisect(half, images("float16"), with_wrong_beta(PARTIES[PLUGIN], node.name))
    assert found.wrong is not None
    assert found.wrong.node == node.name


def test_a_wrong_decomposition_is_named_where_it_runs(model: onnx.ModelProto) -> None:
    wrong = changed(model, add_to_function_beta)
    assert bisect(wrong, images(), PARTIES[PLUGIN]).ok
    for name in (ALONE, "onnx reference"):
        found = bisect(wrong, images(), PARTIES[name])
        assert found.wrong is not None
        assert found.wrong.node == our_nodes(model)[0].name


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_a_file_that_departs_from_torch(tmp_path, exporter: str) -> None:
    module = network()
    path = tmp_path / "m.onnx"
    right = export(module, path, exporter)
    assert bisect_file(right, images(), module).ok
    node = our_nodes(right)[WRONG]

    def change(copy: onnx.ModelProto) -> None:
        our_nodes(copy)[WRONG].attribute[0].f += 1e-3

    onnx.save(changed(right, change), path)
    report = verify_model(path, module, images(), find_node=True, save_to=tmp_path / "n.npz")
    assert not report.ok
    found, runtime = report.bisections
    assert runtime.ok, "whoever runs the file runs it rightly"
    assert found.wrong is not None
    assert found.wrong.node == node.name
    assert "it has beta=1.251, the torch model calls it with" in found.summary
    with np.load(tmp_path / "n.npz") as arrays:
        difference = arrays[f"received:{node.output[0]}"] - arrays[f"expected:{node.output[0]}"]
    assert 1e-6 < np.abs(difference).max() < 1e-2


def test_a_float16_file_is_no_departure(tmp_path, half: onnx.ModelProto) -> None:
    assert bisect_file(half, images("float16"), network()).ok
    path = tmp_path / "half.onnx"
    onnx.save(half, path)
    report = verify_model(path, network(), images("float16"), find_node=True)
    assert report.ok
    assert report.off() == []
    assert all(bisection.ok for bisection in report.bisections)


@pytest.mark.parametrize(
    ("model", "x", "where", "name"),
    [
        (branch_model(True), np.linspace(-3, 3, 9), "choose/then/then_swish", "then_swish"),
        (branch_model(False), np.linspace(-3, 3, 9), "choose/else/else_swish", "else_swish"),
        (loop_model(3), np.linspace(-3, 3, 9), "repeat[0]/inner_swish", "inner_swish"),
        (scan_model(), np.linspace(-3, 3, 12).reshape(3, 4), "rows[1]/inner_swish", "inner_swish"),
    ],
    ids=["then", "else", "loop", "scan"],
)
def test_inside_bodies(model: onnx.ModelProto, x: np.ndarray, where: str, name: str) -> None:
    inputs = {"x": x.astype(np.float32)}
    right = bisect(model, inputs, PARTIES[PLUGIN])
    assert right.ok
    assert right.not_judged == []
    found = bisect(model, inputs, with_wrong_beta(PARTIES[PLUGIN], name))
    assert found.wrong is not None
    assert found.wrong.node == where


def test_what_cannot_be_judged_is_listed() -> None:
    """An operator of ONNX Runtime's own domain, and a loop longer than one looks into."""
    nodes = [
        helper.make_node("QuickGelu", ["x"], ["a"], "theirs", domain="com.microsoft", alpha=1.0),
        swish("a", "y", "ours"),
    ]
    model = model_of(nodes, [info("x")], [info("y")])
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    x = {"x": np.linspace(-3, 3, 9, dtype=np.float32)}
    found = bisect(model, x, PARTIES[PLUGIN])
    assert found.ok
    (text,) = found.not_judged
    assert text.startswith("theirs (com.microsoft::QuickGelu)")
    wrong = bisect(model, x, with_wrong_beta(PARTIES[PLUGIN], "ours"))
    assert wrong.wrong is not None
    assert wrong.wrong.node == "ours"

    assert bisect(loop_model(40), x, PARTIES[PLUGIN]).not_judged == [
        "repeat: iterations from 32 on"
    ]


def test_rounding_that_adds_up_is_not_a_wrong_node() -> None:
    """(x + 4096) - 4096 in float16: each step is right, and the result is not."""
    nodes = [
        helper.make_node("Add", ["x", "big"], ["a"], "up"),
        helper.make_node("Sub", ["a", "big"], ["y"], "down"),
    ]
    half = onnx.TensorProto.FLOAT16
    model = model_of(
        nodes,
        [info("x", ("n",), half)],
        [info("y", ("n",), half)],
        [scalar("big", 4096.0, "float16")],
    )
    found = bisect(
        model, {"x": np.linspace(0.1, 1, 9).astype(np.float16)}, PARTIES["onnx reference"]
    )
    assert found.wrong is None
    assert found.left is not None
    assert found.left.node == "down"
    assert found.outputs_off == ["y"]
    assert "rounding adds up" in found.summary


def test_a_difference_that_only_fusion_makes(model: onnx.ModelProto) -> None:
    """The runtime is wrong only while the tensor behind the node is no output."""
    right = PARTIES[PLUGIN]
    node = our_nodes(model)[WRONG]
    wrong = with_wrong_beta(right, node.name, by=0.5)
    inner = next(n.output[0] for n in model.graph.node if node.output[0] in n.input)

    def run(proto, inputs):
        shown = {value.name for value in proto.graph.output}
        return (right if node.output[0] in shown else wrong).run(proto, inputs)

    found = bisect(model, images(), Party(PLUGIN, True, run))
    assert found.fused
    assert found.left is not None
    assert found.left.tensor == inner
    assert not found.ok


@pytest.mark.parametrize("spec", ELEMENTWISE, ids=lambda spec: spec.torch_name)
def test_every_operator_is_right_in_a_tail(spec) -> None:
    """ONNX Runtime's own kernels lose a tail in relative terms: no false alarm."""
    inputs = [info(name) for name in spec.inputs]
    node = helper.make_node(
        spec.name, spec.inputs, spec.outputs, "it", domain="myops", **spec.defaults()
    )
    import myops.onnx

    model = model_of([node], inputs, [info(spec.outputs[0])])
    myops.onnx.add_functions(model)
    x = np.linspace(-14, -11, 64, dtype=np.float32)
    for party in PARTIES.values():
        assert bisect(model, dict.fromkeys(spec.inputs, x), party).ok
