# SPDX-License-Identifier: Apache-2.0
"""Target "auto": what wins by measurement, what the rules say, and that nothing wins by noise."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from myops._errors import UsageError
from myops.onnx import inject
from myops.onnx.inject import measure, rules
from myops.onnx.inject.candidates import CUSTOM, NATIVE, find
from myops.onnx.inject.graph import scopes
from myops.onnx.inject.measure import decide
from myops.onnx.inject.run import MARK
from onnx import TensorProto, helper

from .graphs import ops, parse, scalars

MISH = "p = Softplus(x) t = Tanh(p) y = Mul(x, t)"
WIDE = "float[64,4096]"


class Simulated(measure.Contest):
    """A contest on a clock of our own: choices -> milliseconds, with noise on top."""

    def __init__(self, cost: Callable[[dict], float], noise: float, seed: int = 0) -> None:
        super().__init__(lambda _: Path(), {}, 1, None, lambda _: None)
        self.cost, self.noise, self.random = cost, noise, random.Random(seed)

    def measure(self, stage, variants, seconds, base=measure.ORIGINAL, repeats=1):
        cases = {measure.ORIGINAL: {}, measure.AGAIN: {}, **variants}
        samples = {name: [] for name in cases}
        for _ in range(21):
            drift = 1 + self.noise * self.random.random()  # the machine as a whole
            for name, choices in cases.items():
                wobble = 1 + self.noise * self.random.random() / 4
                samples[name].append(self.cost(choices) * drift * wobble)
        found = measure._trials(stage, samples, base)
        self.trials += found.values()
        found.pop(measure.AGAIN)
        return found


BOTH = [CUSTOM, NATIVE]


@pytest.mark.parametrize("seed", range(5))
def test_equal_models_are_left_alone(seed: int) -> None:
    contest = Simulated(lambda choices: 10.0, 0.2, seed)
    choices, _ = decide(contest, {"a": BOTH, "b": BOTH})
    assert not any(choices.values())


@pytest.mark.parametrize("seed", range(5))
def test_each_group_gets_what_is_fastest(seed: int) -> None:
    gains = {("a", CUSTOM): -3, ("a", NATIVE): 1, ("b", CUSTOM): 1.5, ("b", NATIVE): -2}
    gains |= {("c", CUSTOM): 1, ("c", NATIVE): 1}

    def cost(choices: dict) -> float:
        return 20 + sum(gains.get((g, t), 0) for g, t in choices.items())

    contest = Simulated(cost, 0.05, seed)
    choices, final = decide(contest, {"a": BOTH, "b": BOTH, "c": BOTH})
    assert choices == {"a": CUSTOM, "b": NATIVE, "c": ""}
    assert final is not None and final.wins and final.ratio == pytest.approx(20 / 15, rel=0.05)


def test_slower_is_left_alone() -> None:
    contest = Simulated(lambda choices: 10 + sum(map(bool, choices.values())), 0.02)
    choices, final = decide(contest, {"a": BOTH})
    assert choices == {"a": ""} and final is None


def test_a_win_within_noise_is_none() -> None:
    again = [1.0 + 0.1 * (i % 2) for i in range(20)]
    samples = {measure.ORIGINAL: [1.0] * 20, measure.AGAIN: again, "trial": [0.98] * 20}
    trial = measure._trials("stage", samples, measure.ORIGINAL)["trial"]
    assert trial.ratio == pytest.approx(1 / 0.98) and trial.noise > 0.02
    assert not trial.wins
    samples[measure.AGAIN] = [1.0] * 20
    assert measure._trials("stage", samples, measure.ORIGINAL)["trial"].wins


def test_mish_is_worth_it() -> None:
    """ONNX Runtime takes twenty times as long for its three nodes: no noise hides that."""
    model = parse(MISH, f"{WIDE} x", f"{WIDE} y")
    result, report = inject(model, threads=1, seconds=0.3)
    assert ops(result) == ["myops::Mish"]
    assert [p.value for p in result.metadata_props if p.key == MARK]
    assert report.trials[-1].wins and report.trials[-1].ratio > 2
    assert {trial.name for trial in report.trials} >= {measure.AGAIN, "all custom"}
    assert report.threads == 1 and report.onnxruntime
    again, second = inject(result, threads=1, seconds=0.3)
    assert again is result and not second.trials


def test_nothing_faster_gives_the_original() -> None:
    model = parse("s = Sigmoid(x) y = Mul(x, s)")  # six elements: all overhead
    result, report = inject(model, threads=1, seconds=0.3)
    if report.trials and any(t.wins for t in report.trials[-1:]):
        pytest.fail(f"a win on six elements: {report.trials[-1]}")
    assert result is model
    assert report.rows[0].reason.startswith(("it is no faster here", "it is slower here"))


def test_measured_elsewhere_is_measured_again() -> None:
    model = parse(MISH, f"{WIDE} x", f"{WIDE} y")
    result, _ = inject(model, threads=1, seconds=0.1)
    more = onnx.ModelProto()
    more.CopyFrom(result)
    more.graph.node.append(helper.make_node("Sigmoid", ["y"], ["s"]))
    more.graph.node.append(helper.make_node("Mul", ["y", "s"], ["z"]))
    more.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [64, 4096]))
    _, same = inject(more, threads=1, seconds=0.1)
    assert "measured here before" in same.rows[0].reason and not same.trials
    _, forced = inject(more, threads=1, seconds=0.1, remeasure=True)
    assert forced.trials
    _, other = inject(more, threads=2, seconds=0.1)
    assert other.trials, "another number of threads is another machine"


CONV = (
    "v = Conv(u, w) a = Add(v, three) c = Clip(a, zero, six) m = Mul(v, c) h = Div(m, six) "
    "y = Conv(h, w)"
)


def conv_model(body: str) -> onnx.ModelProto:
    model = parse(body, "float[1,2,8,8] u", "float[1,2,8,8] y", initializers=scalars(body))
    weights = np.ones((2, 2, 1, 1), np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    return model


@pytest.mark.parametrize(
    ("model", "version", "target"),
    [
        (conv_model(CONV), (1, 32), NATIVE),
        (conv_model(CONV), (1, 23), CUSTOM),
        (conv_model("v = Conv(u, w) s = Sigmoid(v) h = Mul(v, s) y = Conv(h, w)"), (1, 32), ""),
        (parse(MISH), (1, 32), CUSTOM),
        (parse("s = Sigmoid(x) y = Mul(x, s)"), (1, 32), CUSTOM),
        (parse(MISH), (1, 12), ""),
    ],
    ids=["HardSwish in convs", "older runtime", "SiLU in convs", "Mish", "SiLU", "too old"],
)
def test_rules(model: onnx.ModelProto, version: tuple[int, int], target: str) -> None:
    (candidate,) = find(scopes(model))
    found, why = rules.by_rule(candidate, version)
    assert found == target
    assert why


def test_no_measure_follows_the_rules() -> None:
    result, report = inject(conv_model(CONV), measure=False)
    assert [op for op in ops(result) if op != "Constant"] == ["Conv", "HardSigmoid", "Mul", "Conv"]
    assert not report.trials and report.outputs
    assert not result.metadata_props


def test_documentation_shows_the_table() -> None:
    text = (Path(__file__).resolve().parents[4] / "docs" / "inject.md").read_text()
    for rule in rules.TABLE:
        assert rule.why in text, rule


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "fast"}, "target should be one of"),
        ({"threads": 0}, "threads should be at least 1"),
        ({"operators": ["Relu"]}, "an operator should be one of"),
        ({"dims": {"batch": 2}}, "dims should name symbolic dims"),
        ({"inputs": {"z": np.ones(3)}}, "inputs should be named"),
        ({"inputs": {"x": np.ones((5, 5), np.float32)}}, "should have the shape"),
        ({"seconds": 0}, "seconds should be above 0"),
    ],
)
def test_wrong_usage(options: dict, message: str, check_message) -> None:
    with pytest.raises(UsageError, match=message) as error:
        inject(parse(MISH), **options)
    check_message(error.value)


def test_one_operator_only() -> None:
    body = "p = Softplus(x) t = Tanh(p) m = Mul(x, t) s = Sigmoid(m) y = Mul(m, s)"
    result, report = inject(parse(body), target="custom", operators=["swish"])
    assert ops(result) == ["Softplus", "Tanh", "Mul", "myops::Swish"]
    assert [row.operator for row in report.rows] == ["Swish"]


def test_ir_version_is_raised_when_told() -> None:
    model = parse(MISH, ir_version=7)
    assert inject(model, target="custom")[0].ir_version == 7
    assert inject(model, target="custom", ir_version=9)[0].ir_version == 9
    assert inject(parse("y = Relu(x)", ir_version=7), ir_version=8)[0].ir_version == 8


def test_overflow_of_the_original_is_explained() -> None:
    body = "a = Add(x, three) c = Clip(a, zero, six) m = Mul(x, c) y = Div(m, six)"
    model = parse(body, initializers=scalars(body))
    feeds = {"x": np.array([[1e38, 2, 3], [-1, 0, 3e38]], np.float32)}
    result, report = inject(model, target="custom", inputs=feeds)
    assert ops(result) == ["myops::HardSwish"]
    (difference,) = report.outputs
    assert difference.explained == 2 and difference.ok
