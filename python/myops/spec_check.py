# SPDX-License-Identifier: Apache-2.0
"""Whether the ``OpSpec``s and the native operators say the same."""

from __future__ import annotations

from typing import Any

import numpy as np

from myops import _build_info
from myops.opspec import DOMAIN, MissingFormulaError, OpSpec
from myops.spec import SPECS


class _AnyNode:
    """Stands for the builder of a body."""

    def __getattr__(self, name: str) -> Any:
        return lambda *inputs, **attributes: name


def unwritten(spec: OpSpec) -> list[str]:
    """The formulas of a new operator that are still to be written, as sentences."""
    found = []
    values = spec.defaults()
    for call in (
        lambda: spec.reference(*[np.ones(1)] * len(spec.inputs), **values),
        lambda: spec.body(_AnyNode(), *spec.inputs, *values),
    ):
        try:
            call()
        except MissingFormulaError as error:
            found.append(str(error))
        except TypeError:
            continue  # other arguments than the entry says: not this question
    return found


def mismatches() -> list[str]:
    """Where ``SPECS`` and the native op list differ or a formula is missing, as sentences that say
    what to add."""
    native = {op["name"]: op for op in _build_info.ops()}
    found: list[str] = []
    for spec in SPECS:
        if spec.namespace != DOMAIN:
            continue
        found.extend(unwritten(spec))
        op = native.pop(spec.name, None)
        if op is None:
            found.append(f"{spec.name} has an OpSpec but no functor: add one to native/kernels/ops")
            continue
        for what, here, there in (
            ("torch name", spec.torch_name, op["torch_name"]),
            ("inputs", list(spec.inputs), op["inputs"]),
            (
                "attributes (default, lowest)",
                {a.name: (a.default, a.lowest) for a in spec.attributes},
                {name: (value, op["lowest"][name]) for name, value in op["attributes"].items()},
            ),
            ("broadcasts", spec.broadcasts, op["broadcasts"]),
            ("kind", spec.kind, op["kind"]),
            ("outputs", list(spec.outputs), op["outputs"]),
        ):
            if here != there:
                found.append(f"{spec.name}: {what} {here} in spec.py, {there} in the functor")
    found.extend(
        f"{name} has a functor but no OpSpec: add one to python/myops/spec.py" for name in native
    )
    return found


__all__ = ["mismatches", "unwritten"]
