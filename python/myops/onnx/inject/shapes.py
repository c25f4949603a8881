# SPDX-License-Identifier: Apache-2.0
"""What can be proved of shapes: that two are equal, that one broadcasts to another."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from myops.onnx.inject.graph import Scope

Dims = Sequence[int | str | None]

_KEEPS_SHAPE = (
    *("Relu", "Sigmoid", "Tanh", "Erf", "Exp", "Neg", "Abs", "Sqrt", "Softplus", "HardSigmoid"),
    *("HardSwish", "Mish", "Gelu", "Identity", "Cast", "Clip", "LeakyRelu", "Elu"),
    *("LayerNormalization", "BatchNormalization", "QuickGelu", "Swish", "Softmax"),
)
_DEPTH = 64


def rank(scope: Scope, tensor: str) -> int | None:
    """The rank, or the least it can be; None where nothing is known."""
    for _ in range(_DEPTH):
        dims = scope.dims_of(tensor)
        if dims is not None:
            return len(dims)
        node = scope.producer(tensor)
        if node is None:
            return None
        if node.op_type in ("Conv", "ConvTranspose", "MaxPool", "AveragePool"):
            return 3
        if node.op_type in (*_KEEPS_SHAPE, "Resize"):
            tensor = node.input[0]
        elif node.op_type in ("Add", "Sub", "Mul", "Div"):
            known = [len(scope.dims_of(name) or ()) for name in node.input]
            return max(known)  # broadcasting never lowers a rank
        else:
            return None
    return None


def same(scope: Scope, a: str, b: str) -> bool:
    """Whether two tensors have the same shape in every run."""
    return a == b or _key(scope, a, _DEPTH) == _key(scope, b, _DEPTH)


def _key(scope: Scope, tensor: str, depth: int) -> Hashable:
    """Equal for tensors whose shapes are equal because of how they are made."""
    dims = scope.dims_of(tensor)
    if dims is not None and all(dim is not None for dim in dims):
        return tuple(dims)
    node = scope.producer(tensor)
    if node is None or depth == 0:
        return tensor
    if node.op_type in _KEEPS_SHAPE:
        return _key(scope, node.input[0], depth - 1)
    if node.op_type == "MatMul":
        right = scope.dims_of(node.input[1])
        if right is not None and len(right) == 2 and right[1] is not None:
            return ("MatMul", _key(scope, node.input[0], depth - 1), right[1])
    if node.op_type in ("Add", "Mul", "Sub", "Div"):
        for wide, narrow in ((0, 1), (1, 0)):
            dims = scope.dims_of(node.input[narrow])
            own = scope.dims_of(node.input[wide])
            if dims is not None and own is not None and broadcasts(dims, own):
                return _key(scope, node.input[wide], depth - 1)
    return tensor


def broadcasts(narrow: Dims, wide: Dims) -> bool:
    """Whether ``narrow`` is provably broadcast to ``wide``, which stays as it is."""
    if len(narrow) > len(wide):
        return False
    pairs = zip(reversed(narrow), reversed(wide), strict=False)
    return all(a == 1 or (a is not None and a == b) for a, b in pairs)


def text(dims: Dims | None) -> str:
    """For people: ``[2,?,n]``."""
    if dims is None:
        return "unknown"
    return "[" + ",".join("?" if dim is None else str(dim) for dim in dims) + "]"
