# SPDX-License-Identifier: Apache-2.0
"""What belongs into every project's own CI, in three lines: forward and gradient, the structure of
the exported file, and whether ONNX Runtime agrees."""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from myops._errors import MyopsError, UsageError
from myops.onnx import functions
from myops.onnx import model as onnx_model
from myops.spec import SPECS, OpSpec
from myops.verify import gradients
from myops.verify.model import TORCH, Verification
from myops.verify.operators import attribute_sets, has_torch, operator_rows, operators_in, torch_has
from myops.verify.parties import PLUGIN
from myops.verify.report import Report
from myops.verify.tolerances import MODEL_TOLERANCE, largest_size
from myops.verify.torch_model import run_torch

if TYPE_CHECKING:
    import torch

FORWARD = "forward and gradient"
STRUCTURE = "exported structure"
ALIGNMENT = "ONNX Runtime alignment"

_ARGUMENTS = ("first", "second", "third", "fourth")

OnStep = Callable[[str], object]


@dataclass
class Line:
    """One of the three lines.

    Attributes:
        name: what was tested.
        problems: what is wrong; none if all is right.
        text: what was looked at.
    """

    name: str
    problems: list[str] = field(default_factory=list)
    text: str = ""

    @property
    def ok(self) -> bool:
        return not self.problems


@dataclass
class Check:
    """All lines for one subject."""

    subject: str
    lines: list[Line]

    @property
    def ok(self) -> bool:
        return all(line.ok for line in self.lines)

    def to_dict(self) -> dict[str, Any]:
        lines = [asdict(line) | {"ok": line.ok} for line in self.lines]
        return {"ok": self.ok, "subject": self.subject, "lines": lines}


def _lines() -> tuple[Line, Line, Line]:
    return Line(FORWARD), Line(STRUCTURE), Line(ALIGNMENT)


@contextlib.contextmanager
def _problems_of(line: Line) -> Iterator[None]:
    """An error of ours is a problem of the line, not the end. Wrong usage is the end."""
    try:
        yield
    except UsageError:
        raise
    except MyopsError as error:
        line.problems.append(str(error))


def _check_forward(
    line: Line, cases: Iterable[tuple[OpSpec, str, Mapping[str, float]]], on_step: OnStep
) -> None:
    """Operators in isolation: torch library against float64, derivatives against differences."""
    if not has_torch():
        line.problems.append("not run: needs torch and a myops built where torch is installed")
        return
    rows = Report()
    derived: list[tuple[str, dict[str, float]]] = []
    for spec, dtype, attributes in cases:
        if not torch_has(spec):
            continue
        on_step(f"{spec.name}, {dtype}")
        rows.rows.extend(operator_rows(spec, dtype, dict(attributes), [], True))
        if (spec.name, attributes) not in derived:
            derived.append((spec.name, dict(attributes)))
            problem = gradients.check_operator(spec, attributes)
            line.problems += [problem] if problem else []
    line.problems += rows.sentences()
    names = sorted({row.subject for row in rows.rows})
    dtypes = sorted({row.dtype for row in rows.rows})
    worst = max((_share(row) for row in rows.rows), default=0.0)
    plural = "s" * (len(names) != 1)
    line.text = (
        f"{len(names)} operator{plural} in {', '.join(dtypes)}, 99 of 100 errors below "
        f"{worst:.0%} of what is allowed; first and second derivatives and forward mode"
    )
    if not names:
        line.text = "no operators of ours"


def _share(row: Any) -> float:
    """How much of the allowed ULP error was used."""
    allowed = row.tolerance.ulp
    return row.comparison.p99_ulp / allowed if row.comparison and allowed else 0.0


def _align(line: Line, run: Verification, same_bits: bool) -> None:
    """Whether everybody who runs the file agrees with float64, and torch with the plugin."""
    run.run()
    run.compare()
    line.problems += [s for s in run.report.sentences() if not run.report.ok]
    for row in run.report.rows:
        if row.ours and row.comparison is None:
            line.problems.append(f"{row.party} did not run: {row.note}")
    if same_bits:
        outputs = {r.party: r.outputs for r in run.results if r.outputs is not None}
        for left, right in zip(outputs.get(TORCH, ()), outputs.get(PLUGIN, ()), strict=False):
            if not np.array_equal(left, right, equal_nan=True):
                line.problems.append(f"{run.path}: torch and {PLUGIN} differ in their bits")


def _operator_module(spec: OpSpec, attributes: Mapping[str, float]) -> torch.nn.Module:
    """The operator alone, of arguments named ``_ARGUMENTS``."""
    import torch

    operator = getattr(getattr(torch.ops, spec.namespace), spec.torch_name)

    class Operator(torch.nn.Module):
        def forward(
            self, first: Any, second: Any = None, third: Any = None, fourth: Any = None
        ) -> Any:
            given = [value for value in (first, second, third, fourth) if value is not None]
            return operator(*given, **attributes)

    return Operator()


def _operator_inputs(spec: OpSpec) -> dict[str, torch.Tensor]:
    import torch

    generator = torch.Generator().manual_seed(0)
    shapes: list[tuple[int, ...]] = [(3, 16)] * len(spec.inputs)
    if spec.kind == "norm":
        shapes[-1] = (16,)
    if spec.sample is not None:
        arrays = spec.sample(np.random.default_rng(0))
        tensors = [torch.from_numpy(np.asarray(array, np.float32)) for array in arrays]
    else:
        tensors = [torch.randn(shape, generator=generator) for shape in shapes]
    return dict(zip(_ARGUMENTS, tensors, strict=False))


def check_operators(on_step: OnStep = lambda text: None) -> Check:
    """The installed operators: torch library against float64 and finite differences, an export of
    each with its node counted, and ONNX Runtime with the plugin against float64 and torch's bits.

    Args:
        on_step: called with what is done next.
    """
    from myops import _build_info
    from myops.onnx import export

    forward, structure, alignment = _lines()
    # Another package may have a plugin only.
    specs = [spec for spec in SPECS if torch_has(spec)]
    cases = [
        (spec, dtype, attributes)
        for spec in specs
        for dtype in _build_info.dtypes
        for attributes in attribute_sets(spec)
    ]
    with _problems_of(forward):
        _check_forward(forward, cases, on_step)
    if not has_torch():
        reason = "not run: needs torch and a myops built where torch is installed"
        structure.problems.append(reason)
        alignment.problems.append(reason)
        return Check("operators", [forward, structure, alignment])
    with tempfile.TemporaryDirectory() as folder:
        for spec in specs:
            on_step(f"export of {spec.name}")
            path = Path(folder) / f"{spec.torch_name}.onnx"
            attributes = list(attribute_sets(spec))[-1]
            module, inputs = _operator_module(spec, attributes), _operator_inputs(spec)
            alone = len(inputs) == 1 and spec.kind != "custom"
            dynamic = {"first": {0: "rows"}} if alone else None
            with _problems_of(structure):
                report = export(module, tuple(inputs.values()), path, dynamic=dynamic)
                structure.problems += _structure(path, {spec.name: 1})
                if report.nodes != [f"{spec.namespace}::{spec.name}"]:
                    structure.problems.append(f"{spec.name}: exported as {report.nodes}")
            if path.is_file():
                with _problems_of(alignment):
                    arrays = {name: value.numpy() for name, value in inputs.items()}
                    run = Verification(path, module, arrays, None, None, None)
                    _align(alignment, run, same_bits=True)
    structure.text = f"{len(specs)} exports with one node and one function each"
    alignment.text = f"{len(specs)} files, with the plugin the bits of torch"
    return Check("operators", [forward, structure, alignment])


def _structure(path: Path, expected: Mapping[str, int] | None = None) -> list[str]:
    """What is wrong with a file: onnx's checker, our nodes, their functions, their number."""
    from myops.ort.check import check_model

    problems: list[str] = []
    model = onnx_model.load(path, weights=False)
    ours = Counter(node.op_type for node in onnx_model.our_nodes(model))
    domains = SPECS.namespaces()
    held = {f.name for f in model.functions if f.domain in domains}
    try:
        check_model(path)
    except MyopsError as error:
        problems.append(str(error))
    try:
        onnx.checker.check_model(str(path), full_check=not set(ours) - held)
        if set(ours) - held:
            typed = onnx_model.without_weights(model)
            functions.add_pass_through_functions(typed)
            onnx.shape_inference.infer_shapes(typed, check_type=True, strict_mode=True)
    except Exception as error:  # the checker raises several unrelated kinds
        problems.append(f"{path}: onnx.checker: {' '.join(str(error).split())[:200]}")
    if held and held != set(ours):
        problems.append(f"{path}: nodes {sorted(ours)} and functions {sorted(held)} differ")
    if expected is not None and dict(ours) != dict(expected):
        problems.append(f"{path}: holds {dict(ours)} of our nodes, not {dict(expected)}")
    return problems


def _node_text(path: Path) -> str:
    model = onnx_model.load(path, weights=False)
    ours = Counter(f"{node.domain}::{node.op_type}" for node in onnx_model.our_nodes(model))
    counts = ", ".join(f"{n} {name}" for name, n in ours.items()) or "none of ours"
    total = sum(1 for _ in onnx_model.nodes(model.graph))
    return f"{total} nodes, {counts}, opset {onnx_model.opset(model)}"


def _rows_text(run: Verification) -> str:
    shown = [row for row in run.report.rows if row.party == PLUGIN and row.comparison]
    worst = max(
        shown, key=lambda row: row.comparison.max_abs if row.comparison else 0, default=None
    )
    if worst is None or worst.comparison is None:
        return "no results"
    return f"{PLUGIN} within {worst.comparison.max_abs:.1e} of float64, allowed {worst.tolerance}"


def check_file(
    path: Path,
    inputs: Any = None,
    dims: Mapping[str, int] | None = None,
    on_step: OnStep = lambda text: None,
) -> Check:
    """An exported file: the operators it uses with its attribute values, its structure, and what
    ONNX Runtime makes of it.

    Args:
        path: the .onnx file.
        inputs, dims: see ``verify_model``.
        on_step: called with what is done next.

    Raises:
        ModelError: the file cannot be read.
        UsageError: the inputs do not fit.
    """
    forward, structure, alignment = _lines()
    model = onnx_model.load(path)
    with _problems_of(forward):
        _check_forward(forward, operators_in(model), on_step)
    on_step("structure")
    structure.problems += _structure(path)
    structure.text = _node_text(path)
    with _problems_of(alignment):
        run = Verification(path, None, inputs, dims, None, None, on_step)
        _align(alignment, run, same_bits=False)
        alignment.text = _rows_text(run)
    return Check(str(path), [forward, structure, alignment])


def check_module(
    module: torch.nn.Module,
    inputs: Mapping[str, torch.Tensor],
    subject: str = "module",
    on_step: OnStep = lambda text: None,
    **options: Any,
) -> Check:
    """A torch module: float32 against float64, derivatives against finite differences, its export,
    and ONNX Runtime against float64.

    Args:
        module: stays as it is.
        inputs: example tensors by the names of forward's arguments.
        subject: for the report.
        on_step: called with what is done next.
        options: of ``myops.onnx.export``.

    Raises:
        UsageError: an option is not usable.
    """
    from myops.onnx import export

    forward, structure, alignment = _lines()
    arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
    on_step("forward")
    own, precise = run_torch(module, arrays), run_torch(module, arrays, double=True)
    largest_error = 0.0
    for index, (received, expected) in enumerate(zip(own, precise, strict=True)):
        limit = MODEL_TOLERANCE.get(str(received.dtype), 0.0) * largest_size(expected)
        error = largest_size(np.asarray(received, np.float64) - expected)
        largest_error = max(largest_error, error)
        bad = np.isfinite(received.astype(np.float64)) != np.isfinite(expected)
        if error > limit or bad.any():
            forward.problems.append(
                f"output {index} differs from float64 by {error:.2e}, allowed {limit:.1e}"
            )
    on_step("gradient")
    problem = gradients.check_module(module, inputs)
    forward.problems += [f"gradient: {problem}"] if problem else []
    count = sum(p.numel() for p in module.parameters() if p.requires_grad)
    forward.text = (
        f"within {largest_error:.1e} of float64; derivatives of the inputs and of "
        f"{count:,} parameters"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        on_step("export")
        with _problems_of(structure):
            report = export(module, (), path, kwargs=dict(inputs), **options)
            structure.problems += _structure(path)
            structure.text = f"{_node_text(path)}, {report.exporter}"
        if not path.is_file():
            alignment.problems.append("not run: there is no file")
            return Check(subject, [forward, structure, alignment])
        with _problems_of(alignment):
            run = Verification(path, module, arrays, None, None, None, on_step)
            _align(alignment, run, same_bits=False)
            alignment.text = _rows_text(run)
    return Check(subject, [forward, structure, alignment])
