# SPDX-License-Identifier: Apache-2.0
"""The rows of ONNX Runtime: one model in three sessions.

The model is a chain of ``LINKS`` nodes of one operator, each with a model-local function that holds
the operator in standard ops. One ``run`` costs some microseconds whatever it computes; over a chain
that cost all but vanishes, and a row's time is the time of one link.

==============  ==========  =======  =======================================================
row             plugin      level    what runs
==============  ==========  =======  =======================================================
``decomposed``  no          "basic"  the function inlined: the operator's standard ops
``fused``       no          "all"    what ONNX Runtime's own fusions make of them by default:
                                     the rival that counts. The row's kernels say whether it
                                     fused anything
``myops``       registered  "all"    our kernel
==============  ==========  =======  =======================================================

Inputs and output are bound to shared buffers (``IOBinding``), so nothing is allocated or copied
around a run. Within the chain ONNX Runtime plans the memory itself and lets kernels that allow it
work in place: the links then touch one buffer where the torch rows touch two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from myops.bench.profile import kernels
from myops.bench.rivals import CHECKED, OURS, Case, Data
from myops.spec import DOMAIN_VERSION, OpSpec

LINKS = 20

OPSET = 18

SESSIONS: tuple[tuple[str, bool, str], ...] = (
    ("decomposed", False, "basic"),
    ("fused", False, "all"),
    (OURS, True, "all"),
)
"""Row name, plugin registered, graph optimization level."""


def chain(
    spec: OpSpec, dtype: str, links: int = LINKS, attributes: Mapping[str, float] | None = None
) -> bytes:
    """A model of ``links`` nodes in a row: the first input is the previous output, further inputs
    are the graph's. Its one dim is free. Attributes not given have their defaults."""
    from onnx import helper

    from myops.onnx import add_functions
    from myops.onnx.model import DTYPES

    element_type = {name: number for number, name in DTYPES.items()}[dtype]
    current, *others = spec.inputs
    values: dict[str, Any] = {**spec.defaults(), **(attributes or {})}
    nodes = []
    for link in range(links):
        following = f"{spec.torch_name}_{link}" if link < links - 1 else "y"
        nodes.append(
            helper.make_node(
                spec.name,
                [current, *others],
                [following],
                name=f"{spec.name}_{link}",
                domain=spec.namespace,
                **values,
            )
        )
        current = following
    graph = helper.make_graph(
        nodes,
        f"{spec.torch_name}_chain",
        [helper.make_tensor_value_info(name, element_type, ["n"]) for name in spec.inputs],
        [helper.make_tensor_value_info("y", element_type, ["n"])],
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


def _values(spec: OpSpec, data: Data, elements: int) -> dict[str, Any]:
    from onnxruntime import OrtValue

    values = {}
    for name, array in zip(spec.inputs, data.inputs, strict=True):
        few = np.ascontiguousarray(array[:elements])
        if few.dtype.name == "bfloat16":
            values[name] = OrtValue.ortvalue_from_numpy_with_onnx_type(
                few.view(np.uint16), _element_type(few)
            )
        else:
            values[name] = OrtValue.ortvalue_from_numpy(few)
    return values


def _bound(session: Any, spec: OpSpec, data: Data) -> Callable[[], object]:
    binding = session.io_binding()
    for name, array in zip(spec.inputs, data.inputs, strict=True):
        binding.bind_input(name, "cpu", 0, _element_type(array), array.shape, array.ctypes.data)
    output = data.output
    binding.bind_output("y", "cpu", 0, _element_type(output), output.shape, output.ctypes.data)
    return lambda: session.run_with_iobinding(binding)


def session_case(
    name: str,
    model: bytes,
    spec: OpSpec,
    data: Data,
    threads: int = 1,
    plugin: bool = True,
    level: str = "all",
    links: int = LINKS,
) -> Case:
    """One row: a session with ``threads`` threads on a model that has the inputs of ``spec`` and
    applies it ``links`` times to get ``y``.

    Raises:
        ModelError: ONNX Runtime does not load the model.
        LibraryError: the plugin is missing.
    """
    from myops import ort

    def result() -> npt.NDArray[np.float64]:
        return data.output[:CHECKED].astype(np.float64)

    ran = kernels(model, _values(spec, data, elements=64), plugin, level)
    session = ort.session(
        model, intra_op_num_threads=threads, graph_optimization_level=level, plugin=plugin
    )
    call = _bound(session, spec, data)
    return Case("onnxruntime", name, ", ".join(ran), call, links, result)


def ort_cases(
    spec: OpSpec,
    data: Data,
    threads: int,
    links: int = LINKS,
    attributes: Mapping[str, float] | None = None,
) -> list[Case]:
    """The three rows, on sessions with ``threads`` threads.

    Raises:
        ModelError: ONNX Runtime does not load the chain.
        LibraryError: the plugin is missing.
    """
    model = chain(spec, data.output.dtype.name, links, attributes)
    return [
        session_case(name, model, spec, data, threads, plugin, level, links)
        for name, plugin, level in SESSIONS
    ]
