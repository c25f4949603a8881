# SPDX-License-Identifier: Apache-2.0
"""``myops new`` in a copy of this tree, up to an operator that runs: two files change, everything
else follows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .trees import build, contents, copy_tree, new, run, succeed, with_libraries

NAME, TORCH_NAME = "ScaledSoftsign", "scaled_softsign"
NORM, TORCH_NORM = "RootNorm", "root_norm"

# y = gain x / (1 + |rate x|)
ACTIVATION_FORMULAS = {
    "native/kernels/ops/activation.hpp": {
        "forward": "const T c = at_least(at_most(x, T(1e30)), T(-1e30));\n"
        "    const T y = c * (gain / (T(1) + magnitude(rate * c)));\n"
        "    return x != x ? x : y;",
        "backward": "const T d = T(1) + magnitude(rate) * at_most(magnitude(x), T(1e18));\n"
        "    const T slope = gain / (d * d);\n"
        "    return grad * (x != x ? x : slope);",
        "double_backward": "const T d = T(1) + magnitude(rate) * at_most(magnitude(x), T(1e12));\n"
        "    const T curve = T(-2) * magnitude(rate) * gain / (d * d * d);\n"
        "    const T left = x < T(0) ? -curve : x;\n"
        "    return grad_grad * grad * (x > T(0) ? curve : left);",
    },
    "python/myops/spec.py": {
        "its float64 reference": "c = np.clip(x, -1e30, 1e30)\n"
        '    with np.errstate(over="ignore", invalid="ignore"):\n'
        "        return c * (gain / (1 + np.abs(np.asarray(rate, x.dtype) * c)))",
        "its body in ONNX operators": "below = op.Add(op.Abs(op.Mul(x, rate)), op.constant(1.0))\n"
        "    return op.Div(op.Mul(x, gain), below)",
    },
}
# y = gain x / (mean(x^2) + eps)^(1/4) * weight
NORM_FORMULAS = {
    "native/kernels/ops/norm.hpp": {
        "factor": "return gain / sqrt(scale * sqrt(mean_square + eps * scale * scale));",
        "pull": "return 0.5 / (mean_square + eps * scale * scale);",
    },
    "python/myops/spec.py": {
        "its float64 reference": 'with np.errstate(invalid="ignore", divide="ignore", '
        'over="ignore"):\n'
        "        mean = np.mean(x * x, axis=-1, keepdims=True)\n"
        "        return x * (gain / np.sqrt(np.sqrt(mean + np.asarray(eps, x.dtype)))) * weight",
        "its body in ONNX operators": "mean = op.mean(op.Mul(x, x))\n"
        "    return op.Mul(op.Mul(x, op.Div(gain, op.Sqrt(op.Sqrt(op.Add(mean, eps))))), weight)",
    },
}
STAND_INS = {
    "forward": "return x;",
    "backward": "return grad * x;",
    "double_backward": "return grad_grad * grad * x;",
    "factor": "return mean_square * scale;",
    "pull": "return mean_square * scale;",
}


def fill_in(tree: Path, name: str, formulas_of: dict[str, dict[str, str]]) -> None:
    """Writes the formulas in the marked places."""
    for path, formulas in formulas_of.items():
        text = (tree / path).read_text()
        for what, formula in formulas.items():
            marks = (
                f'raise missing_formula("{name}", "{what}")',
                *(
                    f'static_assert(sizeof({of}) == 0, "[{name}] {what} is missing");\n'
                    f"    {STAND_INS.get(what)}"
                    for of in "TS"
                ),
            )
            (mark,) = (mark for mark in marks if mark in text)
            text = text.replace(mark, formula)
        (tree / path).write_text(text)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    from myops import _build_info

    folder = copy_tree(tmp_path / "tree")
    with_libraries(folder, Path(_build_info.__file__).parent)
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree with an activation and a norm, built. For each of them two files change."""
    from myops import _build_info

    tree = copy_tree(tmp_path_factory.mktemp("new") / "tree")
    with_libraries(tree, Path(_build_info.__file__).parent)
    for arguments, formulas in (
        ((NAME, "--attribute", "gain=1.0", "--attribute", "rate=1.0"), ACTIVATION_FORMULAS),
        (
            (NORM, "--kind", "norm", "--attribute", "eps=1e-3", "--attribute", "gain=1.0"),
            NORM_FORMULAS,
        ),
    ):
        before = contents(tree)
        report = new(tree, *arguments)
        fill_in(tree, arguments[0], formulas)
        after = contents(tree)
        changed = sorted(name for name in after if after[name] != before.get(name))
        assert changed == sorted(formulas) == sorted(report["files"])
        assert len(changed) == 2
    with_libraries(tree, build(tree))
    return tree


pytestmark = pytest.mark.timeout(1800)


@pytest.mark.parametrize("name", [NAME, NORM])
def test_operator_agrees_with_float64_in_every_layer(finished: Path, name: str) -> None:
    code = f"""
import json
from myops import _build_info, spec, spec_check
from myops.verify import verify_operators
assert spec_check.mismatches() == [], spec_check.mismatches()
report = verify_operators([spec.find({name!r})])
parties = sorted({{row.party for row in report.rows if row.comparison is not None}})
print(json.dumps([report.ok, bool(_build_info.torch_version), parties,
                  [str(row) for row in report.rows if row.ours and row.verdict != "ok"]]))
"""
    ok, with_torch, parties, wrong = json.loads(succeed([sys.executable, "-c", code], finished))
    assert ok, wrong
    assert with_torch
    assert parties == ["ORT + plugin", "ORT alone", "onnx reference", "torch library"]


IN_TORCH = {
    NAME: f"""
f = F.{TORCH_NAME}
assert str(inspect.signature(f).parameters["gain"]).startswith("gain: float = 1.0")
assert "{NAME}" in f.__doc__ and "rate:" in f.__doc__
leaves = [torch.randn(3, 4, dtype=torch.float64, requires_grad=True)]
call = lambda x: f(x, 1.5, 0.5)
module = myops.nn.{NAME}(1.5, rate=0.5)
""",
    NORM: f"""
f = F.{TORCH_NORM}
assert [*inspect.signature(f).parameters] == ["x", "weight", "eps", "gain", "out"]
assert "{NORM}" in f.__doc__ and "gain:" in f.__doc__
leaves = [torch.randn(*size, dtype=torch.float64, requires_grad=True) for size in ((3, 4), (4,))]
call = lambda x, weight: f(x, weight, 0.1, 1.5)
module = myops.nn.{NORM}(4, gain=1.5)
""",
}


@pytest.mark.parametrize("name", [NAME, NORM])
def test_function_module_gradient_export_and_inject_follow(
    finished: Path, tmp_path: Path, name: str
) -> None:
    code = f"""
import inspect, os
import numpy as np, torch
import myops.functional as F, myops.nn, myops.onnx, myops.ort
os.chdir({str(tmp_path)!r})
{IN_TORCH[name]}
assert torch.autograd.gradcheck(call, leaves, check_forward_ad=True)
assert torch.autograd.gradgradcheck(call, leaves)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), module)
data = torch.randn(2, 4)
for mode in ("portable", "custom", "native"):
    for exporter in ("dynamo", "torchscript"):
        myops.onnx.export(model, (data,), "m.onnx", mode=mode, exporter=exporter,
                          dynamic={{"input": {{0: "batch"}}}})
        session = myops.ort.session("m.onnx")
        (y,) = session.run(None, {{"input": data.numpy()}})
        assert np.allclose(y, model(data).detach().numpy(), rtol=1e-5, atol=1e-6), (mode, exporter)
        if mode == "native":
            found, report = myops.onnx.inject("m.onnx", target="custom")
            assert {name!r} in [node.op_type for node in found.graph.node], report
print("done")
"""
    assert succeed([sys.executable, "-c", code], finished).endswith("done\n")


@pytest.mark.parametrize(
    ("torch_name", "files"),
    [
        (
            TORCH_NAME,
            (
                *("tests/python/test_spec.py", "tests/python/torch/test_values.py"),
                *("tests/python/torch/test_gradients.py", "tests/python/ort/test_plugin.py"),
            ),
        ),
        (
            TORCH_NORM,
            (
                *("tests/python/test_spec.py", "tests/python/torch/test_norm_calls.py"),
                *("tests/python/torch/test_norm_gradients.py",),
                *("tests/python/onnx/test_norm_nodes.py",),
            ),
        ),
    ],
    ids=[TORCH_NAME, TORCH_NORM],
)
def test_generic_tests_cover_it(finished: Path, torch_name: str, files: tuple[str, ...]) -> None:
    text = succeed(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", torch_name),
            *files,
        ],
        finished,
    )
    passed = next(line for line in text.splitlines()[::-1] if " passed" in line)
    assert "failed" not in passed
    assert int(passed.split(" passed")[0].split()[-1]) > 20


@pytest.mark.parametrize(
    ("arguments", "unit", "functions"),
    [
        ([], "elementwise", ["forward", "backward", "double_backward"]),
        (["--kind", "norm"], "norm", ["factor", "pull"]),
    ],
    ids=["activation", "norm"],
)
def test_missing_formula_stops_the_compiler_and_python_says_where(
    tree: Path, arguments: list[str], unit: str, functions: list[str]
) -> None:
    new(tree, NAME, *arguments)
    done = run(
        [
            *(
                "c++",
                "-std=c++17",
                "-fsyntax-only",
                "-DMYOPS_ISA_NAME=baseline",
                "-Inative/kernels",
            ),
            *("-Inative/kernels/include", f"native/kernels/cpu/{unit}.isa.cpp"),
        ],
        tree,
    )
    assert done.returncode != 0
    for function in functions:
        assert f"[{NAME}] {function} is missing" in done.stderr
    code = (
        "from myops import spec, spec_check\n"
        f"print(*spec_check.unwritten(spec.find({NAME!r})), sep='\\n')"
    )
    sentences = succeed([sys.executable, "-c", code], tree).splitlines()
    assert len(sentences) == 2
    assert all(sentence.startswith(f"[{NAME}] its ") for sentence in sentences)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--attribute", "alpha=0.1"],
        ["--attribute", "alpha=1.5", "--attribute", "beta=-2"],
        ["--kind", "gated"],
        ["--kind", "gated", "--attribute", "alpha=1.5", "--attribute", "beta=1e-6"],
        ["--kind", "gated", "--activation", "HardSwish"],
        ["--kind", "norm"],
        ["--kind", "norm", "--attribute", "alpha=1.5"],
        ["--kind", "norm", "--attribute", "eps=1e-6", "--attribute", "beta=-2"],
    ],
    ids=" ".join,
)
def test_inserted_text_is_in_the_house_s_format(tree: Path, arguments: list[str]) -> None:
    names = ("Xo", "OperatorOfTheLongestNameToBe")
    for name in names:
        new(tree, name, *arguments)
    headers = sorted((tree / "native/kernels/ops").glob("*.hpp"))
    succeed(["clang-format", "--dry-run", "-Werror", *headers], tree)
    succeed([sys.executable, "-m", "ruff", "check", "python"], tree)
    succeed([sys.executable, "-m", "ruff", "format", "--check", "python"], tree)
    code = "from myops import spec; print(*(s.name for s in spec.SPECS))"
    listed = succeed([sys.executable, "-c", code], tree).split()
    last = {"gated": "GeGLU", "norm": "AddRMSNorm"}.get("".join(arguments[1:2]), "Mish")
    assert listed[listed.index(last) + 1 :][:2] == list(names)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["Swish"], "is an operator"),
        (["QuickGelu"], "'quick_gelu' is defined in python/myops/functional.py"),
        (["Pair"], "native/kernels/ops/gated.hpp"),
        (["Specs"], "'SPECS'"),
        (["softsign"], "CamelCase"),
        (["SOFTSIGN"], "CamelCase"),
        (["New"], "keyword"),
        (["SoftBackward"], "_backward"),
        (["Softsign", "--torch-name", "other"], "softsign"),
        (["Softsign", "--kind", "other"], "activation, gated, norm"),
        (["SoftNorm", "--kind", "norm", "--attribute", "weight=1"], "which norms have already"),
        (["RMSNorm", "--kind", "norm"], "is an operator"),
        (["Softsign", "--attribute", "x=1"], "argument of the operator"),
        (["Softsign", "--attribute", "class=1"], "keyword"),
        (["Softsign", "--attribute", "alpha"], "alpha=1.5"),
        (["Softsign", "--attribute", "alpha=inf"], "finite"),
        (["Softsign", "--attribute", "a=1", "--attribute", "a=2"], "each of a name of its own"),
        (["Softsign", "--activation", "Mish"], "--kind gated"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_is_refused_and_nothing_changes(
    tree: Path, arguments: list[str], words: str
) -> None:
    before = contents(tree)
    done = run([sys.executable, "-m", "myops.cli", "new", *arguments], tree)
    assert done.returncode == 2, done.stdout
    assert words in done.stderr
    assert done.stderr.startswith("error [myops.new] ")
    assert contents(tree) == before


def test_outside_of_a_checkout_it_says_so(tree: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "myops.cli", "new", "Softsign"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tree / "python")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "should run in a checkout of myops" in done.stderr
