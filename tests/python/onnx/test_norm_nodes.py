# SPDX-License-Identifier: Apache-2.0
"""The norms in ONNX: exports, bodies, and what the plugin refuses."""

from __future__ import annotations

import itertools
from pathlib import Path

import myops.nn
import myops.ort
import numpy as np
import onnx
import pytest
import torch
from myops._errors import ModelError
from myops.onnx import add_functions, expand, export
from myops.onnx import model as onnx_model
from myops.spec import DOMAIN, NORMS, OpSpec
from onnx import helper, inliner
from onnx.reference import ReferenceEvaluator

from ..support import each_norm, norm_values
from .models import info, model_of
from .support import DTYPES, MODES, our_nodes, plain_session

WIDTH = 7
NUMPY = {"float32": np.float32, "float64": np.float64, "float16": np.float16}

# In epsilons of what is stored, for values below 8. The body computes the halves in float32.
TOLERANCE = {"float32": 1e-5, "float64": 1e-13, "float16": 2e-3}

EXPORTS = [
    *(("torchscript", opset) for opset in (9, 13, 17, 18)),
    *(("dynamo", opset) for opset in (18, 23)),
]

# What of an operator's results a model uses.
USES = [
    (spec, used)
    for spec in NORMS
    for n in range(1, len(spec.outputs) + 1)
    for used in itertools.combinations(range(len(spec.outputs)), n)
]
each_use = pytest.mark.parametrize(
    ("spec", "used"), USES, ids=lambda v: getattr(v, "torch_name", None) or "-".join(map(str, v))
)


def attributes(spec: OpSpec) -> dict[str, float]:
    """Values that float32 holds, other than the defaults."""
    return {
        name: value if name == "eps" else float(np.float32(value * 1.25 + 0.125))
        for name, value in norm_values(spec, 0.0625).items()
    }


class Net(torch.nn.Module):
    """The operator, and behind each result that is used a reshape which needs to know the dims."""

    def __init__(self, spec: OpSpec, used: tuple[int, ...], dtype: str) -> None:
        super().__init__()
        self.spec, self.used = spec, used
        weight = torch.linspace(-1.5, 2, WIDTH, dtype=torch.float64).to(DTYPES[dtype])
        self.weight = torch.nn.Parameter(weight)

    def forward(self, x: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, ...]:
        # Both arguments are inputs of every model.
        rows = [x, other] if len(self.spec.inputs) == 3 else [x + other]
        operator = getattr(torch.ops.myops, self.spec.torch_name)
        outcome = operator(*rows, self.weight, *attributes(self.spec).values())
        results = outcome if isinstance(outcome, tuple) else (outcome,)
        return tuple(results[i].reshape(x.shape[0], -1) for i in self.used)

    def example(self, rows: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(rows)
        x = torch.randn(2, rows, 3, WIDTH, generator=generator, dtype=torch.float64)
        return tuple((x * 2).to(self.weight.dtype))


def _run(session, inputs: tuple[torch.Tensor, ...]) -> list[np.ndarray]:
    names = [value.name for value in session.get_inputs()]
    return session.run(None, dict(zip(names, (t.numpy() for t in inputs), strict=True)))


def _close(actual, expected, dtype: str) -> None:
    for a, b in zip(actual, expected, strict=True):
        wide = b.detach().double().numpy() if isinstance(b, torch.Tensor) else b
        np.testing.assert_allclose(
            a.astype(np.float64), wide, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype]
        )


@each_use
@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize(("exporter", "opset"), EXPORTS)
@pytest.mark.parametrize("mode", MODES)
def test_export(spec, used, dtype, exporter, opset, mode, tmp_path):
    if exporter == "dynamo" and (dtype != "float32") and (opset != 18 or mode != "portable"):
        return  # an export by dynamo takes most of a second; dtypes differ behind it only
    net, path = Net(spec, used, dtype), tmp_path / "m.onnx"
    report = export(
        net,
        net.example(),
        path,
        mode=mode,
        opset=opset,
        dynamic={"x": {0: "N"}, "other": {0: "N"}},
        exporter=exporter,
    )
    model = onnx.load(path)
    onnx.checker.check_model(str(path), full_check=mode != "custom")
    assert onnx_model.opset(model) == opset
    assert report.calls == {spec.name: 1}
    for value in model.graph.input:
        assert onnx_model.dims(value) == ["N", 3, WIDTH]
    for value in model.graph.output:
        assert onnx_model.dims(value) == ["N", 3 * WIDTH]
    nodes = our_nodes(model)
    assert len(nodes) == (0 if mode == "native" else 1)
    for node in nodes:
        assert node.op_type == spec.name
        assert {a.name: a.f for a in node.attribute} == attributes(spec)
    wide = Net(spec, used, "float64")
    wide.weight.data = net.weight.detach().double()
    for rows in (2, 5):
        inputs = net.example(rows)
        exact = wide(*(tensor.double() for tensor in inputs))
        if mode != "custom":
            _close(_run(plain_session(path), inputs), exact, dtype)
        if mode != "native":
            fused = _run(myops.ort.session(path), inputs)
            _close(fused, exact, dtype)
            for a, b in zip(fused, net(*inputs), strict=True):
                assert torch.equal(torch.from_numpy(a), b), "not the bits of torch"


@pytest.mark.parametrize(("exporter", "opset"), EXPORTS)
@pytest.mark.parametrize("normalized", [WIDTH, (3, WIDTH)], ids=str)
@pytest.mark.parametrize("affine", [True, False], ids=["affine", "plain"])
def test_export_of_the_module(exporter, opset, normalized, affine, tmp_path):
    net = myops.nn.RMSNorm(normalized, elementwise_affine=affine)
    path, x = tmp_path / "m.onnx", torch.randn(2, 3, WIDTH)
    export(net, x, path, opset=opset, exporter=exporter, dynamic={"x": {0: "N"}})
    model = onnx.load(path)
    assert [node.op_type for node in our_nodes(model)] == ["RMSNorm"]
    assert onnx_model.dims(model.graph.output[0]) == ["N", 3, WIDTH]
    for rows in (2, 5):
        x = torch.randn(rows, 3, WIDTH)
        for session in (plain_session(path), myops.ort.session(path)):
            _close(_run(session, (x,)), (net(x),), "float32")


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_chain_of_residuals(exporter, tmp_path):
    """A transformer's joints: each sum is the next one's residual."""

    class Chain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = torch.nn.ModuleList(myops.nn.RMSNorm(WIDTH) for _ in range(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y, total = x, x
            for norm in self.norms:
                y, total = norm(y, total)
            return y

    net, path, x = Chain(), tmp_path / "m.onnx", torch.randn(3, WIDTH)
    report = export(net, x, path, exporter=exporter)
    assert report.operators == {"AddRMSNorm": 4}
    for session in (plain_session(path), myops.ort.session(path)):
        before = x.clone()
        _close(_run(session, (x,)), (net(x),), "float32")
        assert torch.equal(x, before), "nodes work in place on what only they read"


def _model(
    spec: OpSpec,
    dtype: str = "float32",
    opset: int = 18,
    shapes: dict[str, tuple] | None = None,
    outputs: tuple[str, ...] | None = None,
    **values: float,
) -> onnx.ModelProto:
    """One node. An output of an empty name is not made."""
    outputs = spec.outputs if outputs is None else outputs
    names = [name for name in outputs if name]
    node = helper.make_node(spec.name, spec.inputs, outputs, "the_node", domain=DOMAIN, **values)
    shapes = shapes or {}
    rows = ("N", WIDTH)
    return model_of(
        [node],
        [
            info(name, dtype, shapes.get(name, (WIDTH,) if name == "weight" else rows))
            for name in spec.inputs
        ],
        [info(name, dtype, ("N", WIDTH)) for name in names],
        opset,
    )


def _feeds(spec: OpSpec, dtype: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        name: (2 * rng.standard_normal((WIDTH,) if name == "weight" else (5, WIDTH))).astype(
            NUMPY[dtype]
        )
        for name in spec.inputs
    }


def _exact(spec: OpSpec, feeds: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    wide = [feeds[name].astype(np.float64) for name in spec.inputs]
    outcome = spec.reference(*wide, **attributes(spec))
    return outcome if isinstance(outcome, tuple) else (outcome,)


def _save(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "m.onnx"
    onnx.save(model, path)
    return path


@each_norm
@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("opset", [9, 11, 13, 17, 18, 23])
@pytest.mark.parametrize("way", [add_functions, expand])
def test_bodies_under_the_reference_evaluator(spec, dtype, opset, way):
    """Needs nothing but the onnx package."""
    model = _model(spec, dtype, opset, **attributes(spec))
    way(model)
    onnx.checker.check_model(model, full_check=True)
    if way is add_functions and opset < 12:
        # The evaluator does not hand a function's attributes to LeakyRelu; inlined they are there.
        model = inliner.inline_local_functions(model)
    feeds = _feeds(spec, dtype)
    outcome = ReferenceEvaluator(model).run(None, feeds)
    assert all(y.dtype == NUMPY[dtype] for y in outcome)
    _close(outcome, _exact(spec, feeds), dtype)


@each_use
@pytest.mark.parametrize("dtype", NUMPY)
def test_results_that_nobody_reads(spec, used, dtype, tmp_path):
    """They may have no name. Expanded they are gone; of the node ONNX Runtime wants all."""
    outputs = tuple(name if i in used else "" for i, name in enumerate(spec.outputs))
    feeds = _feeds(spec, dtype)
    exact = [y for i, y in enumerate(_exact(spec, feeds)) if i in used]
    for given in {outputs, outputs[: max(used) + 1]}:
        model = _model(spec, dtype, outputs=given, **attributes(spec))
        if given == spec.outputs:
            fused = myops.ort.session(_save(model, tmp_path)).run(None, feeds)
            _close(fused, exact, dtype)
        else:
            with pytest.raises(ModelError, match="the_node"):
                myops.ort.session(_save(model, tmp_path))
        expand(model)
        onnx.checker.check_model(model, full_check=True)
        _close(plain_session(_save(model, tmp_path)).run(None, feeds), exact, dtype)


# What is wrong with an input: its shape, and a word of the plugin's sentence.
WRONG = {
    "weight_size": ("weight", (WIDTH - 1,), "weight should have the size"),
    "weight_of_one": ("weight", (1,), "weight should have the size"),
    "weight_dims": ("weight", (1, WIDTH), "weight should have the size"),
    "weight_scalar": ("weight", (), "weight should have the size"),
    "x_scalar": ("x", (), "weight should have the size"),
    "residual_row": ("residual", (WIDTH,), "residual should have the shape"),
    "residual_one": ("residual", (1, WIDTH), "residual should have the shape"),
}


@each_norm
@pytest.mark.parametrize("what", WRONG)
def test_plugin_names_a_wrong_shape(spec, what, tmp_path):
    name, shape, sentence = WRONG[what]
    if name not in spec.inputs:
        return
    model = _model(spec, shapes={name: shape})
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=output) for output in spec.outputs)
    feeds = {**_feeds(spec, "float32"), name: np.ones(shape, np.float32)}
    with pytest.raises(Exception, match=sentence) as raised:
        myops.ort.session(_save(model, tmp_path)).run(None, feeds)
    assert f"[{spec.name}]" in str(raised.value)
    assert "Received" in str(raised.value)


@each_norm
def test_plugin_refuses_attributes(spec, tmp_path):
    """Not finite, or below what the ``OpSpec`` says is the lowest."""
    for attribute in spec.attributes:
        below = [attribute.lowest - 1e-6] if np.isfinite(attribute.lowest) else []
        for wrong in (*below, float("nan"), float("inf")):
            path = _save(_model(spec, **{attribute.name: wrong}), tmp_path)
            with pytest.raises(ModelError, match=attribute.name) as raised:
                myops.ort.session(path)
            assert "the_node" in str(raised.value)


@each_norm
@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("rows", [0, 1, 3001])
def test_rows_and_threads(spec, dtype, rows, tmp_path):
    path = _save(_model(spec, dtype, **attributes(spec)), tmp_path)
    weight = _feeds(spec, dtype)["weight"]
    rng = np.random.default_rng(1)
    feeds = {n: rng.standard_normal((rows, WIDTH)).astype(NUMPY[dtype]) for n in spec.inputs}
    feeds["weight"] = weight
    one, two = (myops.ort.session(path, intra_op_num_threads=n).run(None, feeds) for n in (1, 2))
    for a, b, exact in zip(one, two, _exact(spec, feeds), strict=True):
        np.testing.assert_array_equal(a, b)
        _close([a], [exact], dtype)
