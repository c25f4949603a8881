# SPDX-License-Identifier: Apache-2.0
"""The text of a new operator, with its formulas to be written: a functor in C++, an ``OpSpec`` in
Python. A formula that is still missing stops the compiler, or the first use from Python."""

from __future__ import annotations

from collections.abc import Sequence

from myops.scaffold.names import Names, NewAttribute

WIDTH = 100
"""Of a line, in both languages."""

_PASSES = (
    ("forward", "T x", "y", "x"),
    ("backward", "T grad, T x", "grad * dy/dx", "grad * x"),
    (
        "double_backward",
        "T grad_grad, T grad, T x",
        "grad_grad * grad * d2y/dx2",
        "grad_grad * grad * x",
    ),
)


def functor(name: str, attributes: Sequence[NewAttribute], meaning: str) -> str:
    """A functor of one input. ``meaning`` is the sentence that its comment begins with."""
    listed = ", ".join(f'{{"{a.name}", {a.default!r}}}' for a in attributes)
    values = f"{{{{{listed}}}}}" if attributes else "{}"
    lines = [
        f"/// {meaning}",
        "///",
        "/// TODO: the formula, its source, its limits, and the accuracy once it is measured. See",
        "/// math/fmath.hpp for exp: std:: functions would not vectorise.",
        "template <class T>",
        f"struct {name} {{",
        '  static constexpr std::array<const char*, 1> inputs{"x"};',
        f"  static constexpr std::array<AttributeInfo, {len(attributes)}> attributes{values};",
        "",
    ]
    if attributes:
        lines += [f"  T {a.name};" for a in attributes]
        lines += ["", f"  MYOPS_FN explicit {name}(const double* attribute_values) {{"]
        lines += [
            f"    {a.name} = static_cast<T>(attribute_values[{i}]);"
            for i, a in enumerate(attributes)
        ]
        lines += ["  }"]
    else:
        lines += [f"  MYOPS_FN explicit {name}(const double*) {{}}"]
    for function, parameters, result, stand_in in _PASSES:
        lines += [
            "",
            f"  /// {result}",
            "  template <Range range>",
            f"  MYOPS_FN T {function}({parameters}) const {{",
            f'    static_assert(sizeof(T) == 0, "[{name}] {function} is missing");',
            f"    return {stand_in};",
            "  }",
        ]
    lines += ["};", ""]
    return "\n".join(lines)


_NORM_FUNCTIONS = (
    ("factor", "factor(mean_square / scale^2) / scale: what multiplies the scaled row."),
    ("pull", "pull(mean_square / scale^2) / scale^2, where pull = -2 factor' / factor."),
)


def norm_functor(name: str, attributes: Sequence[NewAttribute]) -> str:
    """A functor of a row's mean of squares."""
    # An eps is what the mean of squares is added to: nothing below 0.
    listed = ", ".join(
        f'{{"{a.name}", {a.default!r}{", 0.0" if a.name == "eps" else ""}}}' for a in attributes
    )
    values = f"{{{{{listed}}}}}" if attributes else "{}"
    lines = [
        f"/// {name}, y = x * factor(mean(x^2)) * weight over the elements of a row.",
        "///",
        "/// TODO: the formula, its source, its limits.",
        f"struct {name} {{",
        f"  using Formula = {name};",
        '  static constexpr std::array<const char*, 2> inputs{"x", "weight"};',
        '  static constexpr std::array<const char*, 1> outputs{"y"};',
        f"  static constexpr std::array<AttributeInfo, {len(attributes)}> attributes{values};",
        "",
    ]
    if attributes:
        start = f"  MYOPS_FN explicit {name}(const double* attribute_values) {{"
        reads = [f"{a.name} = attribute_values[{i}];" for i, a in enumerate(attributes)]
        lines += [*(f"  double {a.name};" for a in attributes), ""]
        short = f"{start} {' '.join(reads)} }}"
        if len(reads) == 1 and len(short) <= WIDTH:  # in clang-format's layout
            lines += [short]
        else:
            lines += [start, *(f"    {read}" for read in reads), "  }"]
    else:
        lines += [f"  MYOPS_FN explicit {name}(const double*) {{}}"]
    for function, meaning in _NORM_FUNCTIONS:
        lines += [
            "",
            f"  /// {meaning}",
            "  template <class S>",
            f"  MYOPS_FN S {function}(const S& mean_square, double scale) const {{",
            f'    static_assert(sizeof(S) == 0, "[{name}] {function} is missing");',
            "    return mean_square * scale;",
            "  }",
        ]
    floor = "eps" if any(a.name == "eps" for a in attributes) else "0"
    lines += ["", f"  MYOPS_FN double floor() const {{ return {floor}; }}", "};", ""]
    return "\n".join(lines)


def gated_functor(name: str, activation: str) -> str:
    """The gated unit over an activation's functor."""
    return "\n".join(
        [
            f"/// y = f(gate) * x, where f is {activation}.",
            "template <class T>",
            f"struct {name} : Gated<{activation}, T> {{",
            f"  using Gated<{activation}, T>::Gated;",
            "};",
            "",
        ]
    )


def _lowest(attribute: NewAttribute, norm: bool) -> str:
    return ", lowest=0.0" if norm and attribute.name == "eps" else ""


def _attribute_lines(attributes: Sequence[NewAttribute], norm: bool) -> list[str]:
    entries = [
        f'Attribute("{a.name}", {a.default!r}, "TODO: meaning. Finite."{_lowest(a, norm)}),'
        for a in attributes
    ]
    if len(entries) > 1:
        return ["    attributes=(", *(f"        {entry}" for entry in entries), "    ),"]
    return [f"    attributes=({''.join(entries)}),"]


def _signature(name: str, parameters: str, result: str) -> list[str]:
    """The first lines of a function, in ruff's layout."""
    line = f"def {name}({parameters}) -> {result}:"
    if len(line) <= WIDTH:
        return [line]
    return [f"def {name}(", f"    {parameters}", f") -> {result}:"]


def spec_entry(
    names: Names, attributes: Sequence[NewAttribute], inner: bool = False, norm: bool = False
) -> str:
    """The ``OpSpec``, its reference and its body. ``inner``: not an operator of its own, but the
    activation inside a gated one. ``norm``: of rows and a weight."""
    typed = "".join(f", {a.name}: float" for a in attributes)
    untyped = "".join(f", {a.name}: Any" for a in attributes)
    weight, weight_body = (", weight: Array", ", weight: Any") if norm else ("", "")
    constant = f"_{names.constant}" if inner else names.constant
    return "\n".join(
        [
            *_signature(f"_{names.torch}", f"x: Array{weight}{typed}", "Array"),
            *(
                ["    # Rows are along the last axis, of which weight has the size."]
                if norm
                else []
            ),
            "    # In the precision of x, which is float64 or longdouble, and without warnings.",
            f'    raise missing_formula("{names.onnx}", "its float64 reference")',
            "",
            "",
            *_signature(f"_{names.torch}_body", f"op: Any, x: Any{weight_body}{untyped}", "Any"),
            "    # In standard ONNX operators. op.mean(op.Mul(x, x)) has size 1 in the last dim."
            if norm
            else "    # In standard ONNX operators: return op.Mul(x, op.Sigmoid(x)), for instance.",
            f'    raise missing_formula("{names.onnx}", "its body in ONNX operators")',
            "",
            "",
            f"{constant} = OpSpec(",
            f'    name="{names.onnx}",',
            f'    torch_name="{names.torch}",',
            '    inputs=("x", "weight"),' if norm else '    inputs=("x",),',
            *_attribute_lines(attributes, norm),
            f'    summary="{names.onnx}, ``y = TODO``.",',
            '    details="TODO: limits and special values.\\n" + HALF_NOTE + "Source: TODO.",',
            f"    reference=_{names.torch},",
            f"    body=_{names.torch}_body,",
            *(['    kind="norm",', "    denormals=2,"] if norm else []),
            '    max_ulp={"float32": 4.0, "float64": 4.0, **HALVES},',
            ")",
            "",
        ]
    )


def gated_entry(names: Names, activation: str, constant: str) -> str:
    """The ``OpSpec`` of a gated unit over an activation, whose ``OpSpec`` is ``constant``."""
    return "\n".join(
        [
            f"{names.constant} = _gated(",
            f"    {constant},",
            f'    "{names.onnx}",',
            f'    "{names.onnx}, ``y = f(gate) * x`` with f {activation}.",',
            '    {"float32": 5.0, "float64": 5.0, **HALVES},',
            ")",
            "",
        ]
    )
