# SPDX-License-Identifier: Apache-2.0
"""The operators as functions on torch tensors, one per ``OpSpec``.

Every function is differentiable twice, forward and backward, and works under ``torch.compile``,
``torch.export``, ``torch.func`` and autocast (which leaves the input's dtype alone).
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from myops import _torch_rules, registry
from myops._after_import import call_after_import
from myops._library import load_operators, load_torch_library
from myops.norm_spec import derived
from myops.onnx import translate
from myops.spec import DOMAIN, ELEMENTWISE, NORMS, OpSpec

if TYPE_CHECKING:
    # The functions are made below, one per OpSpec.
    def __getattr__(name: str) -> Callable[..., torch.Tensor]: ...


load_torch_library()
_torch_rules.register()
translate.install()


def check_attribute(where: str, value: object) -> None:
    """TypeError for a tensor that requires grad: torch would take its value and lose its gradient
    without a word."""
    if isinstance(value, torch.Tensor) and value.requires_grad:
        raise TypeError(
            f"[{where}] an attribute should be a number, which is not trained. "
            "Received a tensor that requires grad. Pass a number, or compose the function from "
            "torch operators to train it."
        )


def _norm_docstring(spec: OpSpec) -> str:
    x, weight = spec.inputs
    attributes = "".join(f"    {a.name}: {a.doc} Default {a.default:g}.\n" for a in spec.attributes)
    return (
        f"{spec.summary}\n\n{spec.details}\n\n"
        "Args:\n"
        f"    {x}: tensor of shape ``(..., n)``, float32, float64, float16 or bfloat16, any\n"
        "        strides. Read in place where its last dim is contiguous, else copied once.\n"
        f"    {weight}: tensor of shape ``(n,)`` and the dtype of ``{x}``.\n"
        f"{attributes}"
        f"    out: tensor of the dtype and device of ``{x}`` to write into, resized to its shape.\n"
        "        Not differentiable.\n\n"
        "Returns:\n"
        f"    A tensor of the shape, dtype, device and memory format of ``{x}``; ``out`` if\n"
        "    given.\n\n"
        "Raises:\n"
        "    TypeError: an input is not a dense floating-point tensor, or dtypes differ.\n"
        "    ValueError: an attribute is not finite or too small, or shapes or devices differ.\n\n"
        "The first derivative has a kernel of its own; higher ones, and forward mode, are\n"
        f"composed of torch's operators. The gradient of ``{weight}`` does not depend on the\n"
        "number of threads.\n"
    )


def _docstring(spec: OpSpec) -> str:
    arguments = "\n".join(
        [
            f"    {name}: tensor of any shape, float32, float64, float16 or bfloat16, any strides."
            if name == spec.inputs[0] or not spec.broadcasts
            else f"    {name}: tensor of the first one's dtype, and of its shape or one that can\n"
            "        be broadcast to it: sizes equal or 1, aligned at the last dim."
            for name in spec.inputs
        ]
        + [f"    {a.name}: {a.doc} Default {a.default:g}." for a in spec.attributes]
    )
    return (
        f"{spec.summary}\n\n{spec.details}\n\n"
        f"Args:\n{arguments}\n"
        "    out: tensor of the input's dtype and device to write into; resized to its shape.\n"
        "        Not differentiable.\n\n"
        "Returns:\n"
        "    A tensor of the input's shape, dtype, device and memory format; ``out`` if given. It\n"
        "    never shares memory with the input.\n\n"
        "Raises:\n"
        "    TypeError: an input is not a dense floating-point tensor.\n"
        "    ValueError: an attribute is not finite, or shapes do not fit or devices differ.\n\n"
        + ("Does not" if spec.broadcasts else "Does not broadcast, and does not")
        + " compute derivatives beyond the second.\n"
    )


def _spelt_out(spec: OpSpec, default: Any, out_form: Any) -> Callable[..., torch.Tensor]:
    """The function over two forms of the operator. With named parameters: packing and unpacking
    ``*args`` would cost as much as the call."""
    name, attributes = spec.torch_name, [attribute.name for attribute in spec.attributes]
    inputs, every = ", ".join(spec.inputs), ", ".join((*spec.inputs, *attributes))
    parameters = [*spec.inputs, *(f"{a.name}={a.default!r}" for a in spec.attributes)]
    lines = [f"def {name}({', '.join(parameters)}, *, out=None):"]
    for attribute in attributes:
        lines += [
            f"    if type({attribute}) is not float:",
            f"        check_attribute({name!r}, {attribute})",
        ]
    if attributes:
        # The dispatcher fills in defaults faster than it reads numbers.
        defaults = " and ".join(f"{a.name} == {a.default!r}" for a in spec.attributes)
        lines += [f"    if out is None and {defaults}:", f"        return default({inputs})"]
    lines += [
        "    if out is None:",
        f"        return default({every})",
        f"    out_form({every}, out=out)",
        "    return out",
    ]
    # In a closure: Dynamo looks globals up in the module.
    lines = [
        "def make(default, out_form, check_attribute):",
        *(f"    {line}" for line in lines),
        f"    return {name}",
    ]
    namespace: dict[str, Any] = {"__name__": __name__}
    exec(compile("\n".join(lines), f"<myops.functional {name}>", "exec"), namespace)
    function: Callable[..., torch.Tensor] = namespace["make"](default, out_form, check_attribute)
    function.__qualname__ = name
    function.__annotations__ = {
        **dict.fromkeys(spec.inputs, torch.Tensor),
        **dict.fromkeys(attributes, float),
        "out": "torch.Tensor | None",
        "return": torch.Tensor,
    }
    return function


def _make(spec: OpSpec) -> Callable[..., torch.Tensor]:
    packet = getattr(getattr(torch.ops, spec.namespace), spec.torch_name)
    # What the overloads call in turn, a Python frame less. Dynamo knows the overloads only.
    function = _spelt_out(spec, packet.default._op, packet.out._op)
    traced = _spelt_out(spec, packet.default, packet.out)

    def tell_dynamo(dynamo: ModuleType) -> None:
        torch.compiler.substitute_in_graph(function)(traced)

    call_after_import("torch._dynamo", tell_dynamo)
    function.__doc__ = _norm_docstring(spec) if spec.kind == "norm" else _docstring(spec)
    return function


def adopt(spec: OpSpec) -> None:
    """Takes in the function of another package's operator: see ``myops.register``."""
    path = registry.torch_library(spec.namespace)
    if path is not None:
        load_operators(path)
        _torch_rules.register_operators((spec,))
        translate.install_operators((spec,))
        make = _make_custom if spec.kind == "custom" else _make
        globals()[spec.torch_name] = make(spec)
        __all__.append(spec.torch_name)


def _make_custom(spec: OpSpec) -> Callable[..., Any]:
    """The function of an operator over whole tensors: no ``out=``, shapes of its own."""
    operator = getattr(getattr(torch.ops, spec.namespace), spec.torch_name).default
    parameters = [*spec.inputs, *(f"{a.name}={a.default!r}" for a in spec.attributes)]
    names = ", ".join([*spec.inputs, *(a.name for a in spec.attributes)])
    source = (
        f"def {spec.torch_name}({', '.join(parameters)}):\n"
        + "".join(f"    check_attribute({spec.torch_name!r}, {a.name})\n" for a in spec.attributes)
        + f"    return operator({names})\n"
    )
    namespace = {"__name__": __name__, "operator": operator, "check_attribute": check_attribute}
    exec(compile(source, f"<myops.functional {spec.torch_name}>", "exec"), namespace)
    function: Callable[..., Any] = namespace[spec.torch_name]
    arguments = "\n".join(
        [f"    {name}: tensor, float32, float64, float16 or bfloat16." for name in spec.inputs]
        + [f"    {a.name}: {a.doc} Default {a.default:g}." for a in spec.attributes]
    )
    function.__doc__ = (
        f"{spec.summary}\n\n{spec.details}\n\nArgs:\n{arguments}\n\n"
        f"Returns:\n    {', '.join(spec.outputs)}, of the inputs' dtype.\n\n"
        "Raises:\n"
        "    TypeError: an input is not a dense floating-point tensor, or dtypes differ.\n"
        "    ValueError: an attribute or a shape is not what the operator takes.\n\n"
        "On the CPU only. Does not compute derivatives beyond the first, or in forward mode.\n"
    )
    return function


_DERIVED = (*ELEMENTWISE, *derived(NORMS))
for _spec in _DERIVED:
    globals()[_spec.torch_name] = _make(_spec)

_swish: Callable[..., torch.Tensor] = globals()["swish"]
_swish_tensor: Callable[..., torch.Tensor] = globals()["swish_tensor"]


def quick_gelu(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """GELU's quick form, ``y = x * sigmoid(1.702 * x)``: ``swish`` with that coefficient.

    Args and errors are those of ``swish``.
    """
    return _swish(x, 1.702, out=out)


def swish_per_channel(
    x: torch.Tensor, beta: torch.Tensor, dim: int = 1, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Swish with a coefficient per channel, ``y = x * sigmoid(beta[c] * x)``: ``swish_tensor`` with
    ``beta`` laid along one dim.

    Args:
        x: tensor of any shape, float32, float64, float16 or bfloat16, any strides.
        beta: tensor of shape ``(x.shape[dim],)`` and of the dtype of ``x``; or one element, for all
            channels.
        dim: the dim of the channels; negative ones count from the end. Without meaning where
            ``beta`` has one element.
        out: as for ``swish_tensor``.

    Returns:
        A tensor of the shape, dtype, device and memory format of ``x``; ``out`` if given. The
        gradient of ``beta`` is summed over the other dims.

    Raises:
        IndexError: ``x`` has no such dim.
        TypeError: an input is not a dense floating-point tensor, or dtypes differ.
        ValueError: ``beta`` has another shape, or devices differ.

    Source: Ramachandran, Zoph, Le, "Searching for Activation Functions", 2017.
    """
    where, rank = "swish_per_channel", x.dim()
    # Sizes are compared last: to a tracer they are values, and a comparison is a warning.
    if beta.dim() > 1 and beta.numel() != 1:
        raise ValueError(
            f"[{where}] beta should have one dim, or one element. "
            f"Received shape {list(beta.shape)}. Flatten it, or call swish_tensor."
        )
    has_dim = -rank <= dim < rank
    if beta.dim() != 1 or (not has_dim and beta.numel() == 1):
        return _swish_tensor(x, beta.reshape(()), out=out)
    if not has_dim:
        raise IndexError(
            f"[{where}] dim should be from {-rank} to {rank - 1}. "
            f"Received {dim} for x of shape {list(x.shape)}. Pass the dim of the channels."
        )
    tracing = torch.jit.is_tracing()  # type: ignore[attr-defined]
    # Not `in`: for symbolic sizes it asks for identity.
    if not tracing and beta.shape[0] != 1 and beta.shape[0] != x.shape[dim]:
        raise ValueError(
            f"[{where}] beta should have an element per channel, {x.shape[dim]} in dim {dim} of "
            f"x of shape {list(x.shape)}. Received {beta.shape[0]}. "
            "Pass another beta, or another dim."
        )
    after = rank - 1 - dim % rank
    return _swish_tensor(x, beta.reshape(-1, *[1] * after) if after else beta, out=out)


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float = 1e-6,
    *,
    residual: torch.Tensor | None = None,
    out: torch.Tensor | tuple[torch.Tensor, torch.Tensor] | None = None,
) -> Any:
    """RMSNorm over the last dim, ``y = x / sqrt(mean(x**2) + eps) * weight``, of ``x`` or of
    ``x + residual``.

    The mean is taken so that squares do not leave the exponent range. A row with NaN is NaN
    throughout; one with an infinity is NaN there and 0 elsewhere; one of zeros is 0, or NaN where
    ``eps`` is 0. ``float16`` and ``bfloat16`` compute in ``float32`` and round once, after rounding
    the sum with the residual.

    Source: Zhang, Sennrich, "Root Mean Square Layer Normalization", 2019.

    Args:
        x: tensor of shape ``(..., n)``, float32, float64, float16 or bfloat16, any strides. Read in
            place where its last dim is contiguous, else copied once.
        weight: tensor of shape ``(n,)`` and the dtype of ``x``.
        eps: added to the mean of the squares. Finite, at least 0. Default 1e-06.
        residual: tensor of the shape and dtype of ``x``, added to it first.
        out: tensor of the dtype and device of ``x`` to write into, resized to its shape; with
            ``residual`` two of them. Not differentiable.

    Returns:
        ``y``, of the shape, dtype, device and memory format of ``x``; with ``residual`` the pair
        ``(y, x + residual)``; ``out`` if given.

    Raises:
        TypeError: an input is not a dense floating-point tensor, or dtypes differ.
        ValueError: ``eps`` is negative or not finite, or shapes or devices differ.

    The first derivative has a kernel of its own; higher ones, and forward mode, are composed of
    torch's operators. The gradient of ``weight`` does not depend on the number of threads.
    """
    check_attribute("rms_norm", eps)
    operators = getattr(torch.ops, DOMAIN)
    if residual is None:
        if out is None:
            return operators.rms_norm.default(x, weight, eps)
        operators.rms_norm.out(x, weight, eps, out=out)
        return out
    if out is None:
        return operators.add_rms_norm.default(x, residual, weight, eps)
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        raise TypeError(
            "[rms_norm] out should be a pair (y, sum) where a residual is given. "
            f"Received {type(out).__name__}. Pass two tensors."
        )
    operators.add_rms_norm.out(x, residual, weight, eps, out_y=out[0], out_sum=out[1])
    return out


def split_gate(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The two halves of the last dim, for gated operators: ``swiglu(*split_gate(x))``.

    Args:
        x: tensor of shape ``(..., 2 * n)``.

    Returns:
        Views ``(gate, x)`` of shape ``(..., n)``; the operators read them without a copy.

    Raises:
        ValueError: the last dim is missing or odd.
    """
    if x.dim() == 0 or x.shape[-1] % 2:
        raise ValueError(
            "[split_gate] the last dim should be even. "
            f"Received shape {list(x.shape)}. Give gate and x as one tensor of twice the width."
        )
    gate, value = x.chunk(2, dim=-1)
    return gate, value


__all__ = [
    "quick_gelu",
    "rms_norm",
    "split_gate",
    "swish_per_channel",
    *(spec.torch_name for spec in _DERIVED),
]
