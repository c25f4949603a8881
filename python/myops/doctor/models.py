# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a model: as a file, for the plugin, and for the installed ONNX Runtime."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from myops._errors import ModelError
from myops.doctor import trial
from myops.doctor.environment import Facts, Wanted
from myops.doctor.explain import explain
from myops.doctor.findings import Finding

if TYPE_CHECKING:
    import onnx

_CPU = "CPUExecutionProvider"


def check(
    path: Path,
    facts: Facts,
    wanted: Wanted,
    plugin: Path | None,
    load: bool = True,
    others: Sequence[Path] = (),
) -> list[Finding]:
    """Everything that is wrong with a model.

    Args:
        path: an .onnx file. Only read; its weights only where it is loaded for trial.
        facts: of the machine.
        wanted: execution providers to load it with.
        plugin: registered for the trial; None where there is none that works, which leaves out
            the trial of models with nodes of ours.
        load: whether to load models for trial, in processes of their own.
        others: plugins of other packages, registered, too.
    """
    plugins = [*filter(None, [plugin]), *others]
    load = load and bool(facts.ort_packages) and not facts.ort_problem
    if not path.is_file():
        return [Finding("model-missing", str(path), "no such file")]
    if facts.packages.get("onnx") is None:
        return _try(path, facts, wanted, plugins, ours=None) if load else []
    from myops.onnx import model as onnx_model

    try:
        model = onnx_model.load(path, weights=False)
    except ModelError as error:
        return [Finding("model-damaged", str(path), str(error))]
    found = [*_nodes(model, path), *_external_data(model, path), *_dims(model, path)]
    if not load:
        return found
    ours = {f"{node.op_type} ({node.name})" for node in onnx_model.our_nodes(model)}
    if any(finding.entry.severity == "error" for finding in found) or (ours and plugin is None):
        return found + _release(model, path)
    return found + _try(path, facts, wanted, plugins, ours)


def _nodes(model: onnx.ModelProto, path: Path) -> Iterator[Finding]:
    from myops.ort import check as ort_check

    for problem in ort_check.problems(model):
        evidence = f"{problem.received}; {problem.rule}"
        yield Finding(problem.id, str(path), evidence, f"{problem.remedy}.")


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    from myops.onnx import model as onnx_model

    for graph in onnx_model.graphs(model.graph):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
    for container in (model.graph, *model.functions):
        for node in onnx_model.nodes(container):
            for attribute in node.attribute:
                yield from (attribute.t, *attribute.tensors)


def _external_data(model: onnx.ModelProto, path: Path) -> Iterator[Finding]:
    import onnx

    folder = path.resolve().parent
    for tensor in _tensors(model):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        place = {entry.key: entry.value for entry in tensor.external_data}
        file = (folder / place.get("location", "")).resolve()
        evidence = f"tensor {tensor.name!r}: {place.get('location', '')!r}"
        if not file.is_relative_to(folder):
            yield Finding("external-data-outside", str(path), f"{evidence} is {file}")
        elif not file.is_file():
            yield Finding("external-data-missing", str(path), f"{evidence}, no file {file}")
        else:
            end = int(place.get("offset", 0)) + int(place.get("length", 0))
            size = file.stat().st_size
            if size < end:
                evidence += f" has {size} bytes, {end} are wanted"
                yield Finding("external-data-short", str(path), evidence)


def _dims(model: onnx.ModelProto, path: Path) -> Iterator[Finding]:
    """Compares what the outputs declare with what follows from the inputs."""
    import onnx

    from myops.onnx import model as onnx_model
    from myops.onnx.functions import add_pass_through_functions

    names = {
        dim
        for value in model.graph.input
        for dim in onnx_model.dims(value) or ()
        if isinstance(dim, str)
    }
    if not names:
        return
    copy = onnx_model.without_weights(model)
    add_pass_through_functions(copy)
    del copy.graph.value_info[:]
    for value in copy.graph.output:
        value.type.tensor_type.ClearField("shape")
    with contextlib.suppress(Exception):  # a model that inference refuses is judged by the runtime
        copy = onnx.shape_inference.infer_shapes(copy, data_prop=True)
    for value, inferred in zip(model.graph.output, copy.graph.output, strict=True):
        declared, follows = onnx_model.dims(value), onnx_model.dims(inferred)
        if declared is None or follows is None or len(declared) != len(follows):
            continue
        if any(new in names and old != new for old, new in zip(declared, follows, strict=True)):
            evidence = f"output {value.name!r} declares {_shape(declared)}, the inputs' dims give "
            yield Finding("symbolic-dims-lost", str(path), evidence + _shape(follows))


def _shape(dims: list[int | str | None]) -> str:
    return f"[{', '.join('?' if dim is None else str(dim) for dim in dims)}]"


def _release(model: onnx.ModelProto, path: Path) -> list[Finding]:
    """Loads a model of one node with the same IR version and opset: where the model itself does not
    load for another reason, these two would come next."""
    import onnx
    from onnx import TensorProto, helper

    from myops.onnx import model as onnx_model

    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    node = helper.make_node("Identity", ["x"], ["y"])
    opset = onnx_model.opset(model)
    tiny = helper.make_model(
        helper.make_graph([node], "tiny", value[:1], value[1:]),
        ir_version=model.ir_version,
        opset_imports=[helper.make_opsetid("", 13 if opset is None else opset)],
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tiny.onnx"
        onnx.save(tiny, str(file))
        text = trial.model(file, plugins=[]).problem
    releases = f"the model has IR version {model.ir_version}, opset {opset}"
    return [
        Finding(match.id, str(path), f"{releases}; {match.excerpt}")
        for match in explain(text)
        if match.id in ("ir-too-new", "opset-too-new")
    ]


def _try(
    path: Path, facts: Facts, wanted: Wanted, plugins: Sequence[Path], ours: set[str] | None
) -> list[Finding]:
    """Loads the model.

    Args:
        ours: nodes of ours, as ONNX Runtime writes them; None where that is not known.
    """
    providers = [name for name in wanted.providers if name in (facts.providers or ())]
    result = trial.model(path, plugins, providers)
    if result.problem:
        ids = [match.id for match in explain(result.problem)] or ["model-does-not-load"]
        return [Finding(ids[0], str(path), result.problem)]
    if not providers or providers[0] == _CPU:
        return []
    first = providers[0]
    if result.everything_on:
        elsewhere = sorted(ours or {"all nodes"}) if result.everything_on != first else []
        where = result.everything_on
    else:
        placed = {name: at for name, at in result.placements.items() if at != first}
        elsewhere = [name for name in placed if ours is not None and name in ours]
        where = ", ".join(sorted({placed[name] for name in elsewhere}))
    if not elsewhere:
        return []
    shown = ", ".join(elsewhere[:5]) + (f" and {len(elsewhere) - 5} more" if elsewhere[5:] else "")
    evidence = f"{shown} on {where}, asked for {first}"
    return [Finding("node-on-other-provider", str(path), evidence)]
