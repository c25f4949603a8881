# SPDX-License-Identifier: Apache-2.0
"""Loads libraries and models for trial, each in a process of its own: a damaged library may kill
the process that loads it, without an exception.

As a program, ``python -m myops.doctor.trial REQUEST`` does one trial and prints JSON.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_TIMEOUT_SECONDS = 300


@dataclass(frozen=True)
class Result:
    """How a trial ended.

    Attributes:
        problem: the error's text; empty where there is none.
        killed: name of the signal that ended the process; empty where none did.
        providers: of a runtime: its execution providers.
        placements: of a model: execution provider by node, "Swish (name)". Empty where all are
            on ``everything_on``.
        everything_on: of a model: the provider of all nodes, where they have the same.
    """

    problem: str = ""
    killed: str = ""
    providers: tuple[str, ...] = ()
    placements: dict[str, str] = field(default_factory=dict)
    everything_on: str = ""


def runtime() -> Result:
    """Imports onnxruntime."""
    return _run({"what": "runtime"})


def plugin(path: Path) -> Result:
    """Registers a plugin with session options."""
    return _run({"what": "plugin", "path": str(path.absolute())})


def torch_library(path: Path) -> Result:
    """Loads a library into torch."""
    return _run({"what": "torch", "path": str(path.absolute())})


def model(path: Path, plugins: Sequence[Path], providers: Sequence[str] = ()) -> Result:
    """Opens a session on a model.

    Args:
        path: the .onnx file.
        plugins: registered with the session.
        providers: asked for, before the CPU's.
    """
    request = {"what": "model", "path": str(path.absolute()), "providers": list(providers)}
    return _run({**request, "plugins": [str(plugin.absolute()) for plugin in plugins]})


def _run(request: dict[str, Any]) -> Result:
    # A fresh process sees what the user's would, but not what ours has already imported.
    command = [sys.executable, "-m", "myops.doctor.trial", json.dumps(request)]
    package = Path(__file__).resolve().parents[2]
    search = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(package)])
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SECONDS,
            env=os.environ | {"PYTHONPATH": search},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Result(problem=f"no answer within {_TIMEOUT_SECONDS} s")
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        return Result(problem=f"the process was ended by {name}", killed=name)
    answer = done.stdout.strip().splitlines()[-1:]
    if done.returncode or not answer:
        return Result(problem=" ".join(done.stderr.split())[-2000:] or "no answer")
    said = json.loads(answer[0])
    everything_on, placements = read_placements(done.stderr)
    return Result(
        problem=said.get("problem", ""),
        providers=tuple(said.get("providers", ())),
        everything_on=everything_on,
        placements=placements,
    )


def read_placements(log: str) -> tuple[str, dict[str, str]]:
    """The provider of all nodes, or else that of each, from ONNX Runtime's verbose log."""
    if found := re.search(r"All nodes placed on \[(\w+)\]", log):
        return found[1], {}
    placements, provider = {}, ""
    for line in log.splitlines():
        if found := re.search(r"Node\(s\) placed on \[(\w+)\]", line):
            provider = found[1]
        elif provider and (found := re.search(r"VerifyEachNodeIsAssignedToAnEp\S* +(.+)$", line)):
            placements[found[1].strip()] = provider
    return "", placements


def _perform(request: dict[str, Any]) -> dict[str, Any]:
    if request["what"] == "torch":
        import torch

        torch.ops.load_library(request["path"])
        return {}
    import onnxruntime

    if request["what"] == "runtime":
        return {"providers": onnxruntime.get_available_providers()}
    options = onnxruntime.SessionOptions()
    if request["what"] == "plugin":
        options.register_custom_ops_library(request["path"])
        return {}
    for path in request["plugins"]:
        options.register_custom_ops_library(path)
    options.log_severity_level = 0
    providers = [*request["providers"], "CPUExecutionProvider"]
    onnxruntime.InferenceSession(request["path"], options, providers=list(dict.fromkeys(providers)))
    return {}


def _texts(error: BaseException) -> str:
    """The error with what caused it: torch hides the loader's own words there."""
    found: list[str] = []
    current: BaseException | None = error
    while current is not None and len(found) < 5:
        found.append(f"{type(current).__name__}: {current}")
        current = current.__cause__ or current.__context__
    return " ".join(" Because of ".join(found).split())


def main() -> None:
    try:
        answer = _perform(json.loads(sys.argv[1]))
    except Exception as error:
        answer = {"problem": _texts(error)}
    sys.stdout.write("\n" + json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
