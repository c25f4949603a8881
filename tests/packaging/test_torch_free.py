# SPDX-License-Identifier: Apache-2.0
"""A server with numpy and onnxruntime, of several releases, and nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import myops.functional
import myops.onnx
import numpy as np
import pytest
import torch
from environments import Venv

RELEASES = ["1.16.3", "1.20.1", "1.32.0"]

RUN = """
import importlib.util, sys
import numpy as np
assert importlib.util.find_spec("torch") is None
assert importlib.util.find_spec("onnx") is None
import myops
import myops.ort
model, data, plugin = sys.argv[1:]
with np.load(data) as arrays:
    x, expected = arrays["x"], arrays["y"]
session = myops.ort.session(model, plugin={"with": True, "without": False}.get(plugin, plugin))
(y,) = session.run(None, {"x": x})
print(float(np.abs(y.astype(np.float64) - expected).max()))
"""

DTYPES = [torch.float32, torch.float64, torch.float16]


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return myops.functional.swish(x, 1.5) + myops.functional.swish(x)


def write(folder: Path, mode: str, dtype: torch.dtype) -> tuple[Path, Path]:
    x = torch.linspace(-9, 9, 60_000, dtype=torch.float64).reshape(100, 600).to(dtype)
    path = folder / f"{mode}.onnx"
    myops.onnx.export(Model(), (x,), path, mode=mode, dynamic={"x": {0: "batch"}})
    np.savez(folder / "data.npz", x=x.numpy(), y=Model()(x).double().numpy())
    return path, folder / "data.npz"


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mode", ["custom", "portable"])
def test_plugin_serves_the_model_with_torch_s_numbers(
    torch_free: Callable[[str], Venv], tmp_path: Path, release: str, dtype: torch.dtype, mode: str
) -> None:
    model, data = write(tmp_path, mode, dtype)
    error = float(torch_free(release).check(RUN, model, data, "with"))
    # The operators give torch's bits; the addition is exact in all of them.
    assert error == 0.0


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc to build such a plugin with")
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_plugin_with_cuda_serves_runtimes_without(
    torch_free: Callable[[str], Venv],
    prefix_with: Callable[[str], Path],
    tmp_path: Path,
    release: str,
    dtype: torch.dtype,
) -> None:
    (plugin,) = prefix_with("cuda").rglob("libmyops_ort.so")
    model, data = write(tmp_path, "custom", dtype)
    assert float(torch_free(release).check(RUN, model, data, plugin)) == 0.0


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_portable_model_runs_without_the_plugin(
    torch_free: Callable[[str], Venv], tmp_path: Path, release: str, dtype: torch.dtype
) -> None:
    model, data = write(tmp_path, "portable", dtype)
    error = float(torch_free(release).check(RUN, model, data, "without"))
    assert error <= 40 * torch.finfo(dtype).eps


def test_missing_packages_are_named(torch_free: Callable[[str], Venv]) -> None:
    printed = torch_free("1.32.0").check(
        "import myops\n"
        "for module in ('functional', 'nn'):\n"
        "    try:\n"
        "        getattr(myops, module)\n"
        "    except ImportError as error:\n"
        "        print(type(error).__name__, error)\n"
    )
    assert printed.count("No module named 'torch'") == 2


def test_bare_import_brings_nothing_heavy(torch_free: Callable[[str], Venv]) -> None:
    printed = torch_free("1.32.0").check(
        "import sys, myops\n"
        "print([m for m in ('torch', 'onnx', 'onnxruntime', 'typer') if m in sys.modules])"
    )
    assert printed.strip() == "[]"


def test_build_without_cuda_says_so(torch_free: Callable[[str], Venv]) -> None:
    printed = torch_free("1.32.0").check(
        "from myops import _build_info as b\n"
        "print(repr(b.cuda_compiler), repr(b.cuda_architectures))\n"
        "print(b.cuda_message())\n"
    )
    built_with, message = printed.strip().split("\n")
    assert built_with == "'' ''"
    assert "built without CUDA" in message
    assert "MYOPS_CUDA=ON" in message
