# SPDX-License-Identifier: Apache-2.0
"""The C++ programs of examples/, built as their first lines say and run."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from environments import ROOT, run
from myops import _library, spec
from myops.verify import operators


@pytest.fixture
def build(prefix_with: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    """``build(name, define=value)``: the program of ``examples/<name>``."""

    def make(name: str, **defines: str | Path) -> Path:
        given = {"CMAKE_PREFIX_PATH": prefix_with("cpu"), "Python_EXECUTABLE": sys.executable}
        definitions = [f"-D{key}={value}" for key, value in {**given, **defines}.items()]
        source = ROOT / "examples" / name
        run(["cmake", "-S", source, "-B", tmp_path, "-G", "Ninja", *definitions])
        run(["cmake", "--build", tmp_path])
        return tmp_path / name

    return make


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+\.\d+(?:e-?\d+)?|-?\d+", text)]


def test_host_of_onnx_runtime(build: Callable[..., Path], tmp_path: Path) -> None:
    folder = run([sys.executable, ROOT / "third_party" / "fetch_headers.py", "onnxruntime"])
    program = build("cpp_host", MYOPS_HEADERS=folder.strip())
    model = operators.one_node_model(spec.SWISH, "float32", {"beta": 1.75})
    del model.functions[:]  # so that only the plugin can run it
    onnx.save(model, str(tmp_path / "model.onnx"))
    first, second, *lines = run([program, tmp_path / "model.onnx"]).splitlines()
    assert first.startswith("ONNX Runtime 1.")
    assert second == "output [4]"
    expected = spec.SWISH.reference(np.linspace(-3, 3, 4), beta=1.75)
    np.testing.assert_allclose([float(line) for line in lines], expected, rtol=1e-6)
    with pytest.raises(AssertionError, match=r"\[cpp_host\].*no_such_file"):
        run([program, tmp_path / "model.onnx", tmp_path / "no_such_file.so"])


def test_kernels_alone(build: Callable[..., Path]) -> None:
    lines = run([build("cpp_kernels")]).splitlines()
    found = dict(line.split(" ", 1) for line in lines[:1])
    assert found["operators"].split() == [op.name for op in spec.SPECS]
    results = {
        re.match(r"[a-z_ ]+(?= )", line)[0]: numbers(line)  # type: ignore[index]
        for line in lines[2:]
    }
    gate = torch.tensor([-1.0, 0.0, 1.0, 2.0], requires_grad=True)
    x = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    y = torch.nn.functional.silu(gate) * x
    y.sum().backward()
    rows = torch.tensor([[3.0, 4.0], [6.0, 8.0]])
    norm = torch.nn.functional.rms_norm(rows, (2,), torch.tensor([1.0, 2.0]), 1e-6)
    expected = {
        "swiglu": y.detach(),
        "grad of gate": gate.grad,
        "grad of x": x.grad,
        "rms_norm": norm.flatten(),
    }
    assert set(results) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(results[name], values, atol=1e-6)


def test_libtorch_program(build: Callable[..., Path]) -> None:
    library = _library.torch_library()
    root = Path(torch.__file__).parent
    program = build("cpp_torch", MYOPS_TORCH_LIBRARY=library, MYOPS_TORCH_ROOT=root)
    printed = run([program])
    *rows, last = printed.splitlines()
    x = torch.linspace(-3, 3, 7, requires_grad=True)
    y = x * torch.sigmoid(1.5 * x)
    y.sum().backward()
    assert x.grad is not None
    expected = torch.stack([x.detach(), y.detach(), x.grad], dim=1)
    np.testing.assert_allclose([numbers(row) for row in rows], expected, atol=1e-6)
    assert last.startswith("largest difference")
