# SPDX-License-Identifier: Apache-2.0
"""What a new operator is called in each language, and which names are refused."""

from __future__ import annotations

import keyword
import math
import re
from dataclasses import dataclass
from pathlib import Path

from myops._errors import UsageError

WHERE = "myops.new"

MOST_ATTRIBUTES = 8
"""The plugin's limit, ``max_attributes`` in native/ort/op.hpp."""

_LONGEST_NAME = 28  # what fits the lines of the templates

# Those of C++ that are not keywords of Python, too.
_CPP_KEYWORDS = """
alignas alignof auto bool case catch char char8_t char16_t char32_t concept const consteval
constexpr constinit const_cast co_await co_return co_yield decltype default delete do double
dynamic_cast enum explicit export extern float friend goto inline int long mutable namespace new
noexcept nullptr operator private protected public register reinterpret_cast requires short signed
sizeof static static_assert static_cast struct switch template this throw thread_local typedef
typeid typename union unsigned using virtual void volatile wchar_t
"""

# Parameters and locals of what is generated for every operator.
_TAKEN_BY_PARAMETERS = """
x gate y op out g grad grad_out grad_grad self inputs attributes values forward backward range
double_backward default out_form check_attribute make spec target
"""


@dataclass(frozen=True)
class Names:
    """What an operator is called.

    Attributes:
        onnx: ONNX op type and C++ functor, ``HardSwish``.
        torch: torch operator, ``hard_swish``.
        constant: its ``OpSpec`` in Python, ``HARD_SWISH``.
    """

    onnx: str
    torch: str

    @property
    def constant(self) -> str:
        return self.torch.upper()

    @classmethod
    def parse(cls, name: str, torch_name: str | None = None) -> Names:
        """The names of the operator ``name``.

        Args:
            name: in CamelCase.
            torch_name: the same letters in snake_case; derived from ``name`` if None.

        Raises:
            UsageError: a name has another form.
        """
        if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", name) or name.upper() == name:
            raise UsageError(
                WHERE,
                "the operator's name should be CamelCase",
                repr(name),
                "Write it like HardSwish",
            )
        if len(name) > _LONGEST_NAME:
            raise UsageError(
                WHERE,
                f"the operator's name should have at most {_LONGEST_NAME} letters",
                f"{name}, {len(name)} letters",
                "Shorten it",
            )
        derived = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
        chosen = derived if torch_name is None else torch_name
        if not re.fullmatch(r"[a-z][a-z0-9_]*[a-z0-9]", chosen) or (
            chosen.replace("_", "") != name.lower()
        ):
            raise UsageError(
                WHERE,
                f"the torch name should be the letters of {name} in snake_case",
                repr(chosen),
                f"Write it like {derived}",
            )
        if keyword.iskeyword(chosen) or chosen in _CPP_KEYWORDS.split():
            raise UsageError(
                WHERE,
                "the torch name should be no keyword of Python or C++",
                repr(chosen),
                "Choose another name",
            )
        if chosen.endswith("_backward"):
            raise UsageError(
                WHERE,
                "names that end in _backward are those of derivatives",
                repr(chosen),
                "Choose another name",
            )
        return cls(name, chosen)


def native_names(root: Path) -> dict[str, str]:
    """The names of the kernels' sources below ``root/native``, and where each is declared."""
    taken: dict[str, str] = {}
    for path in sorted((root / "native" / "kernels").rglob("*")):
        if path.suffix not in (".hpp", ".cuh", ".cpp", ".cu"):
            continue
        text = path.read_text(encoding="utf-8")
        where = f"declared in {path.relative_to(root)}"
        for name in re.findall(r"\b(?:struct|class|using|enum)\s+([A-Z]\w*)", text):
            taken.setdefault(name, where)
        for pair in re.findall(r"\bX\((\w+), (\w+)\)", text):
            taken |= dict.fromkeys(pair, f"an operator, {where}")
        for name in re.findall(r"\b(\w+)\(", text):
            if name.islower():
                taken.setdefault(name, f"a function, {where}")
    return taken


def check_free(names: Names, taken: dict[str, str]) -> None:
    """UsageError where one of the names is in ``taken``, which says whose each is."""
    for name in (names.onnx, names.torch, names.constant, f"_{names.torch}"):
        if name in taken:
            raise UsageError(
                WHERE,
                "an operator's name should be new",
                f"{names.onnx}, whose {name!r} is {taken[name]}",
                "Choose another name",
            )


@dataclass(frozen=True)
class NewAttribute:
    """A scalar attribute of the new operator."""

    name: str
    default: float


def parse_attribute(text: str) -> NewAttribute:
    """``alpha=1.5`` as an attribute.

    Raises:
        UsageError: the text has another form, the name is reserved or the default not finite.
    """
    name, separator, value = text.partition("=")
    try:
        default = float(value)
    except ValueError:
        default = math.nan
    if not separator or not math.isfinite(default):
        raise UsageError(
            WHERE,
            "--attribute has the form alpha=1.5, with a finite default",
            repr(text),
            "Correct it",
        )
    if (
        not re.fullmatch(r"[a-z][a-z0-9_]*", name)
        or keyword.iskeyword(name)
        or name in (*_CPP_KEYWORDS.split(), *_TAKEN_BY_PARAMETERS.split())
    ):
        raise UsageError(
            WHERE,
            "an attribute's name should be snake_case, no keyword and no argument of the operator",
            repr(name),
            "Choose another name",
        )
    return NewAttribute(name, default)


def parse_attributes(texts: list[str]) -> tuple[NewAttribute, ...]:
    """All attributes, in order.

    Raises:
        UsageError: one has another form, two have one name, or there are too many.
    """
    attributes = tuple(parse_attribute(text) for text in texts)
    names = [attribute.name for attribute in attributes]
    if len(set(names)) != len(names) or len(names) > MOST_ATTRIBUTES:
        raise UsageError(
            WHERE,
            f"an operator has at most {MOST_ATTRIBUTES} attributes, each of a name of its own",
            ", ".join(names),
            "Leave some out",
        )
    return attributes
