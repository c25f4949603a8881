# SPDX-License-Identifier: Apache-2.0
"""Two gloo ranks on this machine: data-parallel gradients, sharded tensors."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from myops.spec import ELEMENTWISE

DDP = """
import torch, torch.distributed as dist
import myops.functional, myops.spec
from torch.nn.parallel import DistributedDataParallel

class Network(torch.nn.Module):
    def __init__(self, spec):
        super().__init__()
        self.spec = spec
        self.inner = torch.nn.Linear(6, 8 * len(spec.inputs))
        self.outer = torch.nn.Linear(8, 3)

    def forward(self, x):
        parts = self.inner(x).chunk(len(self.spec.inputs), -1)
        return self.outer(getattr(myops.functional, self.spec.torch_name)(*parts))

def check(rank):
    for spec in myops.spec.ELEMENTWISE:
        torch.manual_seed(0)
        alone = Network(spec)
        torch.manual_seed(0)
        shared = DistributedDataParallel(Network(spec))
        x = torch.randn(8, 6, generator=torch.Generator().manual_seed(1))
        alone(x).square().mean().backward()
        shared(x.chunk(2)[rank]).square().mean().backward()
        for a, b in zip(alone.parameters(), shared.parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-5, atol=1e-7)
"""

SHARDED = """
import torch, torch.distributed as dist
import myops.functional, myops.spec
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

def check(rank):
    mesh = init_device_mesh("cpu", (2,))
    for spec in myops.spec.ELEMENTWISE:
        function = getattr(myops.functional, spec.torch_name)
        for placement in (Shard(0), Shard(1), Replicate()):
            generator = torch.Generator().manual_seed(2)
            whole = [torch.randn(4, 6, generator=generator) for _ in spec.inputs]
            inputs = [t.clone().requires_grad_() for t in whole]
            parts = [distribute_tensor(t, mesh, [placement]).requires_grad_() for t in whole]
            expected = function(*inputs)
            result = function(*parts)
            assert result.placements == (placement,), (spec.name, result.placements)
            assert torch.equal(result.full_tensor(), expected), spec.name
            expected.square().sum().backward()
            result.square().sum().backward()
            for a, b in zip(inputs, parts, strict=True):
                torch.testing.assert_close(b.grad.full_tensor(), a.grad)
        # A smaller input is sharded where its dim is the sharded one, else replicated.
        if spec.broadcasts:
            for placement in (Shard(0), Shard(1), Replicate()):
                for shape in ((4, 1), (6,), ()):
                    beta = torch.randn(shape, generator=torch.Generator().manual_seed(3))
                    x, b = whole[0].clone().requires_grad_(), beta.clone().requires_grad_()
                    expected = function(x, b)
                    expected.square().sum().backward()
                    px = distribute_tensor(whole[0], mesh, [placement]).requires_grad_()
                    pb = distribute_tensor(beta, mesh, [Replicate()]).requires_grad_()
                    result = function(px, pb)
                    with torch.no_grad():
                        assert torch.equal(function(px, pb).full_tensor(), expected)
                        assert function(px, pb).placements == (placement,)
                    assert torch.equal(result.full_tensor(), expected)
                    result.square().sum().backward()
                    torch.testing.assert_close(px.grad.full_tensor(), x.grad)
                    torch.testing.assert_close(pb.grad.full_tensor(), b.grad)
        # A gate sharded one way and a value the other: redistributed, not refused.
        if len(spec.inputs) == 2:
            mixed = [distribute_tensor(t, mesh, [Shard(i)]) for i, t in enumerate(whole)]
            assert torch.equal(function(*mixed).full_tensor(), function(*whole))
"""

# The operators themselves: not every norm has a public function of its own.
NORMS = """
import torch, torch.distributed as dist
import myops.functional, myops.spec
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

def check(rank):
    mesh = init_device_mesh("cpu", (2,))
    generator = torch.Generator().manual_seed(2)
    weight = torch.randn(8, generator=generator)
    # Rows stay whole: a tensor sharded in its last dim is gathered first.
    for given, kept in ((Shard(0), Shard(0)), (Shard(1), Shard(1)), (Replicate(),) * 2,
                        (Shard(2), None)):
        for spec in myops.spec.NORMS:
            rows = [torch.randn(4, 6, 8, generator=generator) for _ in spec.inputs[1:]]
            alone = [t.clone().requires_grad_() for t in (*rows, weight)]
            parts = [distribute_tensor(t, mesh, [given]).requires_grad_() for t in rows]
            parts.append(distribute_tensor(weight, mesh, [Replicate()]).requires_grad_())
            def call(*inputs):
                # Attributes given, and left out.
                values = [a.default * 2 for a in spec.attributes]
                operator = getattr(torch.ops.myops, spec.torch_name).default
                results = [operator(*inputs, *values), operator(*inputs)]
                return [y for r in results for y in (r if isinstance(r, tuple) else (r,))]
            expected, results = call(*alone), call(*parts)
            for a, b in zip(expected, results, strict=True):
                assert kept is None or b.placements == (kept,), b.placements
                torch.testing.assert_close(b.full_tensor(), a)
            sum(a.square().sum() for a in expected).backward()
            sum(b.square().sum() for b in results).backward()
            for a, b in zip(alone, parts, strict=True):
                if a.grad is not None:
                    torch.testing.assert_close(b.grad.full_tensor(), a.grad, rtol=1e-5, atol=1e-5)
"""

WORKER = """
import os
{body}

def work(rank, store):
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
    torch.set_num_threads(1)
    check(rank)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # gloo's own threads may not survive the interpreter's way out

if __name__ == "__main__":
    import sys
    torch.multiprocessing.spawn(work, (sys.argv[1],), nprocs=2)
    print("done")
"""


@pytest.mark.parametrize(
    "body", [DDP, SHARDED, NORMS], ids=["data_parallel", "dtensor", "dtensor_norms"]
)
def test_two_ranks(body: str, tmp_path: Path) -> None:
    assert ELEMENTWISE and torch.distributed.is_available()
    script = tmp_path / "worker.py"
    script.write_text(textwrap.dedent(WORKER.format(body=body)))
    command = [sys.executable, str(script), str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "done"
