# SPDX-License-Identifier: Apache-2.0
"""The same bits whatever the number of threads and, with fused multiply-add, the ISA."""

from __future__ import annotations

import functools
import hashlib
import json
import threading
from collections.abc import Callable

import pytest
import torch
from myops import _build_info
from myops.spec import ELEMENTWISE

from ..support import each_representative, each_spec
from .support import (
    DTYPES,
    each_dtype,
    each_pass,
    overloads,
    pass_tensors,
    results,
    sample,
)

# Prints a digest of every operator, pass and dtype, and writes the values.
DIGESTS = """
import hashlib, json, sys
import torch
import myops.functional
from myops import _build_info
from myops.spec import ELEMENTWISE

torch.set_num_threads(1)
torch.manual_seed(0)
x = torch.cat([
    (torch.rand(40_003, dtype=torch.float64) - 0.5) * 60,
    torch.randn(40_003, dtype=torch.float64) * 300,
    torch.tensor([0.0, -0.0, float("inf"), float("-inf"), 1e-40, -1e-40, 1e-320, 3e38]),
])
digests, values = {}, {}
for spec in ELEMENTWISE:
    for suffix in ("", "_backward", "_double_backward"):
        op = getattr(torch.ops.myops, spec.torch_name + suffix).default
        count = sum("Tensor" in str(a.type) for a in op._schema.arguments)
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
            for factor in (1.0, -1.702, 0.0):
                attributes = [a.default * factor for a in spec.attributes]
                # Factors of the derivatives stay below 1: errors are then relative to 1.
                tensors = [x.nan_to_num().roll(i).sin() for i in range(count)]
                tensors[-len(spec.inputs)] = x
                outcome = op(*(tensor.to(dtype) for tensor in tensors), *attributes)
                for i, y in enumerate(outcome if isinstance(outcome, tuple) else [outcome]):
                    key = f"{spec.name}{suffix} {i} {dtype} {factor}"
                    values[key] = y
                    data = y.view(torch.uint8).numpy().tobytes()
                    digests[key] = hashlib.sha256(data).hexdigest()
torch.save(values, sys.argv[1])
print(json.dumps({"isa": _build_info.isa(), "digests": digests}))
"""


Answer = tuple[dict[str, str], dict[str, torch.Tensor]]


@pytest.fixture(scope="module")
def under_isa(run_python_in, tmp_path_factory) -> Callable[[str], Answer]:
    """Digests and values of the kernels of one ISA, computed once."""
    folder = tmp_path_factory.mktemp("isa")

    @functools.cache
    def run(isa: str) -> Answer:
        if isa not in _build_info.isas():
            pytest.skip(f"this machine or build lacks ISA {isa}; it has {_build_info.isas()}")
        file = folder / f"{isa}.pt"
        answer = json.loads(run_python_in(folder, DIGESTS, file, env={"MYOPS_ISA": isa}).stdout)
        assert answer["isa"] == isa
        return answer["digests"], torch.load(file)

    return run


def test_v3_and_v4_give_the_same_bits(under_isa):
    v3, _ = under_isa("v3")
    v4, _ = under_isa("v4")
    assert len(v3) == sum(1 + 2 * len(spec.inputs) for spec in ELEMENTWISE) * 4 * 3
    assert v3 == v4


def test_baseline_is_close(under_isa):
    """Without fused multiply-add the bits may differ, by a few units in the last place."""
    _, baseline = under_isa("baseline")
    _, best = under_isa(_build_info.isas()[-1])
    for key, expected in best.items():
        actual, tolerance = baseline[key], 8 * torch.finfo(expected.dtype).eps
        torch.testing.assert_close(
            actual.double(),
            expected.double(),
            rtol=tolerance,
            atol=tolerance,
            equal_nan=True,
            msg=lambda text, key=key: f"{key}: {text}",
        )


@pytest.mark.parametrize("value", ["nonsense", "V4"])
def test_unknown_isa_is_named(run_python, value, check_message):
    code = """
        import torch, myops.functional as F
        from myops.spec import ELEMENTWISE
        for device in ("cpu", "meta"):
            for spec in ELEMENTWISE:
                try:
                    getattr(F, spec.torch_name)(*[torch.ones(2, device=device)] * len(spec.inputs))
                except RuntimeError as error:
                    print(str(error).splitlines()[0])
    """
    lines = run_python(code, env={"MYOPS_ISA": value}).stdout.splitlines()
    assert len(lines) == 2 * len(ELEMENTWISE)
    for line in lines:
        assert f'"{value}"' in check_message(line)
        assert all(isa in line for isa in _build_info.isas())


def test_empty_isa_means_the_best(run_python):
    done = run_python("from myops import _build_info as b; print(b.isa())", env={"MYOPS_ISA": ""})
    assert done.stdout.strip() == _build_info.isas()[-1]


@pytest.fixture
def _restore_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def _digest(outcome: torch.Tensor | tuple[torch.Tensor, ...]) -> str:
    found = hashlib.sha256()
    for tensor in results(outcome):
        found.update(tensor.view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


@each_spec
@each_dtype
@each_pass
@pytest.mark.usefixtures("_restore_threads")
def test_threads_give_the_same_bits(spec, dtype, suffix):
    tensors = pass_tensors(spec, suffix, lambda seed: sample(spec, 200_003, seed).to(DTYPES[dtype]))
    op = overloads(spec, suffix).default
    digests = set()
    for threads in (1, 2, 3, 7):
        torch.set_num_threads(threads)
        digests.add(_digest(op(*tensors)))
    assert len(digests) == 1


@each_spec
@pytest.mark.usefixtures("_restore_threads")
def test_sizes_around_the_split(spec):
    """Where a tensor starts to be shared between threads, no element is missed or done twice."""
    op = overloads(spec).default
    whole = pass_tensors(spec, "", lambda seed: sample(spec, 200_000, seed).float())
    torch.set_num_threads(1)
    expected = op(*whole)
    torch.set_num_threads(2)
    for size in (16383, 16384, 16385, 32767, 32768, 32769, 33793, 65535, 65537, 131_073, 199_999):
        assert torch.equal(op(*(t[:size] for t in whole)), expected[:size]), size


@each_representative
def test_calls_from_several_threads(spec):
    tensors = pass_tensors(spec, "", lambda seed: sample(spec, 100_000, seed).float())
    op = overloads(spec).default
    expected = _digest(op(*tensors))
    found = []

    def work() -> None:
        found.extend(_digest(op(*tensors)) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 80


@each_representative
def test_large_tensor_is_shared_between_threads(spec, run_python):
    """Without OpenMP flags torch's parallel_for silently runs serial."""
    if torch.get_num_threads() < 2:
        pytest.skip("torch has one thread on this machine")
    code = """
        import sys, os, torch
        import myops.functional as F
        torch.set_num_threads(2)
        x = torch.randn(8_000_000)
        y = torch.empty_like(x)
        inputs = [x] * int(sys.argv[2])
        function = getattr(F, sys.argv[1])
        def ran():
            return {
                task: sum(map(int, open(f"/proc/self/task/{task}/stat").read().split()[13:15]))
                for task in os.listdir("/proc/self/task")
            }
        function(*inputs, out=y)
        before = ran()
        for _ in range(60):
            function(*inputs, out=y)
        after = ran()
        print(sum(after[task] - before.get(task, 0) > 5 for task in after))
    """
    assert int(run_python(code, spec.torch_name, len(spec.inputs)).stdout) >= 2
