# SPDX-License-Identifier: Apache-2.0
"""Which operators a test runs for: the elementwise ones, or the norms. A new operator needs no
change here."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from myops.spec import ELEMENTWISE, NORMS

# The first operator of each number of inputs. The code around the kernels is a template of that
# number: what concerns it is tested in full on these, and in outline on the others.
REPRESENTATIVES = tuple({len(spec.inputs): spec for spec in reversed(ELEMENTWISE)}.values())[::-1]

each_spec = pytest.mark.parametrize("spec", ELEMENTWISE, ids=lambda spec: spec.torch_name)
each_representative = pytest.mark.parametrize(
    "spec", REPRESENTATIVES, ids=lambda spec: spec.torch_name
)

each_norm = pytest.mark.parametrize("spec", NORMS, ids=lambda spec: spec.torch_name)

# Where the operator does not matter.
one_spec = pytest.mark.parametrize("spec", ELEMENTWISE[:1], ids=lambda spec: spec.torch_name)


def each_spec_with(
    arguments: str | tuple[str, ...], values: Iterable[object], few: Iterable[object]
) -> pytest.MarkDecorator:
    """All values for the representatives, ``few`` for the other operators. With several
    ``arguments`` a value is a tuple of theirs."""
    names = (arguments,) if isinstance(arguments, str) else arguments
    values, few = list(values), list(few)
    cases = []
    for spec in ELEMENTWISE:
        for value in values if spec in REPRESENTATIVES else few:
            given = (value,) if isinstance(arguments, str) else tuple(value)
            texts = ["-".join(v) if isinstance(v, tuple) else str(v) for v in given]
            cases.append(pytest.param(spec, *given, id="-".join([spec.torch_name, *texts])))
    return pytest.mark.parametrize(("spec", *names), cases)
