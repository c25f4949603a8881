# SPDX-License-Identifier: Apache-2.0
"""The rows of ONNX Runtime: one model in three sessions.

The model is a chain of nodes of one operator (``LINKS`` of them, fewer where tensors are large),
each with a model-local function that holds the operator in standard ops. One ``run`` costs some
microseconds whatever it computes; over a chain that cost all but vanishes, and a row's time is the
time of one link.

==============  ==========  =======  =======================================================
row             plugin      level    what runs
==============  ==========  =======  =======================================================
``decomposed``  no          "basic"  the function inlined: the operator's standard ops
``fused``       no          "all"    what ONNX Runtime's own fusions make of them by default:
                                     the rival that counts. The row's kernels say whether it
                                     fused anything
``myops``       registered  "all"    our kernel
==============  ==========  =======  =======================================================

Inputs and outputs are bound to shared buffers (``IOBinding``), so nothing is allocated or copied
around a run. Within the chain ONNX Runtime plans the memory itself and lets kernels that allow it
work in place: the links then touch one buffer where the torch rows touch two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from myops.bench.measure import rotated
from myops.bench.profile import kernels
from myops.bench.rivals import CHECKED, OURS, Case, Data
from myops.ort.feeds import ort_values
from myops.spec import DOMAIN_VERSION, OpSpec

LINKS = 20

OPSET = 18

SESSIONS: tuple[tuple[str, bool, str], ...] = (
    ("decomposed", False, "basic"),
    ("fused", False, "all"),
    (OURS, True, "all"),
)
"""Row name, plugin registered, graph optimization level."""


def links_for(elements: int) -> int:
    """Links of a chain: where one takes long enough by itself, few."""
    return max(1, min(LINKS, 2**23 // elements))


def chain(
    spec: OpSpec, dtype: str, links: int = LINKS, attributes: Mapping[str, float] | None = None
) -> bytes:
    """A model of ``links`` nodes in a row: a node's outputs are the first inputs of the next one,
    further inputs are the graph's. Dims are free. Attributes not given have their defaults."""
    from onnx import helper

    from myops.onnx import add_functions
    from myops.onnx.model import DTYPES

    element_type = {name: number for number, name in DTYPES.items()}[dtype]
    values: dict[str, Any] = {**spec.defaults(), **(attributes or {})}
    feed = list(spec.inputs)
    nodes = []
    for link in range(links):
        last = link == links - 1
        outputs = [n if last else f"{spec.torch_name}_{n}_{link}" for n in spec.outputs]
        name = f"{spec.name}_{link}"
        nodes.append(
            helper.make_node(spec.name, feed, outputs, name, domain=spec.namespace, **values)
        )
        feed[: len(outputs)] = outputs
    norm = spec.kind == "norm"

    def info(name: str) -> Any:
        weight = norm and name == spec.inputs[-1]
        shape = ["width"] if weight else ["n", "width"] if norm else ["n"]
        return helper.make_tensor_value_info(name, element_type, shape)

    graph = helper.make_graph(
        nodes,
        f"{spec.torch_name}_chain",
        [info(name) for name in spec.inputs],
        [info(name) for name in spec.outputs],
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(spec.namespace, DOMAIN_VERSION)]
    # IR 8 is the oldest with functions, and all of them are to be loaded by old runtimes, too.
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    add_functions(model)
    serialized: bytes = model.SerializeToString()
    return serialized


def _element_type(array: npt.NDArray[Any]) -> Any:
    if array.dtype.name == "bfloat16":
        from onnx import TensorProto

        return TensorProto.BFLOAT16
    return array.dtype.type


def _few(spec: OpSpec, data: Data) -> dict[str, Any]:
    """Enough to see which kernels run."""
    rows = 1 if spec.kind == "norm" else 64
    return ort_values(
        {
            name: array[:rows] if array.shape == data.output.shape else array
            for name, array in zip(spec.inputs, data.inputs, strict=True)
        }
    )


def _bound(session: Any, spec: OpSpec, data: Data) -> Callable[[], object]:
    binding = session.io_binding()
    for name, array in zip(spec.inputs, data.inputs, strict=True):
        binding.bind_input(name, "cpu", 0, _element_type(array), array.shape, array.ctypes.data)
    for name, array in zip(spec.outputs, (data.output, data.scratch), strict=False):
        binding.bind_output(name, "cpu", 0, _element_type(array), array.shape, array.ctypes.data)

    def run(_buffers: Data = data) -> None:  # the binding holds addresses, nothing alive
        session.run_with_iobinding(binding)

    return run


def session_case(
    name: str,
    model: bytes,
    spec: OpSpec,
    data: Data,
    threads: int = 1,
    plugin: bool = True,
    level: str = "all",
    links: int = LINKS,
    copies: Sequence[Data] = (),
) -> Case:
    """One row: a session with ``threads`` threads on a model that has the inputs of ``spec`` and
    applies it ``links`` times to get its outputs. Runs take turns on ``data``, whose result is
    checked, and ``copies``.

    Raises:
        ModelError: ONNX Runtime does not load the model.
        LibraryError: the plugin is missing.
    """
    from myops import ort

    def result() -> npt.NDArray[np.float64]:
        return data.output.reshape(-1)[:CHECKED].astype(np.float64)

    ran = kernels(model, _few(spec, data), plugin, level)
    session = ort.session(
        model, intra_op_num_threads=threads, graph_optimization_level=level, plugin=plugin
    )
    call = rotated([_bound(session, spec, d) for d in (data, *copies)])
    return Case("onnxruntime", name, ", ".join(ran), call, links, result)


def ort_cases(
    spec: OpSpec,
    data: Data,
    threads: int,
    links: int = LINKS,
    attributes: Mapping[str, float] | None = None,
    copies: Sequence[Data] = (),
) -> list[Case]:
    """The three rows, on sessions with ``threads`` threads.

    Raises:
        ModelError: ONNX Runtime does not load the chain.
        LibraryError: the plugin is missing.
    """
    model = chain(spec, data.output.dtype.name, links, attributes)
    return [
        session_case(name, model, spec, data, threads, plugin, level, links, copies)
        for name, plugin, level in SESSIONS
    ]
