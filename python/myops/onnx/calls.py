# SPDX-License-Identifier: Apache-2.0
"""How many nodes an exported file should hold: the calls of our operators in one run of a model.

Exporters may merge equal calls and drop those whose result is not used. So there are two numbers:
all calls, and those that remain when everything equal is merged and everything dead is dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from myops.spec import SPECS, OpSpec

if TYPE_CHECKING:
    import torch


def our_operator(function: Any) -> OpSpec | None:
    """The operator that a torch operator is, if it is one of ours."""
    # No exporter can write the out= form: counted, it will be missed in the file.
    namespace, _, name = function.name().removesuffix(".out").partition("::")
    if namespace not in SPECS.namespaces():
        return None
    return next((s for s in SPECS if (s.namespace, s.torch_name) == (namespace, name)), None)


@dataclass
class Calls:
    """The calls of our operators in one run of a model.

    Attributes:
        total: calls by ONNX name.
        distinct: the same without equal and dead calls: the fewest nodes a file may hold.
        rounded: attribute values of float64 calls that float32, ONNX's type, cannot hold.
        attributes: operator and attribute values of each call, in order.
    """

    total: Counter[str] = field(default_factory=Counter)
    distinct: Counter[str] = field(default_factory=Counter)
    rounded: set[tuple[str, str, float]] = field(default_factory=set)
    attributes: list[tuple[str, dict[str, float]]] = field(default_factory=list)


@dataclass
class _Value:
    """What one operator call computed."""

    operator: str | None  # ONNX name of ours, None of torch's
    sources: list[int]


class _Numbering:
    """Gives equal computations equal numbers."""

    def __init__(self) -> None:
        from torch.utils.weak import WeakIdKeyDictionary

        self.values: list[_Value] = []
        self.effects: list[int] = []  # always live: they write into memory
        self._numbers: dict[Any, int] = {}
        self._of_tensor: Any = WeakIdKeyDictionary()

    def of(self, tensor: torch.Tensor) -> int:
        if tensor not in self._of_tensor:
            self._of_tensor[tensor] = self._new(_Value(None, []))
        number: int = self._of_tensor[tensor]
        return number

    def _new(self, value: _Value) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def record(self, function: Any, args: Any, kwargs: Any, result: Any) -> None:
        import torch
        from torch.utils import _pytree

        ours = our_operator(function)
        leaves, structure = _pytree.tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        sources = [self.of(tensor) for tensor in tensors]
        value = _Value(ours.name if ours else None, sources)
        schema = getattr(function, "_schema", None)  # control flow has none
        if schema is None or schema.is_mutable:
            number = self._new(value)
            self.effects.append(number)
            written = tensors if schema is not None else []
        else:
            written = []
            parts: tuple[Any, ...] = tuple(
                ("tensor", self.of(leaf)) if isinstance(leaf, torch.Tensor) else repr(leaf)
                for leaf in leaves
            )
            if ours is not None:
                parts = (*sources, *_values(ours, args, kwargs).values())
            random = torch.Tag.nondeterministic_seeded in function.tags
            key = (function.name(), parts, str(structure) if ours is None else "")
            number = -1 if random else self._numbers.get(key, -1)
            if number < 0:
                number = self._numbers[key] = self._new(value)
        for position, output in enumerate(_pytree.tree_leaves(result)):
            if isinstance(output, torch.Tensor):
                place = ("output", number, position)
                if place not in self._numbers:
                    self._numbers[place] = self._new(_Value(None, [number]))
                self._of_tensor[output] = self._numbers[place]
        for tensor in written:
            self._of_tensor[tensor] = self._new(_Value(None, [number]))

    def live(self, outputs: list[torch.Tensor]) -> set[int]:
        found: set[int] = set()
        waiting = [self.of(tensor) for tensor in outputs] + self.effects
        while waiting:
            number = waiting.pop()
            if number not in found:
                found.add(number)
                waiting.extend(self.values[number].sources)
        return found


def _values(spec: OpSpec, args: Any, kwargs: Any) -> dict[str, float]:
    """The attribute values of a call."""
    names = [attribute.name for attribute in spec.attributes]
    given = dict(zip(names, args[len(spec.inputs) :], strict=False))
    given |= {name: value for name, value in kwargs.items() if name in names}
    return {name: float(given.get(name, default)) for name, default in spec.defaults().items()}


def record_calls(model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Calls:
    """Runs the model once, without gradients, and records the calls of our operators."""
    import torch
    from torch.utils import _pytree
    from torch.utils._python_dispatch import TorchDispatchMode

    calls = Calls()
    numbering = _Numbering()

    class Recording(TorchDispatchMode):
        supports_higher_order_operators = True

        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            spec = our_operator(function)
            if spec is not None:
                values = _values(spec, args, kwargs)
                calls.total[spec.name] += 1
                calls.attributes.append((spec.name, values))
                if args[0].dtype == torch.float64:
                    calls.rounded.update(
                        (spec.name, name, value)
                        for name, value in values.items()
                        if float(np.float32(value)) != value
                    )
            result = function(*args, **kwargs)
            numbering.record(function, args, kwargs, result)
            return result

    with torch.no_grad(), Recording():
        result = model(*args, **kwargs)
    outputs = [leaf for leaf in _pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    live = numbering.live(outputs)
    calls.distinct.update(
        value.operator
        for number, value in enumerate(numbering.values)
        if number in live and value.operator is not None
    )
    return calls


def _grown(value: Any, axes: Mapping[int, str]) -> Any:
    """Another example input: one more in each dynamic dim, other values where they are floats."""
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    for axis in axes:
        value = torch.cat([value, value.narrow(axis, 0, min(1, value.shape[axis]))], axis)
    return value * 0.5 if value.is_floating_point() else value


def attribute_from_data(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    dynamic: Mapping[str, Mapping[int, str]],
    names: list[str],
    calls: Calls,
) -> tuple[str, str, float, float] | None:
    """Finds an attribute whose value depends on the inputs: exporters freeze it without a word.

    Args:
        model, args, kwargs: as for ``record_calls``.
        dynamic: forward-argument name -> dim -> symbol.
        names: names of the positional arguments.
        calls: what ``record_calls`` found for the example inputs.

    Returns:
        Operator, attribute, and its values with two inputs; None where nothing depends on them, or
        where the model does not run on other inputs.
    """
    moved = [_grown(v, dynamic.get(n, {})) for n, v in zip(names, args, strict=False)]
    moved += args[len(moved) :]
    named = {name: _grown(value, dynamic.get(name, {})) for name, value in kwargs.items()}
    try:
        others = record_calls(model, tuple(moved), named).attributes
    except Exception:  # other sizes may not be allowed: the exporter's question, not this one's
        return None
    for (operator, values), (other, changed) in zip(calls.attributes, others, strict=False):
        for name, value in values.items():
            if operator == other and changed.get(name) != value:
                return operator, name, value, changed[name]
    return None


def graph_calls(program: Any) -> Counter[str]:
    """Calls in an exported program, inner graphs included: both branches of a condition are there
    though one runs."""
    counts: Counter[str] = Counter()
    for module in program.graph_module.modules():
        graph = getattr(module, "graph", None)
        for node in graph.nodes if graph is not None else ():
            spec = our_operator(node.target) if hasattr(node.target, "name") else None
            if spec is not None:
                counts[spec.name] += 1
    return counts
