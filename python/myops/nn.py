# SPDX-License-Identifier: Apache-2.0
"""The operators as ``torch.nn`` modules, one per ``OpSpec``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from myops import functional
from myops.spec import SPECS, OpSpec


class Operator(torch.nn.Module):
    """Base of the modules: holds the attribute values, applies the operator.

    The attribute values are plain floats, not parameters: they appear in ``repr`` and not in the
    state dict.
    """

    spec: ClassVar[OpSpec]

    def __init__(self, *args: float, **kwargs: float) -> None:
        super().__init__()
        names = [attribute.name for attribute in self.spec.attributes]
        if len(args) > len(names):
            raise TypeError(
                f"[{self.spec.name}] the module takes at most {len(names)} arguments "
                f"({', '.join(names)}). Received {len(args)}. Pass fewer."
            )
        given = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names or name in given:
                raise TypeError(
                    f"[{self.spec.name}] the module takes {', '.join(names) or 'no arguments'}, "
                    f"each once. Received {name}={value!r}. Remove it."
                )
            given[name] = value
        for name, default in self.spec.defaults().items():
            functional.check_attribute(self.spec.name, given.get(name))
            setattr(self, name, float(given.get(name, default)))

    def apply_operator(self, *inputs: torch.Tensor) -> torch.Tensor:
        """The operator on ``inputs``. See the function of its name in ``myops.functional``."""
        function = getattr(functional, self.spec.torch_name)
        values = [getattr(self, attribute.name) for attribute in self.spec.attributes]
        result: torch.Tensor = function(*inputs, *values)
        return result

    def extra_repr(self) -> str:
        return ", ".join(f"{a.name}={getattr(self, a.name)!r}" for a in self.spec.attributes)


def _forward_one(self: Operator, x: torch.Tensor) -> torch.Tensor:
    """Applies the operator to ``x``."""
    return self.apply_operator(x)


def _forward_beta(self: Operator, x: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    """Applies the operator to ``x`` and ``beta``."""
    return self.apply_operator(x, beta)


def _forward_gated(self: Operator, gate: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Applies the operator to ``gate`` and ``x``."""
    return self.apply_operator(gate, x)


# Exporters name the graph's inputs after forward's arguments, so they are spelt out.
_FORWARD: dict[tuple[str, ...], Any] = {
    ("x",): _forward_one,
    ("gate", "x"): _forward_gated,
    ("x", "beta"): _forward_beta,
}

if TYPE_CHECKING:
    # The modules are made below, one per OpSpec.
    def __getattr__(name: str) -> type[Any]: ...


def _make(spec: OpSpec) -> type[Operator]:
    arguments = "\n".join(f"    {a.name}: {a.doc} Default {a.default:g}." for a in spec.attributes)
    namespace: dict[str, Any] = {
        "spec": spec,
        "forward": _FORWARD[spec.inputs],
        "__module__": __name__,
        "__doc__": f"{spec.summary}\n\n{spec.details}\n\nArgs:\n{arguments}\n\n"
        "Shape: input of any shape, output of the same shape.\n",
    }
    return type(spec.name, (Operator,), namespace)


for _spec in SPECS:
    globals()[_spec.name] = _make(_spec)


class SwishPerChannel(torch.nn.Module):
    """Swish with a trained coefficient per channel, ``y = x * sigmoid(beta[c] * x)``.

    Args:
        num_channels: how many; 1 for a single coefficient for all channels.
        dim: the dim of the channels in the input.
        beta: what the coefficients start from. 1 is SiLU.
        device: of the parameter.
        dtype: of the parameter. The computation is in the input's dtype: ``beta`` is converted to
            it, so that autocast and half inputs work.

    Attributes:
        beta: the parameter, of shape ``(num_channels,)``.

    Shape: input of any shape with ``num_channels`` elements in ``dim``, output of the same shape.

    Raises:
        ValueError: ``num_channels`` is not positive, or ``beta`` is not finite.

    Source: Ramachandran, Zoph, Le, "Searching for Activation Functions", 2017.
    """

    def __init__(
        self,
        num_channels: int,
        dim: int = 1,
        beta: float = 1.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if num_channels < 1:
            raise ValueError(
                "[SwishPerChannel] num_channels should be positive. "
                f"Received {num_channels}. Pass the size of the channels' dim."
            )
        if not math.isfinite(beta):
            raise ValueError(
                f"[SwishPerChannel] beta should be finite. Received {beta}. Pass a finite number."
            )
        self.num_channels = num_channels
        self.dim = dim
        self.initial_beta = float(beta)
        self.beta = torch.nn.Parameter(torch.empty(num_channels, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets every coefficient to what it started from."""
        torch.nn.init.constant_(self.beta, self.initial_beta)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Applies the operator to ``x``. See ``myops.functional.swish_per_channel``."""
        return functional.swish_per_channel(x, self.beta.to(x.dtype), self.dim)

    def extra_repr(self) -> str:
        return f"{self.num_channels}, dim={self.dim}, beta={self.initial_beta!r}"


__all__ = ["Operator", "SwishPerChannel", *(spec.name for spec in SPECS)]
