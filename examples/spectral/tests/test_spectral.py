# SPDX-License-Identifier: Apache-2.0
"""The operators through the whole chain: torch, export, both plugins in one session."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from myops import functional, nn, onnx, ort
from myops.verify import verify_operators

from spectral import SPECS

each_spec = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)


def samples(spec, dtype=torch.float64):
    arrays = spec.sample(np.random.default_rng(1))
    return [torch.from_numpy(array).to(dtype) for array in arrays]


@each_spec
def test_all_layers_agree_with_float64(spec):
    report = verify_operators([spec])
    assert report.ok, report.details()
    assert {row.party for row in report.rows if row.ours} == {"torch library", "ORT + plugin"}
    assert all(row.comparison is not None for row in report.rows if row.ours)


@each_spec
def test_gradient(spec):
    inputs = [each.requires_grad_() for each in samples(spec)]
    assert torch.autograd.gradcheck(getattr(functional, spec.torch_name), inputs)


@each_spec
def test_strides_do_not_matter(spec):
    inputs = samples(spec)
    doubled = [torch.stack([each, each], -1)[..., 0] for each in inputs]
    function = getattr(functional, spec.torch_name)
    for left, right in zip(function(*inputs), function(*doubled), strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=0)


@each_spec
def test_what_does_not_fit_is_refused(spec):
    function = getattr(functional, spec.torch_name)
    with pytest.raises(ValueError, match=rf"\[{spec.torch_name}\]"):
        function(*(each[..., :0] for each in samples(spec)))
    with pytest.raises(TypeError, match="floating-point"):
        function(*(each.long() for each in samples(spec)))


@each_spec
@pytest.mark.parametrize("mode", ["portable", "custom", "native"])
@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_export_and_both_plugins_in_one_session(tmp_path, spec, mode, exporter):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.operator = getattr(nn, spec.name)()
            self.activation = nn.Swish(1.75)

        def forward(self, x, w):
            first, *others = self.operator(x, w)
            return (self.activation(first), *others)

    inputs = samples(spec, torch.float32)
    report = onnx.export(
        Model(),
        tuple(inputs),
        tmp_path / "m.onnx",
        mode=mode,
        exporter=exporter,
        dynamic={"x": {0: "batch"}},
    )
    if mode != "native":
        assert {f"{spec.namespace}::{spec.name}", "myops::Swish"} <= set(report.nodes)
    session = ort.session(tmp_path / "m.onnx", profile=tmp_path / "profile")
    batch = torch.cat([inputs[0], inputs[0]])
    feeds = {"x": batch.numpy(), "w": inputs[1].numpy()}
    results = session.run(None, feeds)
    for result, expected in zip(results, Model()(batch, inputs[1]), strict=True):
        np.testing.assert_allclose(result, expected.numpy(), rtol=1e-5, atol=1e-5)
    events = json.loads(Path(session.end_profiling()).read_text())
    ran = {event["args"]["op_name"] for event in events if event.get("cat") == "Node"}
    assert ({spec.name, "Swish"} <= ran) == (mode != "native")
