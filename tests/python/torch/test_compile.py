# SPDX-License-Identifier: Apache-2.0
"""``opcheck``, ``torch.compile``, ``torch.export`` and ahead-of-time tracing of every operator."""

from __future__ import annotations

import io

import myops.nn
import pytest
import torch
from myops.spec import DOMAIN
from torch.export import Dim
from torch.library import opcheck

from ..support import each_spec, each_spec_with
from .support import (
    LAYOUTS,
    composed,
    each_pass,
    each_spec_with_layout,
    each_unary_spec,
    function,
    leading,
    other_attributes,
    outs,
    overloads,
    pass_tensors,
    same_bits,
    strides,
)


@pytest.fixture(autouse=True)
def _fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


each_spec_with_opcheck_layout = each_spec_with(
    "layout",
    ["contiguous", "transposed", "channels_last", "stepped", "expanded", "scalar", "empty"],
    ["contiguous"],
)


def _wanting_gradients(spec, suffix: str, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    # The third derivative does not exist: the double backward is differentiable in all but the
    # operator's inputs.
    wanting = tensors if suffix != "_double_backward" else tensors[: leading(spec)]
    for tensor in wanting:
        tensor.requires_grad_()
    return tensors


@each_spec_with_opcheck_layout
@each_pass
def test_opcheck(spec, suffix, layout):
    tensors = pass_tensors(spec, suffix, lambda s: LAYOUTS[layout](s, torch.float32))
    opcheck(
        overloads(spec, suffix).default,
        tuple(_wanting_gradients(spec, suffix, tensors)),
        other_attributes(spec),
    )


OUTS = {
    "same": lambda x: torch.empty_like(x),
    "contiguous": lambda x: torch.empty(x.shape),
    "stepped": lambda x: torch.empty(*x.shape[:-1], 2 * x.shape[-1])[..., ::2],
    "reversed_dims": lambda x: torch.empty(x.shape[::-1]).permute(*range(x.dim())[::-1]),
    "resized": lambda x: torch.empty(0),
}


@each_spec_with("out", OUTS, ["same"])
@each_pass
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "channels_last", "stepped"])
def test_opcheck_of_the_out_form(spec, suffix, layout, out):
    tensors = pass_tensors(spec, suffix, lambda s: LAYOUTS[layout](s, torch.float32))
    targets = outs(spec, suffix, lambda: OUTS[out](tensors[leading(spec)]))
    opcheck(overloads(spec, suffix).out, tuple(tensors), {**other_attributes(spec), **targets})


@each_spec_with_layout
def test_compiled_strides_and_values(spec, layout):
    """Through AOT autograd, which trusts the Meta kernel, forward and backward."""
    attributes = other_attributes(spec)
    compiled = torch.compile(
        lambda *a: function(spec)(*a, **attributes), fullgraph=True, backend="aot_eager"
    )
    inputs = pass_tensors(spec, "", lambda s: LAYOUTS[layout](s, torch.float32).resolve_neg())
    y = compiled(*inputs)
    eager = function(spec)(*inputs, **attributes)
    assert strides(y) == strides(eager)
    assert same_bits(y, eager)
    ours = [tensor.detach().requires_grad_() for tensor in inputs]
    theirs = [tensor.detach().requires_grad_() for tensor in inputs]
    compiled(*ours).sum().backward()
    function(spec)(*theirs, **attributes).sum().backward()
    for a, b in zip(ours, theirs, strict=True):
        assert same_bits(a.grad, b.grad)
        assert strides(a.grad) == strides(b.grad)


@each_spec_with(
    "layout", ["contiguous", "transposed", "channels_last", "stepped"], ["channels_last"]
)
def test_inductor(spec, layout):
    attributes = other_attributes(spec)

    def body(*inputs: torch.Tensor) -> torch.Tensor:
        return function(spec)(*(i + 1 for i in inputs), **attributes) * 2

    compiled = torch.compile(body, fullgraph=True)
    inputs = pass_tensors(spec, "", lambda s: LAYOUTS[layout](s, torch.float32))
    y = compiled(*inputs)
    assert same_bits(y, body(*inputs))
    assert y.stride() == body(*inputs).stride()
    bare = torch.compile(lambda *a: function(spec)(*a, **attributes), fullgraph=True)
    assert bare(*inputs).stride() == torch.empty_like(inputs[leading(spec)]).stride()


@each_spec_with("backend", ["eager", "aot_eager", "inductor"], ["aot_eager"])
def test_dynamic_shapes_compile_once(spec, backend):
    frames = torch._dynamo.testing.CompileCounterWithBackend(backend)
    compiled = torch.compile(
        lambda *a: function(spec)(*a) + 1, fullgraph=True, dynamic=True, backend=frames
    )
    for rows in (4, 7, 9, 33):
        inputs = [torch.randn(rows, 6) for _ in spec.inputs]
        assert torch.equal(compiled(*inputs), function(spec)(*inputs) + 1)
    assert frames.frame_count == 1


@each_spec
def test_compiled_training_step(spec):
    inputs = [torch.randn(4, 6, dtype=torch.float64) for _ in spec.inputs]
    compiled = torch.compile(
        lambda *a: function(spec)(*a).square().sum(), fullgraph=True, backend="aot_eager"
    )
    ours = [i.clone().requires_grad_() for i in inputs]
    theirs = [i.clone().requires_grad_() for i in inputs]
    compiled(*ours).backward()
    composed(spec)(*theirs).square().sum().backward()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad)


@each_spec
def test_out_form_compiles(spec):
    compiled = torch.compile(
        lambda out, *a: function(spec)(*a, out=out), fullgraph=True, backend="aot_eager"
    )
    inputs = [torch.randn(4, 6) for _ in spec.inputs]
    out = torch.empty(4, 6)
    assert compiled(out, *inputs) is not None
    assert torch.equal(out, function(spec)(*inputs))


@each_spec
def test_transforms_inside_a_compiled_function(spec):
    inputs = [torch.randn(4, 6, dtype=torch.float64) for _ in spec.inputs]

    def body(*a: torch.Tensor) -> torch.Tensor:
        return torch.func.vmap(torch.func.grad(lambda *r: function(spec)(*r).sum()))(*a)

    compiled = torch.compile(body, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*inputs), body(*inputs))


@each_unary_spec
@pytest.mark.parametrize("strict", [False, True])
def test_export_keeps_the_operator(spec, strict):
    act = getattr(myops.nn, spec.name)(**other_attributes(spec))
    net = torch.nn.Sequential(torch.nn.Linear(6, 4), act)
    program = torch.export.export(
        net, (torch.randn(4, 6),), dynamic_shapes=({0: Dim("rows")},), strict=strict
    )
    targets = [node.target for node in program.run_decompositions().graph.nodes]
    assert targets.count(overloads(spec).default) == 1
    x = torch.randn(11, 6)
    assert torch.equal(program.module()(x), net(x))
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    assert torch.equal(torch.export.load(buffer).module()(x), net(x))


@each_spec_with_layout
def test_exported_program_keeps_strides(spec, layout):
    inputs = pass_tensors(spec, "", lambda s: LAYOUTS[layout](s, torch.float32).resolve_neg())
    program = torch.export.export(getattr(myops.nn, spec.name)(), tuple(inputs))
    assert strides(program.module()(*inputs)) == strides(function(spec)(*inputs))


@each_spec
def test_ahead_of_time_graph_calls_our_backward(spec):
    graphs = []

    def collect(graph: torch.fx.GraphModule, _: list) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    from functorch.compile import aot_function, make_boxed_func

    def compiler(graph: torch.fx.GraphModule, inputs: list):
        return make_boxed_func(collect(graph, inputs))

    traced = aot_function(function(spec), fw_compiler=compiler, bw_compiler=compiler)
    inputs = [torch.randn(4, 6, requires_grad=True) for _ in spec.inputs]
    traced(*inputs).sum().backward()
    names = [str(node.target) for graph in graphs for node in graph.graph.nodes]
    assert names.count(f"{DOMAIN}.{spec.torch_name}.default") == 1
    assert names.count(f"{DOMAIN}.{spec.torch_name}_backward.default") >= 1


@each_unary_spec
def test_traced_and_frozen_torchscript(spec):
    net = torch.nn.Sequential(torch.nn.Linear(6, 4), getattr(myops.nn, spec.name)()).eval()
    traced = torch.jit.freeze(torch.jit.trace(net, torch.randn(2, 6)))
    x = torch.randn(5, 6)
    torch.testing.assert_close(traced(x), net(x))
