# SPDX-License-Identifier: Apache-2.0
"""Golden results: made where the model is exported, checked where it is deployed.

Checking needs numpy and onnxruntime only.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from myops import __version__, _build_info, registry
from myops._errors import LibraryError, ModelError, MyopsError
from myops.verify import golden_file
from myops.verify.compare import Tolerance, compare
from myops.verify.golden_file import WHERE, sha256
from myops.verify.parties import run_session
from myops.verify.report import Report, Row
from myops.verify.tolerances import MODEL_TOLERANCE, Overrides, largest_size

if TYPE_CHECKING:
    import torch

_PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime", "onnxruntime-gpu", "numpy")
_SHORT = 12


@dataclass(frozen=True)
class Checksum:
    """Whether one file is the one the results were made with.

    Attributes:
        kind: "golden", "model", "weights" or "plugin".
        path: the file.
        ok: whether it may be used.
        text: what is wrong with it, or worth knowing.
    """

    kind: str
    path: str
    ok: bool
    text: str = ""


@dataclass
class Golden:
    """The outcome of a check.

    Attributes:
        files: in the order they were looked at.
        report: rows of layer 3; empty where a file is damaged, since nothing is run then.
        made: versions and machine the results were made with.
        here: those of this machine.
    """

    files: list[Checksum] = field(default_factory=list)
    report: Report = field(default_factory=Report)
    made: dict[str, Any] = field(default_factory=dict)
    here: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return all(file.ok for file in self.files) and self.report.ok

    def to_dict(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "files": [asdict(file) for file in self.files],
            "made": self.made,
            "here": self.here,
            "report": self.report.to_dict(),
        }


def machine() -> dict[str, Any]:
    """Versions of everything, and the instruction sets."""
    versions = {"myops": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "versions": versions,
        "isa": _build_info.isa(),
        "isas": list(_build_info.isas()),
        "architecture": platform.machine(),
        "system": platform.platform(),
    }


def _describe(path: Path, name: str | None = None) -> dict[str, Any]:
    size = path.stat().st_size
    return {"name": name or path.name, "size": size, "sha256": sha256(path)}


def _weight_files(path: Path) -> list[str]:
    """Files that hold the model's external data, relative to its folder."""
    from myops.onnx import model as onnx_model

    model = onnx_model.load(path, weights=False)
    return sorted({entry.value for entry in onnx_model.external_locations(model)})


def allowed(
    about: Mapping[str, Any],
    meta: Mapping[str, Any],
    expected: npt.NDArray[Any],
    tolerance: float | Overrides | None = None,
) -> Tolerance:
    """How far an output may be from its golden values.

    Args:
        about: the output's entry in ``meta``.
        meta: what ``make_golden`` returns and the file holds.
        expected: the golden values.
        tolerance: in place of the one the results were made with, for all or by dtype.
    """
    if about["dtype"] not in MODEL_TOLERANCE and meta["precision"] != "quantized":
        return Tolerance()  # every difference of an integer or boolean counts
    if isinstance(tolerance, Mapping):
        tolerance = tolerance.get(meta["precision"])
    relative = meta["tolerance"] if tolerance is None else tolerance
    return Tolerance(absolute=relative * max(largest_size(expected), about["scale"]))


def make_golden(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    torch_model: torch.nn.Module | None = None,
    inputs: Mapping[str, npt.NDArray[Any]] | str | os.PathLike[str] | None = None,
    dims: Mapping[str, int] | None = None,
    plugin: str | os.PathLike[str] | None = None,
    tolerance: float | Overrides | None = None,
) -> dict[str, Any]:
    """Writes inputs, right outputs and checksums for a model.

    The outputs are those of the model in float64. They are written only if this machine's ONNX
    Runtime, with the plugin where the model needs it, agrees with them.

    Args:
        path: the .onnx file.
        output: the .npz file to write.
        torch_model: the module it was exported from; if given, the file must agree with it.
        inputs: arrays by input name, or an .npz file; made up from the model's signature if None.
        dims: sizes of symbolic dims for made-up inputs; 2 if not named.
        plugin: another plugin file than the installed one.
        tolerance: see ``verify_model``; the same is allowed on the target.

    Returns:
        The description that stands in the file.

    Raises:
        ModelError: the model is not usable, or this machine's results are off.
        UsageError: the inputs do not fit.
    """
    from myops._library import ort_library
    from myops.onnx import model as onnx_model
    from myops.verify.model import Verification
    from myops.verify.parties import ALONE, PLUGIN

    path, output = Path(path), Path(output)
    run = Verification(path, torch_model, inputs, dims, plugin, tolerance)
    needs_plugin = bool(onnx_model.our_nodes(run.proto))
    run.run()
    run.compare()
    subject = PLUGIN if needs_plugin else ALONE
    rows = [row for row in run.report.rows if row.party == subject or row.ours]
    off = [row for row in rows if row.verdict in ("WRONG", "off", "not run")]
    if off:
        sentences = Report(off).sentences() or [f"{row.party}: {row.note}" for row in off]
        raise ModelError(
            WHERE,
            "golden results should be made where every layer agrees with float64",
            " ".join(sentences),
            f"Run: myops verify {path} --bisect",
        )
    result = next(result for result in run.results if result.party == subject)
    arrays: dict[str, npt.NDArray[Any]] = {f"input:{n}": a for n, a in run.inputs.items()}
    outputs = {}
    for index, name in enumerate(run.names):
        expected = np.asarray(result.truth[index])
        arrays[f"output:{name}"] = expected
        row = next(row for row in rows if row.party == subject and row.subject == name)
        assert row.comparison is not None
        outputs[name] = {
            "dtype": row.dtype,
            "shape": list(expected.shape),
            "scale": run.scales.get(name, 0.0),
            "max_abs_when_made": row.comparison.max_abs,
        }
    others = registry.plugins_of({node.domain for node in onnx_model.our_nodes(run.proto)})
    plugin_file = Path(plugin) if plugin is not None else ort_library()
    meta = {
        "model": _describe(path),
        "weights": [_describe(path.parent / name, name) for name in _weight_files(path)],
        "plugin": _describe(plugin_file) if needs_plugin else None,
        "other_plugins": [_describe(other) for other in others],
        "truth": run.report.truth,
        "precision": run.precision,
        "tolerance": run.relative,
        "outputs": outputs,
        "machine": machine(),
    }
    golden_file.write(output, meta, arrays)
    return meta


def _checksum(kind: str, path: Path, wanted: Mapping[str, Any]) -> Checksum:
    if not path.is_file():
        error: MyopsError = ModelError(
            WHERE, f"the {kind} file should exist", str(path), "Copy it to the target"
        )
        return Checksum(kind, str(path), False, str(error))
    size, found = path.stat().st_size, sha256(path)
    if found == wanted["sha256"]:
        return Checksum(kind, str(path), True)
    if size == wanted["size"]:
        how = f"the {kind} was damaged in transfer, or changed afterwards"
    elif size < wanted["size"]:
        how = f"the {kind} was cut off in transfer, or is another one"
    else:
        how = f"the {kind} is another one"
    error = (LibraryError if kind == "plugin" else ModelError)(
        WHERE,
        f"the {kind} should be the {wanted['size']} bytes with SHA-256 "
        f"{wanted['sha256'][:_SHORT]} that the golden results were made with",
        f"{path}, {size} bytes with SHA-256 {found[:_SHORT]}: {how}",
        f"Copy {wanted['name']} again, or make new golden results",
    )
    return Checksum(kind, str(path), False, str(error))


def _changed_since_installation(path: Path) -> bool:
    """Whether the installed plugin is no longer what the wheel held."""
    try:
        files = importlib.metadata.distribution("myops").files or []
    except importlib.metadata.PackageNotFoundError:
        return False
    for file in files:
        if file.name == path.name and file.hash is not None and file.hash.mode == "sha256":
            digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest())
            return digest.rstrip(b"=").decode() != file.hash.value
    return False


def _installed_plugin(wanted: Mapping[str, Any]) -> Checksum:
    """The package's own plugin may be another build: then its numbers decide."""
    from myops._library import ort_library

    path = ort_library()
    if _changed_since_installation(path):
        error = LibraryError(
            WHERE,
            "the installed plugin should be the one the wheel held",
            f"{path} with another checksum: the plugin was damaged or changed",
            "Reinstall myops",
        )
        return Checksum("plugin", str(path), False, str(error))
    same = sha256(path) == wanted["sha256"]
    text = "" if same else "another build than the results were made with"
    return Checksum("plugin", str(path), True, text)


def _other_plugin(wanted: Mapping[str, Any]) -> Checksum:
    """That of another package, which may be another build, too."""
    found = next((path for path in registry.plugins() if path.name == wanted["name"]), None)
    if found is None:
        error = LibraryError(
            WHERE,
            f"the package of {wanted['name']} should be installed, and imported",
            "none registered",
            "Install and import it here: the model has nodes of its operators",
        )
        return Checksum("plugin", wanted["name"], False, str(error))
    same = sha256(found) == wanted["sha256"]
    text = "" if same else "another build than the results were made with"
    return Checksum("plugin", str(found), True, text)


def check_golden(
    golden: str | os.PathLike[str],
    model: str | os.PathLike[str],
    plugin: str | os.PathLike[str] | None = None,
    tolerance: float | Overrides | None = None,
) -> Golden:
    """Checks a model on this machine against golden results: first whether all files arrived whole,
    then the numbers.

    Args:
        golden: the .npz file.
        model: the .onnx file.
        plugin: the plugin file that was copied here, which must be the one the results were made
            with; the installed package's, which may be another build, if None.
        tolerance: in place of the one the results were made with, for all or by dtype.

    Returns:
        Checksums, and a row per output. Where a file is damaged nothing is run.

    Raises:
        UsageError: there is no such golden file.
        ModelError, LibraryError: the model or the plugin does not load though it arrived whole.
    """
    result = Golden(here=machine())
    try:
        meta, arrays = golden_file.read(Path(golden))
    except ModelError as error:
        result.files.append(Checksum("golden", str(golden), False, str(error)))
        return result
    result.made = meta["machine"]
    result.files.append(Checksum("golden", str(golden), True))
    path = Path(model)
    result.files.append(_checksum("model", path, meta["model"]))
    for wanted in meta["weights"]:
        result.files.append(_checksum("weights", path.parent / wanted["name"], wanted))
    if plugin is not None and meta["plugin"] is not None:
        result.files.append(_checksum("plugin", Path(plugin), meta["plugin"]))
    elif meta["plugin"] is not None:
        result.files.append(_installed_plugin(meta["plugin"]))
    result.files += [_other_plugin(wanted) for wanted in meta["other_plugins"]]
    if all(file.ok for file in result.files):
        needed = False if meta["plugin"] is None else plugin
        result.report = _numbers(path, meta, arrays, needed, tolerance)
    return result


def _numbers(
    model: Path,
    meta: Mapping[str, Any],
    arrays: Mapping[str, npt.NDArray[Any]],
    plugin: str | os.PathLike[str] | bool | None,
    tolerance: float | Overrides | None,
) -> Report:
    from myops.ort import session

    inputs = {n.partition(":")[2]: a for n, a in arrays.items() if n.startswith("input:")}
    results = run_session(session(model, plugin=plugin), list(meta["outputs"]), inputs)
    import onnxruntime  # after the session, which says how to install it

    party = f"ORT {onnxruntime.__version__}" + ("" if plugin is False else " + plugin")
    report = Report(truth=f"golden results ({meta['truth']})")
    for (name, about), received in zip(meta["outputs"].items(), results, strict=True):
        expected = np.asarray(arrays[f"output:{name}"], np.float64)
        limit = allowed(about, meta, expected, tolerance)
        array = np.asarray(received)
        note = ""
        comparison = None
        if array.shape == expected.shape:
            dtype = about["dtype"] if about["dtype"] in MODEL_TOLERANCE else "float64"
            comparison = compare(array, expected, dtype, limit)
        else:
            note = f"shape {list(array.shape)}, not {list(expected.shape)}"
        row = Row(3, name, "", party, about["dtype"], comparison, limit, True, None, note)
        report.rows.append(row)
    return report
