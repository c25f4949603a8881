# SPDX-License-Identifier: Apache-2.0
"""Arguments of ``export``, what it leaves alone, and what it never leaves behind."""

from __future__ import annotations

import warnings

import myops.nn
import myops.ort
import numpy as np
import onnx
import pytest
import torch
from myops._errors import ExportError, UsageError
from myops.onnx import model as onnx_model
from myops.onnx.export import export

from ..support import each_representative, each_spec_with, one_spec
from .support import (
    EXPORTERS,
    Call,
    Net,
    call,
    close,
    each_exporter,
    each_way,
    our_nodes,
    plain_session,
    run,
)

X = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))


@one_spec
@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"mode": "fast"}, "'fast'"),
        ({"mode": "Portable"}, "'Portable'"),
        ({"exporter": "onnx"}, "'onnx'"),
        ({"exporter": "TorchScript"}, "'TorchScript'"),
        ({"dynamic": {"y": {0: "N"}}}, "'y'"),
        ({"dynamic": {"x": {3: "N"}}}, "3"),
        ({"dynamic": {"x": {-1: "N"}}}, "-1"),
        ({"dynamic": {"x": {0: ""}}}, "''"),
        ({"dynamic": {"x": {0: "a b"}}}, "'a b'"),
        ({"dynamic": {"x": {0: 4}}}, "4"),
        ({"dynamic": {"x": {0: None}}}, "None"),
        ({"kwargs": {"y": 1}}, "'y'"),
    ],
)
def test_unusable_arguments(spec, arguments, word, tmp_path, check_message):
    with pytest.raises(UsageError) as raised:
        export(Call(lambda x: call(spec, x)), X, tmp_path / "m.onnx", **arguments)
    assert word in check_message(raised.value)
    assert list(tmp_path.iterdir()) == []


@one_spec
@pytest.mark.parametrize("args", [(), (X, X)])
def test_arguments_that_do_not_fit_forward(spec, args, tmp_path, check_message):
    with pytest.raises(UsageError) as raised:
        export(Call(lambda x: call(spec, x)), args, tmp_path / "m.onnx")
    check_message(raised.value)


class TwoInputs(torch.nn.Module):
    def __init__(self, spec) -> None:
        super().__init__()
        self.spec = spec

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return call(self.spec, left @ right)


@each_representative
@each_exporter
def test_names_and_dims_of_several_inputs(spec, exporter, tmp_path):
    report = export(
        TwoInputs(spec),
        (torch.randn(2, 3), torch.randn(3, 4)),
        tmp_path / "m.onnx",
        dynamic={"left": {0: "rows", 1: "inner"}, "right": {0: "inner"}},
        exporter=exporter,
    )
    model = onnx.load(report.path)
    dims = {value.name: onnx_model.dims(value) for value in model.graph.input}
    assert dims == {"left": ["rows", "inner"], "right": ["inner", 4]}
    assert onnx_model.dims(model.graph.output[0]) == ["rows", 4]


@one_spec
@each_exporter
def test_keyword_arguments(spec, exporter, tmp_path):
    report = export(
        TwoInputs(spec),
        (torch.randn(2, 3),),
        tmp_path / "m.onnx",
        kwargs={"right": torch.randn(3, 4)},
        dynamic={"right": {1: "columns"}},
        exporter=exporter,
    )
    dims = {value.name: onnx_model.dims(value) for value in onnx.load(report.path).graph.input}
    assert dims == {"left": [2, 3], "right": [3, "columns"]}


class WithNumber(torch.nn.Module):
    def __init__(self, spec) -> None:
        super().__init__()
        self.spec = spec

    def forward(self, x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        return call(self.spec, x) * scale


@one_spec
@each_exporter
@pytest.mark.parametrize("args", [(X,), (X, 2.0)], ids=["default", "given"])
def test_numbers_do_not_become_inputs(spec, exporter, args, tmp_path):
    """The TorchScript exporter makes a nameless graph input out of a float argument."""
    report = export(WithNumber(spec), args, tmp_path / "m.onnx", exporter=exporter)
    assert [value.name for value in onnx.load(report.path).graph.input] == ["x"]


@one_spec
@each_exporter
def test_dim_the_model_fixes(spec, exporter, tmp_path):
    """A name that does not survive the export is an error."""
    model = Call(lambda x: call(spec, x[:2].reshape(2, 3) + torch.ones(2, 3)))

    class Fixed(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.shape[0] != 2:
                raise ValueError("two rows only")
            return model(x)

    if exporter == "dynamo":
        with pytest.raises(ExportError):
            export(Fixed(), X, tmp_path / "m.onnx", dynamic={"x": {0: "N"}}, exporter=exporter)
        assert list(tmp_path.iterdir()) == []


@one_spec
@each_exporter
@pytest.mark.parametrize("existing", [True, False])
def test_failed_export_leaves_the_folder_alone(spec, exporter, existing, tmp_path, monkeypatch):
    path = tmp_path / "m.onnx"
    if existing:
        path.write_bytes(b"precious")
        (tmp_path / "m.onnx.data").write_bytes(b"weights")
    before = sorted(p.name for p in tmp_path.iterdir())
    # Fails after the file was written, in the last check.
    monkeypatch.setattr("myops.onnx.check._check_dims_across_nodes", _fail)
    with pytest.raises(ExportError):
        export(Call(lambda x: call(spec, x)), X, path, exporter=exporter)
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    if existing:
        assert path.read_bytes() == b"precious"
        assert (tmp_path / "m.onnx.data").read_bytes() == b"weights"


def _fail(*_: object) -> None:
    raise ExportError("here", "it should pass", "a test", "Go on")


def _not_exportable(x: torch.Tensor) -> torch.Tensor:
    return torch.linalg.eig(x @ x.T).eigenvectors.real


@each_exporter
def test_model_that_cannot_be_exported(exporter, tmp_path, check_message):
    path = tmp_path / "m.onnx"
    path.write_bytes(b"precious")
    model = Call(_not_exportable)
    with pytest.raises(ExportError) as raised:
        export(model, X, path, exporter=exporter)
    text = check_message(raised.value)
    assert exporter in text
    assert "\x1b" not in text, "colour codes of the exporter"
    assert path.read_bytes() == b"precious"


@one_spec
@each_exporter
def test_existing_file_is_replaced_and_folders_are_made(spec, exporter, tmp_path):
    path = tmp_path / "new" / "folder" / "m.onnx"
    model = Call(lambda x: call(spec, x))
    for _ in range(2):
        export(model, X, path, exporter=exporter)
        assert [p.name for p in path.parent.iterdir()] == ["m.onnx"]
    export(model, X, str(path), exporter=exporter)


@one_spec
@each_way
@pytest.mark.filterwarnings("ignore")
def test_weights_above_the_limit_go_beside(spec, exporter, mode, tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_model, "_SINGLE_FILE_LIMIT", 10_000)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2000), Call(lambda x: call(spec, x)))
    path = tmp_path / "m.onnx"
    report = export(model, X, path, mode=mode, exporter=exporter)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]
    assert report.size == path.stat().st_size < 10_000
    assert (tmp_path / "m.onnx.data").stat().st_size >= 4 * 3 * 2000
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for file in ("m.onnx", "m.onnx.data"):
        (tmp_path / file).replace(moved / file)
    close(run(myops.ort.session(moved / "m.onnx"), X), model(X), "float32")
    if mode != "custom":
        close(run(plain_session(moved / "m.onnx"), X), model(X), "float32")


@one_spec
@each_exporter
def test_weights_below_the_limit_are_inside(spec, exporter, tmp_path):
    """The dynamo exporter alone would always write a file beside."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 2000), Call(lambda x: call(spec, x)))
    export(model, X, tmp_path / "m.onnx", exporter=exporter)
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


@one_spec
@each_exporter
@pytest.mark.parametrize("fails", [False, True])
def test_training_modes_are_restored(spec, exporter, fails, tmp_path):
    model = torch.nn.Sequential(
        torch.nn.Dropout(0.5), torch.nn.Sequential(torch.nn.Dropout(0.5)), torch.nn.Linear(3, 3)
    )
    model.append(Call(_not_exportable if fails else lambda x: call(spec, x)))
    model.train()
    model[1].eval()
    modes = [module.training for module in model.modules()]
    try:
        report = export(model, X, tmp_path / "m.onnx", exporter=exporter)
        assert "Dropout" not in report.nodes
    except ExportError:
        assert fails
    assert [module.training for module in model.modules()] == modes


@one_spec
@each_exporter
def test_model_and_inputs_are_left_alone(spec, exporter, tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), Call(lambda x: call(spec, x)))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    x = X.clone().requires_grad_()
    export(model, x, tmp_path / "m.onnx", exporter=exporter)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert torch.equal(x, X)
    assert x.grad is None
    assert all(p.requires_grad and p.grad is None for p in model.parameters())


def _exports(spec, value: float, dtype: torch.dtype, exporter: str, path) -> list[str]:
    values = dict.fromkeys(spec.defaults(), value)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        net = Net(spec, dtype, **values)
        export(net, net.example(), path, exporter=exporter)
    return [str(w.message) for w in caught if str(w.message).startswith("[myops")]


@each_spec_with("exporter", EXPORTERS, ["torchscript"])
def test_rounded_attribute_of_a_float64_model_is_announced(spec, exporter, tmp_path):
    for value in (0.1,) if exporter == "dynamo" else (0.1, 1.702, -1 / 3):
        texts = _exports(spec, value, torch.float64, exporter, tmp_path / "m.onnx")
        assert len(texts) == len(spec.attributes)
        for text, attribute in zip(texts, spec.attributes, strict=True):
            assert attribute.name in text
            assert repr(value) in text
            assert repr(float(np.float32(value))) in text


@one_spec
@pytest.mark.parametrize("value", [0.5, 0.0009765625, 1.0, 1024.0009765625, 3.0517578125e-05])
def test_attribute_that_float32_holds_is_not_announced(spec, value, tmp_path):
    assert _exports(spec, value, torch.float64, "torchscript", tmp_path / "m.onnx") == []


@one_spec
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_rounding_is_announced_for_float64_only(spec, dtype, tmp_path):
    assert _exports(spec, 0.1, dtype, "torchscript", tmp_path / "m.onnx") == []


@one_spec
def test_size_of_the_float64_difference(spec, tmp_path):
    """0.1 as float32 moves float64 results by up to 1.2e-8 on [-6, 6]; torch keeps all of it."""
    if spec.name == "Swish":
        x = torch.linspace(-6, 6, 100_001, dtype=torch.float64)
        model = Call(lambda x: myops.functional.swish(x, 0.1))
        with pytest.warns(UserWarning, match="float32"):
            export(model, x, tmp_path / "m.onnx")
        gap = np.abs(run(myops.ort.session(tmp_path / "m.onnx"), x) - model(x).numpy()).max()
        assert gap == pytest.approx(1.2e-8, rel=0.05)


@one_spec
@each_exporter
def test_node_names_are_unique_and_outputs_named(spec, exporter, tmp_path):
    model = Call(lambda x: call(spec, call(spec, call(spec, x))))
    report = export(model, X, tmp_path / "m.onnx", exporter=exporter)
    names = [node.name for node in our_nodes(onnx.load(report.path))]
    assert len(set(names)) == 3
    assert all(names)
