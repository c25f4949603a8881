# SPDX-License-Identifier: Apache-2.0
"""Injection from end to end: find, decide, rewrite, verify, write."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from onnx import ModelProto

from myops._errors import LibraryError, ModelError, UsageError
from myops.bench.machine import cpu_model
from myops.onnx import model as onnx_model
from myops.onnx.inject import decide, files, pieces, rules, verify
from myops.onnx.inject.candidates import CUSTOM, Candidate, find
from myops.onnx.inject.graph import Scope, scopes
from myops.onnx.inject.inputs import describe, proposals
from myops.onnx.inject.options import Options
from myops.onnx.inject.report import Report, Row
from myops.onnx.inject.rewrite import rewrite
from myops.onnx.inputs import required
from myops.ort import library_path

WHERE = "myops.onnx.inject"

MARK = "myops.inject"
"""Key in the metadata of a model whose targets were measured: where that was."""

# Models above are not run unless the user insists: two of them would have to be in memory.
_LARGE = 1 << 30
_CAST_LIKE_SINCE = 15


class Injection:
    """One model on its way through."""

    def __init__(self, model: ModelProto, base: Path | None, options: Options) -> None:
        self.model, self.base, self.options = model, base, options
        self.report = Report(target=options.target, threads=options.threads)
        self.scopes: list[Scope] = []
        self.candidates: list[Candidate] = []
        self.plugin: str | bool | None = None

    @property
    def _base(self) -> str:
        return "" if self.base is None else str(self.base)

    def find(self) -> None:
        self.options.on_step("looking for operators")
        self.scopes = scopes(self.model)
        self.candidates = find(
            self.scopes, self._base, self.options.allow_numeric_change, self.options.operators
        )
        for candidate in self.candidates:
            candidate.group = rules.group(candidate)
        decide.one_type_per_function(self.candidates, onnx_model.opset(self.model) or 1)

    def listed(self) -> Report:
        self.report.rows = [Row.of(candidate, listed=True) for candidate in self.candidates]
        return self.report

    def _find_plugin(self) -> None:
        if self.options.plugin is not None:
            self.plugin = os.fspath(self.options.plugin)
            return
        try:
            library_path()
            self.plugin = None
        except LibraryError as error:
            self.plugin = False
            self.report.notes.append(f"Without the plugin only native spellings are tried: {error}")
            for candidate in self.candidates:
                if self.options.target == "auto":
                    candidate.refused_for.setdefault(CUSTOM, "the plugin is not installed")

    def _mark(self) -> str:
        threads = self.options.threads or "default"
        return f"onnxruntime {self.report.onnxruntime}, {cpu_model()}, threads {threads}"

    def _decided_before(self) -> bool:
        return any(
            entry.key == MARK and entry.value == self._mark() for entry in self.model.metadata_props
        )

    def _set_mark(self, result: ModelProto) -> None:
        for entry in result.metadata_props:
            if entry.key == MARK:
                entry.value = self._mark()
                return
        result.metadata_props.add(key=MARK, value=self._mark())

    # The whole way

    def run(self, output: Path | None) -> ModelProto:
        """The injected model, verified; the original if there is nothing to do."""
        import onnxruntime

        self.report.onnxruntime = onnxruntime.__version__
        self.find()
        self._find_plugin()
        large = files.weights_size(self.model, self.base) > _LARGE
        wanted = self.options.target == "auto" and self.options.measure is not False
        if wanted and large and self.options.measure is None:
            wanted = False
            self.report.notes.append(
                "Not measured: the weights take more than 1 GB. The rules decided; --measure "
                "measures nevertheless."
            )
        if wanted and self._decided_before() and not self.options.remeasure:
            decide.leave(
                self.candidates,
                f"it was measured here before ({MARK} in the metadata; --remeasure)",
            )
            return self._finish(self.model)
        if not any(not c.refused for c in self.candidates) and self.options.ir_version is None:
            decide.leave(self.candidates, "")
            return self._finish(self.model)
        whole = not large or bool(self.options.measure)
        data = self.base if whole else None
        with files.workspace(self.model, data, output) as space:
            return self._finish(self._in(space, wanted, whole))

    def _in(self, space: files.Workspace, wanted: bool, whole: bool) -> ModelProto:
        original = space.write("original.onnx", self._stand_in(self.model, whole))
        before = verify.Baseline(None, [], None, True, "the weights take more than 1 GB")
        if whole:
            before = self._baseline(original)
        if self.options.target != "auto":
            decide.force(self.candidates, self.options.target)
        elif wanted and before.feeds is not None and before.measurable:

            def write(name: str) -> Path:
                return space.write(name, self._rewritten())

            self.report.trials = decide.by_measuring(
                self.candidates, self.options, self.plugin, before.feeds, write
            )
        else:
            if wanted:
                self.report.notes.append(
                    f"Not measured, the rules decided: the original does not run here "
                    f"({before.problem[:300] or 'ONNX Runtime does not load it'})"
                )
            decide.by_rules(self.candidates, _version(self.report.onnxruntime))
        changed = any(candidate.choice for candidate in self.candidates)
        newer = self.options.ir_version is not None
        if not changed and not newer:
            return self.model
        result = self._rewritten()
        if newer and self.options.ir_version is not None:
            result.ir_version = max(result.ir_version, self.options.ir_version)
        if changed and self.report.trials:
            self._set_mark(result)
        self._verify(result, original, space, before, whole)
        return result

    @staticmethod
    def _stand_in(model: ModelProto, whole: bool) -> ModelProto:
        """What is checked in the model's place where its weights are not to be read."""
        return model if whole else verify.skeleton(model)

    def _rewritten(self) -> ModelProto:
        return rewrite(self.model, self.scopes, self.candidates)

    def _baseline(self, original: Path) -> verify.Baseline:
        self.options.on_step("running the original")
        options = self.options
        given = options.inputs is not None or bool(options.dims) or not required(self.model)
        ours = bool(onnx_model.our_nodes(self.model))
        found = verify.baseline(
            original,
            proposals(self.model, options.inputs, options.dims),
            self.plugin if ours else False,
            given,
        )
        if found.feeds is not None:
            self.report.inputs = describe(found.feeds)
        return found

    def _verify(
        self,
        result: ModelProto,
        original: Path,
        space: files.Workspace,
        before: verify.Baseline,
        whole: bool,
    ) -> None:
        self.options.on_step("verifying")
        report = self.report
        path = space.write("result.onnx", self._stand_in(result, whole))
        report.notes += filter(None, [verify.check_proto(original, path)])
        report.pieces = pieces.check(
            self.model,
            self.candidates,
            self._base,
            space,
            self.plugin,
            self.options.allow_numeric_change,
        )
        report.notes += filter(None, [verify.check_loading(path, self.plugin, before)])
        if before.feeds is not None:
            report.outputs = verify.check_values(
                self.model, path, before, self.plugin, self.options.tolerance
            )
        else:
            report.notes.append(
                "The outputs of the whole model were not compared, each kind of replacement was: "
                + before.problem[:300]
            )

    def _finish(self, result: ModelProto) -> ModelProto:
        self.report.rows = [Row.of(candidate, listed=False) for candidate in self.candidates]
        return result


def _version(text: str) -> tuple[int, int]:
    parts = text.split(".")
    return int(parts[0]), int(parts[1])


def _opened(
    model: ModelProto | str | os.PathLike[str], options: Options
) -> tuple[Injection, Path | None]:
    if isinstance(model, ModelProto):
        if files.external_tensors(model):
            raise UsageError(
                WHERE,
                "a model in memory should hold its weights",
                "tensors in external files",
                "Pass the path of the file",
            )
        return Injection(model, None, options), None
    path = Path(model)
    loaded = onnx_model.load(path, weights=False)
    files.require_data(loaded, path.parent)
    return Injection(loaded, path.parent, options), path


def list_candidates(model: ModelProto | str | os.PathLike[str], **options: Any) -> Report:
    """What ``inject`` would look at, without running anything.

    Args:
        model: a model or the path of a file.
        options: as of ``inject``.
    """
    injection, path = _opened(model, Options(**options))
    injection.find()
    report = injection.listed()
    report.source = "" if path is None else str(path)
    return report


def inject(model: ModelProto | str | os.PathLike[str], **options: Any) -> tuple[ModelProto, Report]:
    """Replaces what is computed by several nodes, or by a slow one, where that pays.

    Args:
        model: a model or the path of a file; neither is changed. External data is not read into
            the result, whose tensors refer to the same files, relative to the same folder.
        target: "custom" for our fused nodes, each with its model-local function, so that the file
            also runs where the plugin is not registered; "native" for the fastest standard nodes;
            "auto" for what is fastest on this machine, or nothing.
        operators: names of the operators to look for; all if None.
        threads: of the sessions that are measured; ONNX Runtime's default if None.
        inputs: arrays by name or an .npz file to run the model on; made up from the signature if
            None.
        dims: sizes of symbolic dims, by name or as ``input.axis``.
        measure: whether "auto" measures; if not, ``rules.TABLE`` decides. None measures models
            below 1 GB.
        remeasure: measure a model again that was measured on this machine before.
        allow_numeric_change: replace nodes that round to a half type in between, too. The report's
            ``pieces`` say what changes.
        ir_version: raise the file's IR version to this one. Nothing else raises it.
        plugin: another plugin than the installed one.
        tolerance: largest difference of an output, relative to its largest element.
        seconds: to spend on one contest; there is one per group of places, and two more.
        on_step: called with what is being done.

    Returns:
        The model, the same object if nothing is to be done, and the report.

    Raises:
        ModelError: the model is not usable, or the result is not the model it was.
        UsageError: an argument is not usable.
        MissingPackageError: onnxruntime is not installed.

    It does not change the opset, does not fuse anything but our operators, and does not quantize.
    """
    injection, path = _opened(model, Options(**options))
    result = injection.run(None)
    injection.report.source = "" if path is None else str(path)
    return result, injection.report


def inject_file(
    source: str | os.PathLike[str], output: str | os.PathLike[str], **options: Any
) -> Report:
    """``inject`` from file to file.

    The output appears whole or not at all. External data is shared where it lies in the folder of
    the output, and copied into that folder otherwise.

    Raises:
        UsageError: the output is the source.
    """
    source, output = Path(source), Path(output)
    if output.exists() and source.exists() and output.samefile(source):
        raise UsageError(
            WHERE, "the output should be another file than the input", str(output), "Name another"
        )
    injection, _ = _opened(source, Options(**options))
    model = injection.model
    injection.report.source, injection.report.output = str(source), str(output)
    before = files.locations(model)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with files.placed_data(model, source.parent, output):
            injection.base = output.parent
            result = injection.run(output)
            injection.options.on_step("writing")
            same = result is model and before == files.locations(model)
            # The bytes of an unchanged file stay; protobuf might order its fields anew.
            data = source.read_bytes() if same else result.SerializeToString()
            files.write_bytes(output, data)
    except OSError as error:
        raise ModelError(
            WHERE, "the output should be writable", str(error), "Choose another folder"
        ) from error
    return injection.report
