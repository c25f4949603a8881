# SPDX-License-Identifier: Apache-2.0
"""The operators as ``torch.nn`` modules, one per ``OpSpec``."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from myops import functional
from myops.norm_spec import RMS_NORM, derived
from myops.spec import ELEMENTWISE, NORMS, OpSpec


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


def _forward(spec: OpSpec) -> Any:
    """``forward`` with the operator's inputs spelt out: exporters name the graph's inputs after
    them."""
    inputs = ", ".join(spec.inputs)
    source = (
        f"def forward(self, {inputs}):\n"
        f'    """Applies the operator to ``{"``, ``".join(spec.inputs)}``."""\n'
        f"    return self.apply_operator({inputs})\n"
    )
    namespace: dict[str, Any] = {"__name__": __name__}
    exec(compile(source, f"<myops.nn {spec.name}>", "exec"), namespace)
    function = namespace["forward"]
    function.__annotations__ = dict.fromkeys([*spec.inputs, "return"], torch.Tensor)
    function.__qualname__ = f"{spec.name}.forward"
    return function


if TYPE_CHECKING:
    # The modules are made below, one per OpSpec.
    def __getattr__(name: str) -> type[Any]: ...


def _make(spec: OpSpec) -> type[Operator]:
    arguments = "\n".join(f"    {a.name}: {a.doc} Default {a.default:g}." for a in spec.attributes)
    namespace: dict[str, Any] = {
        "spec": spec,
        "forward": _forward(spec),
        "__module__": __name__,
        "__doc__": f"{spec.summary}\n\n{spec.details}\n\nArgs:\n{arguments}\n\n"
        "Shape: input of any shape, output of the same shape.\n",
    }
    return type(spec.name, (Operator,), namespace)


def adopt(spec: OpSpec) -> None:
    """Takes in the module of another package's operator: see ``myops.register``."""
    globals()[spec.name] = _make(spec)
    __all__.append(spec.name)


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


class _Norm(torch.nn.Module):
    """What the norms' modules share: shape and weight. Attribute values are plain floats."""

    spec: ClassVar[OpSpec]

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        elementwise_affine: bool,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        sizes = [normalized_shape] if isinstance(normalized_shape, int) else normalized_shape
        self.normalized_shape = tuple(int(size) for size in sizes)
        self.elementwise_affine = elementwise_affine
        if elementwise_affine:
            empty = torch.empty(self.normalized_shape, device=device, dtype=dtype)
            self.weight = torch.nn.Parameter(empty)
        else:
            self.register_parameter("weight", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets every weight to 1."""
        if self.elementwise_affine:
            torch.nn.init.ones_(self.weight)

    def _apply_norm(
        self, function: Callable[..., Any], x: torch.Tensor, *residual: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """The results of ``function(x, *residual, weight)``, the normalized dims taken as one."""
        dims = len(self.normalized_shape)
        if dims > 1 and tuple(x.shape[-dims:]) != self.normalized_shape:
            raise ValueError(
                f"[{self.spec.name}] the last dims of x should be {list(self.normalized_shape)}. "
                f"Received shape {list(x.shape)}. Reshape it, or make the module for its shape."
            )
        for tensor in residual if dims > 1 else ():
            # Flattened, another shape could pass for that of x.
            if tensor.shape != x.shape:
                raise ValueError(
                    f"[{self.spec.name}] residual should have the shape of x, {list(x.shape)}. "
                    f"Received {list(tensor.shape)}. Expand or reshape it first."
                )
        if self.weight is None:
            weight = x.new_ones(self.normalized_shape)
        else:
            weight = self.weight.to(x.dtype)
        if dims == 1:
            result = function(x, *residual, weight)
            return result if isinstance(result, tuple) else (result,)
        # Not flatten and x.shape: behind these the TorchScript exporter knows no dim.
        outer = x.shape[:-dims]
        rows, shape = (*outer, weight.numel()), (*outer, *self.normalized_shape)
        flat = [tensor.reshape(rows) for tensor in (x, *residual)]
        result = function(*flat, weight.flatten())
        results = result if isinstance(result, tuple) else (result,)
        return tuple(each.reshape(shape) for each in results)

    def extra_repr(self) -> str:
        values = "".join(f"{a.name}={getattr(self, a.name)}, " for a in self.spec.attributes)
        return f"{self.normalized_shape}, {values}elementwise_affine={self.elementwise_affine}"


class RMSNorm(_Norm):
    """RMSNorm, ``y = x / sqrt(mean(x**2) + eps) * weight``, over the last dims.

    Args:
        normalized_shape: sizes of the dims normalized together, or of the last one.
        eps: added to the mean of the squares; None for the machine epsilon of the precision that
            computes, as in ``torch.nn.RMSNorm``: float64 for float64, else float32.
        elementwise_affine: whether there is a weight.
        device: of the weight.
        dtype: of the weight. The computation is in the input's dtype: the weight is converted to
            it, so that autocast and half inputs work; autocast does not change the input's dtype.

    Attributes:
        weight: the parameter, of shape ``normalized_shape``, or None.

    Shape: input ``(..., *normalized_shape)``, output of the same shape.

    Raises:
        ValueError: the input's last dims are not ``normalized_shape``.

    Source: Zhang, Sennrich, "Root Mean Square Layer Normalization", 2019.
    """

    spec = RMS_NORM

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        functional.check_attribute("RMSNorm", eps)
        super().__init__(normalized_shape, elementwise_affine, device, dtype)
        self.eps = eps

    def forward(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> Any:
        """The norm of ``x``; with ``residual`` the pair of the norm of their sum, and the sum. See
        ``myops.functional.rms_norm``."""
        eps = self.eps
        if eps is None:
            eps = torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32).eps
        if residual is None:
            (y,) = self._apply_norm(lambda x, w: functional.rms_norm(x, w, eps), x)
            return y
        return self._apply_norm(
            lambda x, r, w: functional.rms_norm(x, w, eps, residual=r), x, residual
        )


def _norm_init(spec: OpSpec) -> Callable[..., None]:
    """``__init__`` of a norm's module, its attributes spelt out between the shape and the rest."""

    def attribute(name: str, default: Any, kind: Any) -> inspect.Parameter:
        return inspect.Parameter(
            name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind
        )

    base = list(inspect.signature(_Norm.__init__).parameters.values())
    defaults = {"elementwise_affine": True, "device": None, "dtype": None}
    signature = inspect.Signature(
        [
            *base[:2],
            *(attribute(a.name, a.default, "float") for a in spec.attributes),
            *(p.replace(default=defaults[p.name]) for p in base[2:]),
        ]
    )

    def init(*args: Any, **kwargs: Any) -> None:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        values = {a.name: given.pop(a.name) for a in spec.attributes}
        module = given["self"]
        _Norm.__init__(**given)
        for name, value in values.items():
            functional.check_attribute(spec.name, value)
            setattr(module, name, float(value))

    init.__name__, init.__qualname__ = "__init__", f"{spec.name}.__init__"
    vars(init)["__signature__"] = signature
    return init


def _make_norm(spec: OpSpec) -> type[_Norm]:
    name, names = spec.torch_name, [attribute.name for attribute in spec.attributes]

    def forward(self: _Norm, x: torch.Tensor) -> torch.Tensor:
        values = [getattr(self, attribute) for attribute in names]
        (y,) = self._apply_norm(lambda x, w: getattr(functional, name)(x, w, *values), x)
        return y

    forward.__doc__ = f"The norm of ``x``. See ``myops.functional.{name}``."
    forward.__qualname__ = f"{spec.name}.forward"
    attributes = "".join(f"    {a.name}: {a.doc} Default {a.default:g}.\n" for a in spec.attributes)
    documentation = (
        f"{spec.summary}\n\n{spec.details}\n\n"
        "Args:\n"
        "    normalized_shape: sizes of the dims normalized together, or of the last one.\n"
        f"{attributes}"
        "    elementwise_affine: whether there is a weight.\n"
        "    device: of the weight.\n"
        "    dtype: of the weight. The computation is in the input's dtype: the weight is\n"
        "        converted to it, so that autocast and half inputs work.\n\n"
        "Attributes:\n"
        "    weight: the parameter, of shape ``normalized_shape``, or None.\n\n"
        "Shape: input ``(..., *normalized_shape)``, output of the same shape.\n\n"
        "Raises:\n"
        "    TypeError: an attribute is a tensor that requires grad.\n"
        "    ValueError: the input's last dims are not ``normalized_shape``.\n"
    )
    namespace: dict[str, Any] = {
        "spec": spec,
        "__init__": _norm_init(spec),
        "forward": forward,
        "__module__": __name__,
        "__doc__": documentation,
    }
    return type(spec.name, (_Norm,), namespace)


for _spec in ELEMENTWISE:
    globals()[_spec.name] = _make(_spec)
for _spec in derived(NORMS):
    globals()[_spec.name] = _make_norm(_spec)

__all__ = [
    "Operator",
    "RMSNorm",
    "SwishPerChannel",
    *(spec.name for spec in (*ELEMENTWISE, *derived(NORMS))),
]
