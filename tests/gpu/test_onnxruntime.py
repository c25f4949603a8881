# SPDX-License-Identifier: Apache-2.0
"""The plugin in a CUDA session against a CPU session. Needs onnxruntime-gpu."""

from __future__ import annotations

import json
from pathlib import Path

import myops.ort
import numpy as np
import onnxruntime
import pytest
from myops.spec import DOMAIN, DOMAIN_VERSION, NORMS, SPECS
from myops.verify import operators
from onnx import TensorProto, helper

CUDA = "CUDAExecutionProvider"
pytestmark = pytest.mark.skipif(
    CUDA not in onnxruntime.get_available_providers(),
    reason="the installed onnxruntime has no CUDA provider: pip install onnxruntime-gpu",
)

each_spec = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.torch_name)


def _feeds(spec, dtype: str, rows: int = 40, width: int = 257) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    feeds = {n: 4 * generator.normal(size=(rows, width)).astype(dtype) for n in spec.inputs}
    if spec not in NORMS:
        return {name: value.ravel() for name, value in feeds.items()}
    weight = generator.normal(size=width).astype(dtype)
    return feeds | {spec.inputs[-1]: weight}


def test_broadcast_coefficient():
    (spec,) = [spec for spec in SPECS if spec.broadcasts]
    node = helper.make_node(spec.name, spec.inputs, spec.outputs, domain=DOMAIN)
    shapes = {name: ["n", 5, "h", 7] for name in (*spec.inputs, *spec.outputs)}
    shapes[spec.inputs[1]] = [5, 1, 1]
    values = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    }
    graph = helper.make_graph(
        [node], "g", [values[n] for n in spec.inputs], [values[n] for n in spec.outputs]
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, DOMAIN_VERSION)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()
    generator = np.random.default_rng(0)
    feeds = {
        spec.inputs[0]: generator.normal(size=(3, 5, 2, 7)).astype(np.float32),
        spec.inputs[1]: generator.normal(size=(5, 1, 1)).astype(np.float32),
    }
    expected = myops.ort.session(model).run(None, feeds)
    found = myops.ort.session(model, providers=[CUDA, "CPUExecutionProvider"]).run(None, feeds)
    np.testing.assert_array_equal(found[0], expected[0])


@each_spec
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("rows", [0, 1, 40])
def test_results_of_the_cpu(spec, dtype, rows):
    model = operators.one_node_model(spec, dtype, spec.defaults()).SerializeToString()
    feeds = _feeds(spec, dtype, rows)
    expected = myops.ort.session(model).run(None, feeds)
    found = myops.ort.session(model, providers=[CUDA, "CPUExecutionProvider"]).run(None, feeds)
    for a, b in zip(found, expected, strict=True):
        if spec in NORMS:  # sums in another order
            epsilon = float(np.finfo(dtype).eps)
            np.testing.assert_allclose(a, b, rtol=16 * epsilon, atol=16 * epsilon)
        else:
            np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))


@each_spec
def test_nodes_run_on_the_gpu_without_copies_between(spec, tmp_path):
    model = operators.one_node_model(spec, "float32", spec.defaults()).SerializeToString()
    session = myops.ort.session(
        model, providers=[CUDA, "CPUExecutionProvider"], profile=tmp_path / "profile"
    )
    binding = session.io_binding()
    for name, value in _feeds(spec, "float32").items():
        binding.bind_ortvalue_input(
            name, onnxruntime.OrtValue.ortvalue_from_numpy(value, "cuda", 0)
        )
    for output in session.get_outputs():
        binding.bind_output(output.name, "cuda")
    session.run_with_iobinding(binding)
    events = json.loads(Path(session.end_profiling()).read_text())
    nodes = [e["args"] for e in events if e.get("cat") == "Node" and "provider" in e["args"]]
    assert {n["provider"] for n in nodes} == {CUDA}
    assert not [n for n in nodes if "Memcpy" in n["op_name"]]
