# SPDX-License-Identifier: Apache-2.0
"""Which operators a test runs for: the elementwise ones, or the norms. A new operator needs no
change here."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from myops.norm_spec import ADD_RMS_NORM, RMS_NORM
from myops.spec import ELEMENTWISE, NORMS, OpSpec

# The first operator of each number of inputs. The code around the kernels is a template of that
# number: what concerns it is tested in full on these, and in outline on the others.
REPRESENTATIVES = tuple({len(spec.inputs): spec for spec in reversed(ELEMENTWISE)}.values())[::-1]

each_spec = pytest.mark.parametrize("spec", ELEMENTWISE, ids=lambda spec: spec.torch_name)
each_representative = pytest.mark.parametrize(
    "spec", REPRESENTATIVES, ids=lambda spec: spec.torch_name
)

each_norm = pytest.mark.parametrize("spec", NORMS, ids=lambda spec: spec.torch_name)
# For what is true of this formula, or of the one public function behind both.
each_rms_norm = pytest.mark.parametrize(
    "spec", [RMS_NORM, ADD_RMS_NORM], ids=lambda spec: spec.torch_name
)
# Those with a backward operator of their own.
NORMS_OF_ONE = tuple(spec for spec in NORMS if len(spec.inputs) == 2)
each_norm_of_one = pytest.mark.parametrize("spec", NORMS_OF_ONE, ids=lambda spec: spec.torch_name)


def norm_values(spec: OpSpec, eps: float = 2.0**-10) -> dict[str, float]:
    """A norm's attributes: the defaults in float32, which ONNX keeps, but for an ``eps``, whose
    default is too small to show."""
    return {
        a.name: eps if a.name == "eps" else float(np.float32(a.default)) for a in spec.attributes
    }


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
