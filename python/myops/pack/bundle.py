# SPDX-License-Identifier: Apache-2.0
"""Packs a model: copies, measures, describes, checks, and only then moves into place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from myops import __version__, _fatbin, registry
from myops._errors import LibraryError, ModelError, MyopsError
from myops._library import ort_library
from myops.onnx import model as onnx_model
from myops.pack import manifest, triton
from myops.pack.measured import Measured
from myops.pack.model_files import MODEL, copy_model
from myops.pack.place import WHERE, copy, staged_folder
from myops.verify import golden, golden_file
from myops.verify.tolerances import Overrides

if TYPE_CHECKING:
    import torch

GOLDEN = "golden.npz"

_SCRIPTS = Path(__file__).parent / "target"
# Results are judged there by the same rules as here.
_RULES = Path(golden.__file__).with_name("compare.py")
_COPIED = (_SCRIPTS / "run.py", _SCRIPTS / "check.py", _RULES)

OnStep = Callable[[str], object]


@dataclass(frozen=True)
class Bundle:
    """What was written.

    Attributes:
        path: the folder.
        manifest: what stands in its manifest.json.
        steps: of its own check, run before it was moved into place.
        triton: the model's configuration for Triton; None if not asked for.
    """

    path: Path
    manifest: dict[str, Any]
    steps: list[dict[str, Any]]
    triton: triton.Config | None

    @property
    def size(self) -> int:
        """Bytes of all files, without the manifest."""
        return sum(int(file["size"]) for file in self.manifest["files"])

    def to_dict(self) -> dict[str, Any]:
        config = self.triton
        return {
            "path": str(self.path),
            "manifest": self.manifest,
            "steps": self.steps,
            "triton": None
            if config is None
            else {
                "name": config.name,
                "max_batch_size": config.max_batch_size,
                "why_no_batching": config.why_no_batching,
            },
        }


@contextmanager
def _named_as_given(places: Mapping[Path, Path]) -> Iterator[None]:
    """Errors about the copies name the files they were copied from, which stay."""
    try:
        yield
    except MyopsError as error:
        text = str(error)
        for copied, given in places.items():
            text = text.replace(str(copied), str(given))
        error.args = (text,)
        raise


def _copy_plugin(given: str | os.PathLike[str] | None, folder: Path) -> Path:
    source = Path(given) if given is not None else ort_library()
    if not source.is_file():
        raise LibraryError(
            WHERE, "the plugin should be a file", f"{source}, which does not exist", "Name one"
        )
    copy(source, folder / source.name)
    return folder / source.name


def _about_plugin(library: Path, folder: Path) -> dict[str, Any]:
    return {
        "path": library.relative_to(folder).as_posix(),
        "cuda_architectures": _fatbin.architectures(library),
    }


def _check(folder: Path) -> list[dict[str, Any]]:
    """Runs the bundle's own check as the target will, in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(folder / "check.py"), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        steps: list[dict[str, Any]] = json.loads(done.stdout)["steps"]
    except (ValueError, KeyError):
        steps = [{"step": "check.py", "ok": False, "text": done.stderr.strip()[-500:]}]
    failed = [step["text"] for step in steps if not step["ok"]]
    if failed or done.returncode:
        raise ModelError(
            WHERE,
            "the bundle should pass its own check",
            " ".join(failed) or f"exit code {done.returncode}: {done.stderr.strip()[-500:]}",
            "Run: myops verify on the model; if that passes, report this",
        )
    return steps


def make_bundle(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    torch_model: torch.nn.Module | None = None,
    inputs: Mapping[str, npt.NDArray[Any]] | str | os.PathLike[str] | None = None,
    dims: Mapping[str, int] | None = None,
    plugin: str | os.PathLike[str] | None = None,
    tolerance: float | Overrides | None = None,
    for_triton: bool = False,
    max_batch_size: int = triton.MAX_BATCH_SIZE,
    on_step: OnStep = lambda text: None,
) -> Bundle:
    """Packs a model into a folder that needs nothing but numpy and onnxruntime.

    The folder holds the model with its external data, the plugin where the model has nodes for it,
    and those of other packages likewise,
    golden results, ``manifest.json``, and the scripts ``check.py`` and ``run.py``. It may be moved
    and copied anywhere; no file names a path of this machine. It is written beside ``output``,
    checked by its own ``check.py``, then moved there.

    It does not hold onnxruntime or numpy, and the plugin runs on this machine's architecture only.

    Args:
        path: the .onnx file. It is not changed.
        output: the folder to write; a bundle that is there is replaced.
        torch_model, inputs, dims, tolerance: see ``myops.verify.make_golden``.
        plugin: another plugin file than the installed one.
        for_triton: the model and the plugin lie in ``triton/``, a model repository for NVIDIA
            Triton Inference Server.
        max_batch_size: the most requests Triton shall put together.
        on_step: is called with what is being done.

    Raises:
        UsageError: ``output`` holds anything but a bundle, or an argument is not usable.
        ModelError: the model or its weights are not usable, this machine's results are off, or the
            finished bundle does not pass its own check.
        LibraryError: the plugin is missing or not usable.
    """
    source, output = Path(path), Path(output)
    triton.check_batch_size(max_batch_size)
    with staged_folder(output) as folder:
        name = triton.model_name(source)
        home = folder / triton.FOLDER / name / triton.VERSION if for_triton else folder
        home.mkdir(parents=True, exist_ok=True)
        on_step("copying")
        model, removed = copy_model(source, home)
        places = {home / MODEL: source}
        library: Path | None = None
        if plugin is not None or onnx_model.our_nodes(model):
            library = _copy_plugin(plugin, home)
            places[library] = Path(plugin) if plugin is not None else ort_library()
        others = []
        for other in registry.plugins_of({n.domain for n in onnx_model.our_nodes(model)}):
            others.append(_copy_plugin(other, home))
            places[others[-1]] = other
        on_step("golden results")
        with _named_as_given(places):
            meta = golden.make_golden(
                home / MODEL, folder / GOLDEN, torch_model, inputs, dims, library, tolerance
            )
        measured = Measured(home / MODEL, *golden_file.read(folder / GOLDEN))
        config: triton.Config | None = None
        if for_triton:
            on_step("Triton's configuration")
            config = triton.config(
                model,
                name,
                [file.name for file in (library, *others) if file is not None],
                max_batch_size,
                lambda: measured.why_rows_differ(library),
            )
            (home.parent / "config.pbtxt").write_text(config.text, "utf-8")
        for script in _COPIED:
            copy(script, folder / script.name)
        machine = dict(meta["machine"])
        about = manifest.write(
            folder,
            {
                "myops": __version__,
                "source": source.name,
                "made_with": machine.pop("versions"),
                "machine": machine,
                "model": manifest.about_model(
                    model,
                    (home / MODEL).relative_to(folder).as_posix(),
                    measured.right_without_plugin(),
                )
                | {"notes_with_paths_removed": removed},
                "plugin": None if library is None else _about_plugin(library, folder),
                "other_plugins": [_about_plugin(other, folder) for other in others],
                "truth": meta["truth"],
                "outputs": measured.judged(),
            },
        )
        on_step("checking the bundle")
        steps = _check(folder)
    return Bundle(output, about, steps, config)
