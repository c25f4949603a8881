# SPDX-License-Identifier: Apache-2.0
"""``myops check``: three lines, and each can fail."""

from __future__ import annotations

import json
from pathlib import Path

import myops.functional
import myops.nn
import numpy as np
import onnx
import pytest
import torch
from myops.spec import SPECS
from myops.verify import gradients, operators, selfcheck
from myops.verify.selfcheck import ALIGNMENT, FORWARD, STRUCTURE
from onnx import helper

from .networks import add_to_function_beta, changed, export, network, our_nodes

X = {"x": torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0))}


def failed(check: selfcheck.Check) -> list[str]:
    return [line.name for line in check.lines if not line.ok]


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("check") / "m.onnx"
    export(network(), path)
    return path


@pytest.fixture
def few(monkeypatch) -> pytest.MonkeyPatch:
    """One operator, with one value of its attribute."""
    monkeypatch.setattr(SPECS, "_specs", list(SPECS[:1]))
    monkeypatch.setattr(selfcheck, "attribute_sets", lambda spec: iter([{"beta": 1.75}]))
    return monkeypatch


def test_the_installed_operators(few) -> None:
    check = selfcheck.check_operators()
    assert check.ok, check.to_dict()
    assert [line.name for line in check.lines] == [FORWARD, STRUCTURE, ALIGNMENT]
    assert check.lines[0].text.startswith("1 operator in bfloat16, float16, float32, float64")


def test_an_operator_that_is_wrong(few) -> None:
    right = operators.run_torch
    few.setattr(operators, "run_torch", lambda *a: right(*a) * np.float32(1.001))
    assert failed(selfcheck.check_operators()) == [FORWARD]


def test_an_operator_with_a_wrong_gradient(few) -> None:
    few.setattr(gradients, "check_operator", lambda spec, attributes: "wrong")
    assert failed(selfcheck.check_operators()) == [FORWARD]


def test_an_operator_that_is_exported_twice(few) -> None:
    swish = myops.functional.swish
    few.setattr(selfcheck, "_operator_module", lambda *_: Call(lambda x: swish(swish(x))))
    assert STRUCTURE in failed(selfcheck.check_operators())


def test_without_torch(few) -> None:
    few.setattr(selfcheck, "has_torch", lambda: False)
    assert failed(selfcheck.check_operators()) == [FORWARD, STRUCTURE, ALIGNMENT]


class Call(torch.nn.Module):
    def __init__(self, body) -> None:
        super().__init__()
        self.body = body

    def forward(self, first: torch.Tensor) -> torch.Tensor:
        return self.body(first)


def test_a_module() -> None:
    module = network()
    check = selfcheck.check_module(module, X, dynamic={"x": {0: "batch"}})
    assert check.ok, check.to_dict()
    count = sum(p.numel() for p in module.parameters())
    assert f"{count:,} parameters" in check.lines[0].text
    assert "3 myops::Swish" in check.lines[1].text


class LosesGradient(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale + myops.functional.swish(x * self.scale).detach()


class LosesPrecision(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1e6 - 1e6 if x.dtype == torch.float32 else x


class ChangesInExport(torch.nn.Module):
    """The exported file computes something else than eager torch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return myops.functional.swish(x, 2.0 if torch.compiler.is_exporting() else 1.0)


@pytest.mark.parametrize(
    ("module", "line"),
    [(LosesGradient(), FORWARD), (LosesPrecision(), FORWARD), (ChangesInExport(), ALIGNMENT)],
    ids=lambda value: type(value).__name__ if isinstance(value, torch.nn.Module) else value,
)
def test_modules_that_are_wrong(module: torch.nn.Module, line: str) -> None:
    check = selfcheck.check_module(module, {"x": torch.randn(4, 3)}, dynamic={"x": {0: "n"}})
    assert line in failed(check), check.to_dict()


def test_a_module_that_does_not_export() -> None:
    class Fails(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    check = selfcheck.check_module(Fails(), {"x": torch.ones(2, 2)})
    assert failed(check) == [STRUCTURE, ALIGNMENT]


def test_gradients_of_every_operator() -> None:
    for spec in SPECS:
        assert gradients.check_operator(spec, spec.defaults()) == ""


def test_a_file(file: Path, tmp_path) -> None:
    check = selfcheck.check_file(file, dims={"batch": 3})
    assert check.ok, check.to_dict()
    model = onnx.load(file)
    path = tmp_path / "m.onnx"

    def case(copy: onnx.ModelProto) -> None:
        our_nodes(copy)[0].attribute.append(helper.make_attribute("gamma", 1.0))

    onnx.save(changed(model, case), path)
    check = selfcheck.check_file(path)
    assert failed(check) == [STRUCTURE, ALIGNMENT]
    assert "gamma" in check.lines[1].problems[0]


def test_runtimes_that_are_not_ours_do_not_count(file: Path, tmp_path) -> None:
    """A wrong decomposition is for ``myops verify`` to show; the plugin does not run it."""
    onnx.save(changed(onnx.load(file), add_to_function_beta), tmp_path / "m.onnx")
    assert selfcheck.check_file(tmp_path / "m.onnx").ok


def test_command_line(file: Path, tmp_path, run_myops) -> None:
    (tmp_path / "check_factory.py").write_text(
        "import torch, myops.nn\n"
        "def make():\n"
        "    torch.manual_seed(0)\n"
        "    return torch.nn.Sequential(torch.nn.Linear(8, 4), myops.nn.Mish())\n"
    )
    factory = ("check", "check_factory:make")
    example = ("--input", "input=float32[2,8]", "--dynamic", "input.0=batch")
    done = run_myops(tmp_path, *factory, *example)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["ok"] * 3
    assert json.loads(run_myops(tmp_path, "check", file, "--json").stdout)["ok"] is True
    (tmp_path / "broken.onnx").write_bytes(file.read_bytes()[:100])
    done = run_myops(tmp_path, "check", "broken.onnx")
    assert done.returncode == 1
    assert "should be a whole ONNX model" in done.stderr
    for wrong in (factory, ("check", file, "--input", "x=float32[2]"), ("check", "--dynamic", "n")):
        assert run_myops(tmp_path, *wrong).returncode == 2
