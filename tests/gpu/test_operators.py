# SPDX-License-Identifier: Apache-2.0
"""The operators on a CUDA device against the CPU kernels."""

from __future__ import annotations

import myops.functional
import myops.nn
import pytest
import torch
from myops.spec import DOMAIN, ELEMENTWISE, NORMS

DTYPES = ("float32", "float64", "float16", "bfloat16")
PASSES = ("", "_backward", "_double_backward")

each_dtype = pytest.mark.parametrize("dtype", DTYPES)
each_spec = pytest.mark.parametrize("spec", ELEMENTWISE, ids=lambda spec: spec.torch_name)
each_norm = pytest.mark.parametrize("spec", NORMS, ids=lambda spec: spec.torch_name)


def _op(name: str):
    return getattr(getattr(torch.ops, DOMAIN), name).default


def _inputs(op, shape: tuple[int, ...], dtype: str, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    count = sum(isinstance(a.type, torch.TensorType) for a in op._schema.arguments)
    return [
        (4 * torch.randn(shape, generator=generator, dtype=torch.float64)).to(getattr(torch, dtype))
        for _ in range(count)
    ]


def _all(result) -> tuple[torch.Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def _same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """NaN wherever the other has NaN; else equal with equal signs of zero."""
    left, right = left.cpu(), right.cpu()
    equal = (left == right) & (torch.signbit(left) == torch.signbit(right))
    return bool((equal | (left.isnan() & right.isnan())).all())


@each_spec
@each_dtype
@pytest.mark.parametrize("passes", PASSES, ids=["forward", "backward", "double_backward"])
@pytest.mark.parametrize("size", [0, 1, 7, 255, 4096, 100_003])
def test_bits_of_the_cpu(spec, dtype, passes, size):
    op = _op(spec.torch_name + passes)
    inputs = _inputs(op, (size,), dtype)
    expected = _all(op(*inputs))
    for result, truth in zip(_all(op(*(t.cuda() for t in inputs))), expected, strict=True):
        assert _same_bits(result, truth)


@each_spec
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_all_patterns_of_the_halves(spec, dtype):
    patterns = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    x = patterns.view(getattr(torch, dtype))
    inputs = [x, *_inputs(_op(spec.torch_name), x.shape, dtype)[1:]]
    op = _op(spec.torch_name)
    assert _same_bits(op(*(t.cuda() for t in inputs)), op(*inputs))


@each_spec
@each_dtype
@pytest.mark.parametrize("offsets", [(1, 1), (3, 3), (0, 1)])
def test_misaligned_slices(spec, dtype, offsets):
    """Shifted alike, vectors still fit after a head; shifted differently, none do."""
    op = _op(spec.torch_name)
    inputs = _inputs(op, (1003,), dtype)
    moved = [
        torch.cat([t[:1].expand(o), t]).cuda()[o:]
        for t, o in zip(inputs, (offsets * 2)[: len(inputs)], strict=True)
    ]
    assert _same_bits(op(*moved), op(*inputs))


@each_spec
@pytest.mark.parametrize("layout", ["transposed", "sliced", "channels_last"])
def test_layouts(spec, layout):
    op = _op(spec.torch_name)
    for_layout = {
        "transposed": lambda t: t.transpose(0, 1),
        "sliced": lambda t: t[..., ::2],
        "channels_last": lambda t: t.to(memory_format=torch.channels_last),
    }[layout]
    inputs = _inputs(op, (4, 6, 8, 10), "float32")
    truth = op(*(for_layout(t) for t in inputs))
    result = op(*(for_layout(t.cuda()) for t in inputs))
    assert _same_bits(result, truth)
    assert result.stride() == truth.stride()


@each_norm
@each_dtype
@pytest.mark.parametrize("width", [1, 31, 256, 1000, 4096])
def test_norms(spec, dtype, width):
    op = _op(spec.torch_name)
    kind = getattr(torch, dtype)
    rows = [torch.randn(33, width, dtype=torch.float64).to(kind) for _ in spec.inputs[:-1]]
    weight = (torch.rand(width, dtype=torch.float64) + 0.5).to(kind)
    leaves = [t.requires_grad_() for t in (*rows, weight)]
    others = [t.detach().cuda().requires_grad_() for t in leaves]
    results, expected = _all(op(*others)), _all(op(*leaves))
    for a, b in zip(results, expected, strict=True):
        torch.testing.assert_close(a.cpu(), b)
    sum(r.float().sin().sum() for r in results).backward()
    sum(r.float().sin().sum() for r in expected).backward()
    for a, b in zip(others, leaves, strict=True):
        tolerance = {} if kind.itemsize >= 4 else {"rtol": 2e-2, "atol": 2e-1}
        torch.testing.assert_close(a.grad.cpu(), b.grad, **tolerance)


def test_more_than_2_to_the_31_elements():
    count = 2**31 + 8
    free, _ = torch.cuda.mem_get_info()
    if free < 5 * count:
        pytest.skip(f"needs {5 * count >> 30} GiB of free device memory")
    x = torch.full((count,), 2.0, dtype=torch.float16, device="cuda")
    x[-1] = -3.0
    torch.ops.myops.swish.out(x, out=x)
    ends = myops.functional.swish(torch.tensor([2.0, -3.0], dtype=torch.float16))
    assert torch.equal(x[-2:].cpu(), ends)
    assert bool((x[:-1] == x[0]).all())


def test_streams():
    """On the current stream, whichever it is: the operator waits for what is before it there and
    what follows waits for it."""
    stream = torch.cuda.Stream()
    a = torch.randn(1024, 1024, device="cuda")
    for _ in range(50):
        a = torch.randn(1024, 1024, device="cuda")
        expected = myops.functional.swish(a @ a) @ a
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            found = myops.functional.swish(a @ a) @ a
        torch.cuda.current_stream().wait_stream(stream)
        torch.testing.assert_close(found, expected)


def test_graph_capture_and_replay():
    x = torch.randn(10_000, device="cuda")
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        myops.functional.swish(x)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = myops.functional.swish(x, 1.5)
    for seed in range(3):
        torch.manual_seed(seed)
        x.copy_(torch.randn_like(x))
        graph.replay()
        assert _same_bits(y, myops.functional.swish(x.cpu(), 1.5))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one device only")
def test_second_device():
    x = torch.randn(1000, device="cuda:1")
    assert _same_bits(myops.functional.swish(x), myops.functional.swish(x.cpu()))
    assert torch.cuda.current_device() == 0


def test_training_step_under_autocast():
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 128), myops.nn.Swish(), myops.nn.RMSNorm(128), torch.nn.Linear(128, 8)
    ).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x, y = torch.randn(32, 64, device="cuda"), torch.randn(32, 8, device="cuda")
    losses = []
    for _ in range(20):
        with torch.autocast("cuda", torch.float16):
            loss = torch.nn.functional.mse_loss(model(x).float(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
