# SPDX-License-Identifier: Apache-2.0
"""The plugin in a CUDA session against a CPU session. Needs onnxruntime-gpu."""

from __future__ import annotations

import json
from pathlib import Path

import myops.ort
import numpy as np
import onnxruntime
import pytest
from myops.spec import NORMS, SPECS
from myops.verify import operators

CUDA = "CUDAExecutionProvider"
pytestmark = pytest.mark.skipif(
    CUDA not in onnxruntime.get_available_providers(),
    reason="the installed onnxruntime has no CUDA provider: pip install onnxruntime-gpu",
)

each_spec = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.torch_name)


def _feeds(spec, dtype: str, rows: int = 40, width: int = 257) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    feeds = {n: generator.normal(size=(rows, width)).astype(dtype) * 4 for n in spec.inputs}
    if spec in NORMS or spec.broadcasts:
        feeds[spec.inputs[-1]] = feeds[spec.inputs[-1]][0]
    return feeds


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
