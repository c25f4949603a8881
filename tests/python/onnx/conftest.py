# SPDX-License-Identifier: Apache-2.0
"""Exports take most of a second each: those that several tests look at are made once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import onnx
import pytest
import torch

from .support import DTYPES, Net


class Exported(NamedTuple):
    path: Path
    report: Any
    model: onnx.ModelProto
    net: torch.nn.Module


@pytest.fixture(scope="session")
def exported(tmp_path_factory) -> Callable[..., Exported]:
    """``exported(spec, exporter, mode, dtype, opset)``: ``Net``, with N dynamic, kept for all."""
    import myops.onnx

    folder = tmp_path_factory.mktemp("exported")
    made: dict[tuple, Exported] = {}

    def make(spec, exporter: str, mode: str, dtype: str, opset: int) -> Exported:
        key = (spec.name, exporter, mode, dtype, opset)
        if key not in made:
            net = Net(spec, DTYPES[dtype])
            path = folder / ("-".join(map(str, key)) + ".onnx")
            report = myops.onnx.export(
                net,
                net.example(),
                path,
                mode=mode,
                opset=opset,
                dynamic={"x": {0: "N"}},
                exporter=exporter,
            )
            made[key] = Exported(path, report, onnx.load(path), net)
        return made[key]

    return make
