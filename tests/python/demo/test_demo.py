# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import json

import numpy as np
import pytest
import torch
from myops import demo
from myops._errors import MissingPackageError, MyopsError, UsageError
from myops.demo import chain, train
from rich.console import Console


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "new" / "folder"
    text = io.StringIO()
    before = torch.get_num_threads(), torch.random.get_rng_state()
    result = demo.run_demo(out, quick=True, console=Console(file=text, width=80))
    assert torch.get_num_threads() == before[0]
    assert torch.equal(torch.random.get_rng_state(), before[1])
    return out, result, text.getvalue()


def test_learns(finished):
    _, result, _ = finished
    assert result.accuracy > 0.95
    assert result.ok


def test_files(finished):
    out, result, _ = finished
    for name in ("model.onnx", "report.json", "report.png", "report.md"):
        assert (out / name).stat().st_size > 1000, name
    assert (out / "report.png").read_bytes().startswith(b"\x89PNG")
    on_disk = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert on_disk == set(result.files)


def test_every_mode_through_every_exporter(finished):
    _, result, _ = finished
    found = {(e.report.mode, e.report.exporter): e for e in result.exports}
    assert len(found) == len(result.exports) == 6
    for (mode, _), exported in found.items():
        nodes = exported.report.nodes
        assert nodes.count("myops::Swish") == (0 if mode == "native" else 3)
        assert nodes.count("Sigmoid") == (3 if mode == "native" else 0)
        assert set(exported.functions) == ({"myops::Swish"} if mode == "portable" else set())
        with_plugin, without = exported.runs
        assert with_plugin.plugin and not without.plugin
        assert ("Swish" in with_plugin.kernels) == (mode != "native")
        assert "Swish" not in without.kernels
        if mode == "custom":
            assert without.note.startswith("refused: [myops.ort]")
        else:
            assert without.same_predictions


def test_json(finished):
    out, result, _ = finished
    report = json.loads((out / "report.json").read_text())
    assert report["ok"] is True
    assert report["accuracy"] == result.accuracy
    assert len(report["epochs"]) == len(result.epochs)
    assert {e["mode"] for e in report["exports"]} == {"native", "custom", "portable"}
    assert report["verification"]["operators"]["ok"]
    assert report["verification"]["model"]["ok"]
    names = {row["name"] for row in report["benchmark"]["rows"]}
    assert {"F.silu", "x*sigmoid(x)", "decomposed", "fused", "myops"} <= names


def test_tables_are_on_the_console_and_in_the_report(finished):
    out, _, text = finished
    markdown = (out / "report.md").read_text()
    for expected in ("Conv → myops::Swish", "refused", "F.silu", "float64"):
        assert expected in text
        assert expected in markdown
    assert "All checks hold" in text
    assert "…" not in text


def test_model_file_runs(finished):
    from myops import ort

    out, result, _ = finished
    digits = train.Digits.load()
    scores = ort.session(out / "model.onnx").run(None, {"x": digits.test_x})[0]
    assert train.accuracy(np.asarray(scores), digits.test_y) == result.accuracy


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_out_that_is_no_folder(tmp_path, monkeypatch, name):
    monkeypatch.setattr("myops.demo.run.train", lambda *_: pytest.fail("trained first"))
    (tmp_path / "file").write_text("kept")
    with pytest.raises(UsageError, match="out should be a folder"):
        demo.run_demo(tmp_path / name, console=Console(file=io.StringIO()))
    assert (tmp_path / "file").read_text() == "kept"


def test_missing_package(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "sklearn" else 1)
    with pytest.raises(MissingPackageError, match="sklearn should be installed"):
        demo.run_demo(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_network_that_does_not_learn(monkeypatch):
    monkeypatch.setattr(train, "MAX_EPOCHS", 1)
    with pytest.raises(MyopsError, match=r"should beat 95% on held-out digits.*after 1 epochs"):
        train.train(train.Digits.load(), lambda _: None)


def test_differences_fail_the_run(tmp_path):
    """A network other than the exported one stands for a wrong kernel."""
    digits = train.Digits.load()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = train.build_model().eval()
    exported = chain.export_and_run(model, digits, tmp_path, lambda: None)
    assert all(run.ok for e in exported for run in e.runs)
    truth = train.predict(model, digits.test_x) + np.float32(1e-3)
    run = chain._run(exported[0].report, True, digits, truth)
    assert not run.ok
    assert "scores differ" in run.note


def test_training_is_the_same_every_time():
    digits = train.Digits.load()
    first, second = (train.train(digits, lambda _: None) for _ in range(2))
    assert first.epochs == second.epochs
