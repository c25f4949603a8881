# SPDX-License-Identifier: Apache-2.0
"""The operators as ``torch.nn`` modules, one per ``OpSpec``."""

from __future__ import annotations

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


def _forward_gated(self: Operator, gate: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Applies the operator to ``gate`` and ``x``."""
    return self.apply_operator(gate, x)


# Exporters name the graph's inputs after forward's arguments, so they are spelt out.
_FORWARD: dict[tuple[str, ...], Any] = {
    ("x",): _forward_one,
    ("gate", "x"): _forward_gated,
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

__all__ = ["Operator", *(spec.name for spec in SPECS)]
