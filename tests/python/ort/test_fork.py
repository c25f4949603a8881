# SPDX-License-Identifier: Apache-2.0
"""A process that has used both libraries forks, and the child uses them, as servers with worker
processes do. Threads do not survive a fork: pools that the parent started are ONNX Runtime's and
torch's own concern, so the child makes its sessions itself, or uses one without a pool."""

from __future__ import annotations

from ..support import one_spec
from .support import attributes, model, node

COMMON = """
import os, sys, signal
import numpy as np
import onnxruntime as ort
import torch
import myops.functional, myops.ort
from myops.spec import SPECS

content = open(sys.argv[1], "rb").read()
small = np.linspace(-3, 3, 1000, dtype=np.float32).reshape(-1, 4)
large = np.linspace(-3, 3, 200_000, dtype=np.float32).reshape(-1, 4)

def make(threads):
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.register_custom_ops_library(myops.ort.library_path())
    return ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])

def with_torch():
    results = []
    for spec in SPECS:
        x = torch.linspace(-3, 3, 100_000).reshape(-1, 4)
        weight = [torch.ones(4)] if spec.kind == "norm" else []
        inputs = [x.clone().requires_grad_() for _ in spec.inputs[len(weight):]]
        op = getattr(torch.ops.myops, spec.torch_name)
        y = op(*inputs, *weight)
        y = y if isinstance(y, tuple) else (y,)
        sum(part.sum() for part in y).backward()
        results += [part.detach().numpy().tobytes() for part in y]
        results += [t.grad.numpy().tobytes() for t in inputs]
    return results

def in_child(work):
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            work()
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the child ended with {status}"

def run(session, x):
    return session.run(None, {"x": x})[0].tobytes()

torch.set_num_threads(2)
alone, pool = make(1), make(2)
expected = {"small": run(alone, small), "large": run(pool, large), "torch": with_torch()}
assert run(alone, large) == expected["large"]
"""

CHILD = """
def child():
    assert run(alone, small) == expected["small"], "the parent's session"
    assert run(alone, large) == expected["large"], "the parent's session"
    fresh = make(2)  # with a pool of its own
    for _ in range(5):
        assert run(fresh, large) == expected["large"], "a session of the child's"
    torch.set_num_threads(1)  # OpenMP's threads are gone, for torch's own operators, too
    assert with_torch() == expected["torch"], "torch"

for _ in range(3):
    in_child(child)
    # And the parent goes on.
    assert run(pool, large) == expected["large"]
    assert with_torch() == expected["torch"]
print("done")
"""


@one_spec
def test_child_gets_the_parent_s_bits(spec, run_python, tmp_path):
    (tmp_path / "m.onnx").write_bytes(model([node(spec, **attributes(spec))]))
    done = run_python(COMMON + CHILD, tmp_path / "m.onnx")
    assert done.stdout.strip() == "done"


@one_spec
def test_first_use_after_the_fork(spec, run_python, tmp_path):
    """Both libraries are loaded in the parent, and used in the child only."""
    (tmp_path / "m.onnx").write_bytes(model([node(spec, **attributes(spec))]))
    code = COMMON.split("alone, pool")[0] + (
        "\ndef child():\n"
        "    assert run(make(2), large) == run(make(1), large)\n"
        "    assert with_torch()\n"
        "in_child(child)\n"
        "assert run(make(2), large)\n"
        "print('done')\n"
    )
    assert run_python(code, tmp_path / "m.onnx").stdout.strip() == "done"
