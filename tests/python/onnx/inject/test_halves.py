# SPDX-License-Identifier: Apache-2.0
"""float16 and bfloat16: fused where the bits stay, behind a flag where they do not."""

from __future__ import annotations

import numpy as np
import pytest
from myops.onnx import inject
from onnx.reference import ReferenceEvaluator

from .graphs import beta, custom, ops, parse, run, scalars, skipped

HALF = "float16[n]"
ISLAND = "f = Cast<to=1>(x) s = Sigmoid(f) m = Mul(f, s) y = Cast<to=10>(m)"
ISLAND_BETA = "f = Cast<to=1>(x) z = Mul(f, b) s = Sigmoid(z) m = Mul(f, s) y = Cast<to=10>(m)"
TWO_CASTS = "f = Cast<to=1>(x) s = Sigmoid(f) m = Mul(g, s) y = Cast<to=10>(m) g = Cast<to=1>(x)"
OPEN = "f = Cast<to=1>(x) s = Sigmoid(f) h = Cast<to=10>(s) y = Mul(x, h)"
STEPWISE = "s = Sigmoid(x) y = Mul(x, s)"

ALL = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
FINITE = ALL[np.isfinite(ALL)]


def model_of(body: str, shape: str = HALF):
    return parse(body, f"{shape} x", f"{shape} y", initializers=scalars(body))


@pytest.mark.parametrize("body", [ISLAND, ISLAND_BETA])
def test_island_becomes_one_node_with_the_same_bits(body: str) -> None:
    model = model_of(body)
    result, report = custom(model)
    assert ops(result) == ["myops::Swish"]
    (row,) = report.rows
    assert row.dtype == "float16"
    (before,) = ReferenceEvaluator(model).run(None, {"x": FINITE})
    (after,) = run(result, {"x": FINITE})
    changed = int((before != after).sum())
    assert changed == report.pieces[0].changed
    # Two float32 sigmoids may differ in their last bit, and a few of these differences lie on a
    # rounding boundary.
    assert changed <= 40
    assert report.pieces[0].max_ulp <= 1


def test_island_with_a_cast_per_reader() -> None:
    body = "f = Cast<to=1>(x) g = Cast<to=1>(x) s = Sigmoid(f) m = Mul(g, s) y = Cast<to=10>(m)"
    assert ops(custom(model_of(body))[0]) == ["myops::Swish"]


def test_cast_in_front_stays_for_its_other_readers() -> None:
    body = "f = Cast<to=1>(x) s = Sigmoid(f) m = Mul(f, s) y = Cast<to=10>(m) o = Neg(f)"
    model = parse(body, f"{HALF} x", f"{HALF} y, float[n] o")
    assert ops(custom(model)[0]) == ["Cast", "myops::Swish", "Neg"]


def test_island_that_is_read_in_float32_is_fused_in_float32() -> None:
    body = "f = Cast<to=1>(x) s = Sigmoid(f) m = Mul(f, s) y = Cast<to=10>(m) o = Neg(m)"
    model = parse(body, f"{HALF} x", f"{HALF} y, float[n] o")
    result, report = custom(model)
    assert ops(result) == ["Cast", "myops::Swish", "Cast", "Neg"]
    assert report.rows[0].dtype == "float"


@pytest.mark.parametrize("body", [OPEN, STEPWISE], ids=["open", "stepwise"])
def test_rounding_inside_needs_the_flag(body: str) -> None:
    model = model_of(body)
    result, report = custom(model)
    assert result is model
    (reason,) = skipped(report, "Swish")
    assert "--allow-numeric-change" in reason
    result, report = custom(model, allow_numeric_change=True, tolerance=1e-3)
    assert ops(result) == ["myops::Swish"]
    (piece,) = report.pieces
    assert piece.allowed and piece.count >= FINITE.size
    # A sigmoid that is rounded before the product: about 10,000 patterns differ.
    assert 9_000 < piece.changed < 15_000
    assert piece.max_ulp >= 1 and piece.max_abs >= 0.0039


def test_bfloat16_island() -> None:
    body = "h = Cast<to=16>(x) f = Cast<to=1>(h) s = Sigmoid(f) m = Mul(f, s) b = Cast<to=16>(m) "
    body += "y = Cast<to=1>(b)"
    model = parse(body, "float[n] x", "float[n] y")
    result, _ = custom(model)
    assert ops(result) == ["Cast", "myops::Swish", "Cast"]


def test_float64_keeps_what_its_attribute_can_hold() -> None:
    body = "z = Mul(x, c) s = Sigmoid(z) y = Mul(x, s)"

    def of(value: float):
        return parse(body, "double[n] x", "double[n] y", initializers=f"double c = {{{value}}}")

    result, _ = custom(of(1.5))
    assert ops(result) == ["myops::Swish"] and beta(result) == 1.5
    model = of(0.1)
    result, report = custom(model)
    assert result is model
    assert "no float32" in report.rows[0].reason
    result, report = custom(model, allow_numeric_change=True)
    assert ops(result) == ["myops::Swish"]
    assert report.pieces[0].max_abs > 0


def test_native_leaves_halves_alone() -> None:
    model = model_of(STEPWISE)
    result, report = inject(model, target="native", allow_numeric_change=True)
    assert result is model
    assert "half type" in report.rows[0].reason


@pytest.mark.parametrize("opset", [13, 17])
def test_two_types_of_one_operator(opset: int) -> None:
    body = (
        "s = Sigmoid(x) y = Mul(x, s) f = Cast<to=1>(w) t = Sigmoid(f) m = Mul(f, t) "
        "z = Cast<to=10>(m)"
    )
    model = parse(body, f"float[n] x, {HALF} w", f"float[n] y, {HALF} z", opset=opset)
    result, report = custom(model)
    if opset >= 15:
        assert ops(result) == ["myops::Swish"] * 2
    else:
        assert ops(result).count("myops::Swish") == 1
        assert "opset 15" in skipped(report, "Swish")[0]


def test_rms_norm_of_a_half_model() -> None:
    """The norm in float32, its weight in float16: a rounding lies in between."""
    body = (
        "f = Cast<to=1>(x) p = Pow(f, two) m = ReduceMean<axes=[-1]>(p) e = Add(m, eps) "
        "q = Sqrt(e) r = Div(one, q) d = Mul(f, r) h = Cast<to=10>(d) y = Mul(w, h)"
    )
    constants = "float eps = {0.000001}, float16[4] w = {1, 2, 3, 4}"
    shape = "float16[n,4]"
    model = parse(body, f"{shape} x", f"{shape} y", initializers=f"{scalars(body)}, {constants}")
    assert custom(model)[0] is model
    result, report = custom(model, allow_numeric_change=True)
    assert ops(result) == ["myops::RMSNorm"]
    assert report.pieces[0].max_ulp <= 1 < report.pieces[0].changed
