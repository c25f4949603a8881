# SPDX-License-Identifier: Apache-2.0
"""Mish, GELU's tanh form and HardSwish in ONNX Runtime, float32, one thread: against what ONNX
Runtime's optimisations make of the form in which they are exported.

HardSwish is taken in the form of a model that spells it with relu6, ``x * min(max(x + 3, 0), 6) /
6``: newer exporters write one standard node instead.
"""

from __future__ import annotations

from claims import Claim, Contest, Goal, Setup, contest_script, main
from myops.bench.agreement import expected_result
from myops.bench.ort_rows import LINKS, OPSET, chain, session_case
from myops.bench.rivals import OURS, Data
from myops.spec import find

SIZE = 393_216
EXPORTED = "as exported"


def _claim(op: str, target: float) -> Claim:
    spec = find(op)
    name = f"ort-{spec.torch_name.replace('_', '-')}-exported"
    return Claim(name, op, EXPORTED, "onnxruntime", (Goal(SIZE, target),), variant=op)


CLAIMS = (_claim("Mish", 15), _claim("GeluTanh", 3.5), _claim("HardSwish", 3))


def relu6_chain(links: int = LINKS) -> bytes:
    """HardSwish as x * relu6(x + 3) / 6, ``links`` times."""
    from onnx import TensorProto, helper

    constants = {"zero": 0.0, "three": 3.0, "six": 6.0}
    nodes = []
    current = "x"
    for i in range(links):
        following = "y" if i == links - 1 else f"y_{i}"
        for op, inputs, output in (
            ("Add", [current, "three"], f"shifted_{i}"),
            ("Clip", [f"shifted_{i}", "zero", "six"], f"clipped_{i}"),
            ("Mul", [current, f"clipped_{i}"], f"product_{i}"),
            ("Div", [f"product_{i}", "six"], following),
        ):
            nodes.append(helper.make_node(op, inputs, [output]))
        current = following
    graph = helper.make_graph(
        nodes,
        "relu6_chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])],
        [
            helper.make_tensor(name, TensorProto.FLOAT, [], [value])
            for name, value in constants.items()
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    serialized: bytes = model.SerializeToString()
    return serialized


def contest(setup: Setup) -> Contest:
    spec = find(setup.variant)
    data = Data.make(spec, setup.size, setup.dtype)
    ours = chain(spec, setup.dtype)
    exported = relu6_chain() if spec.name == "HardSwish" else ours
    cases = [
        session_case(EXPORTED, exported, spec, data, setup.threads, plugin=False),
        session_case(OURS, ours, spec, data, setup.threads),
    ]
    return Contest.of(cases, expected_result(spec, data, LINKS))


SCRIPT = contest_script("ort_activations", CLAIMS, contest)

if __name__ == "__main__":
    main(SCRIPT)
