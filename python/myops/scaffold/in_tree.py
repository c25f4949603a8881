# SPDX-License-Identifier: Apache-2.0
"""A new operator in a checkout of this source tree: two files change, everything else follows."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from myops._errors import UsageError
from myops.scaffold import skeletons
from myops.scaffold.names import WHERE, Names, NewAttribute, check_free, native_names

FAMILIES = {
    "activation": ("native/kernels/ops/activation.hpp", "MYOPS_ACTIVATION_OPS"),
    "gated": ("native/kernels/ops/gated.hpp", "MYOPS_GATED_OPS"),
    "norm": ("native/kernels/ops/norm.hpp", "MYOPS_NORM_OPS"),
}
KINDS = tuple(FAMILIES)
_SPEC = "python/myops/spec.py"

# What a norm's functor and module have names for.
_TAKEN_IN_NORMS = """
weight residual factor pull floor scale mean_square normalized_shape elementwise_affine device dtype
"""


@dataclass(frozen=True)
class Change:
    """What was written.

    Attributes:
        root: the checkout.
        files: the changed files, relative to it.
        names: of the operator.
        places: ``file:line`` of each formula that is to be written.
    """

    root: Path
    files: tuple[str, ...]
    names: Names
    places: tuple[str, ...]


def checkout(start: Path) -> Path:
    """The source tree that holds ``start``.

    Raises:
        UsageError: there is none.
    """
    for folder in (start, *start.parents):
        if all((folder / name).is_file() for name in (_SPEC, FAMILIES["activation"][0])):
            return folder
    raise UsageError(
        WHERE,
        "without --project the command should run in a checkout of myops",
        f"{start}, above which there is no {_SPEC}",
        "Change into the checkout, or pass --project DIR --namespace NAME for a project of its own",
    )


def _taken(root: Path) -> dict[str, str]:
    """Names that a new operator must not have, and whose they are."""
    taken = dict.fromkeys(("myops", "spec", "torch", "Operator"), "a name of the Python package")
    taken |= native_names(root)
    for module in ("spec", "norm_spec", "opspec", "functional", "nn", "_torch_rules"):
        path = root / "python" / "myops" / f"{module}.py"
        text = path.read_text(encoding="utf-8")
        where = f"defined in {path.relative_to(root)}"
        for name in re.findall(r"^(?:def |class )?(\w+)(?=[:( ])", text, re.MULTILINE):
            taken.setdefault(name, where)
        for block in re.findall(r"^from \S+ import (\([^)]*\)|.*)$", text, re.MULTILINE):
            taken |= dict.fromkeys(re.findall(r"\w+", block), where)
    return taken


def _op_list(text: str, macro: str, path: str) -> tuple[re.Match[str], list[tuple[str, str]]]:
    found = re.search(rf"^#define {macro}\(X\)(?:[^\n]*\\\n)*[^\n]*$", text, re.MULTILINE)
    entries = re.findall(r"X\((\w+), (\w+)\)", found[0]) if found else []
    if found is None or not entries:
        raise UsageError(
            WHERE, f"{path} should define {macro}", "no such list", "Restore it from the repository"
        )
    return found, entries


def _macro(macro: str, entries: Sequence[tuple[str, str]]) -> str:
    """The list in clang-format's layout."""
    parts = [f"X({name}, {torch_name})" for name, torch_name in entries]
    line = f"#define {macro}(X) {' '.join(parts)}"
    if len(line) <= skeletons.WIDTH:
        return line
    head, body = f"#define {macro}(X)", [f"  {part}" for part in parts]
    width = max(map(len, [head, *body[:-1]])) + 1
    return "\n".join([*(f"{each:<{width}}\\" for each in [head, *body[:-1]]), body[-1]])


def _before(text: str, anchor: str, addition: str) -> str:
    at = text.index(anchor)
    return f"{text[:at]}{addition}{text[at:]}"


def _with_functor(root: Path, kind: str, code: str, names: Names) -> tuple[str, str, str]:
    """The family's header with the functor, its path, and the operator it now follows."""
    path, macro = FAMILIES[kind]
    text = (root / path).read_text(encoding="utf-8")
    found, entries = _op_list(text, macro, path)
    text = text.replace(found[0], _macro(macro, [*entries, (names.onnx, names.torch)]))
    return _before(text, f"#define {macro}(X)", f"{code}\n"), path, entries[-1][0]


def _constant_of(text: str, name: str) -> str:
    """The constant that holds the operator ``name``."""
    found = re.search(rf'^(\w+) = \w+\(\s*(?:name=|\w+,\s*)"{name}"', text, re.MULTILINE)
    if found is None:
        raise UsageError(
            WHERE,
            f"{_SPEC} should hold an OpSpec for {name}",
            "none",
            "Write the missing one first",
        )
    return found[1]


def _with_norm(root: Path, code: str, names: Names) -> str:
    """``spec.py`` with the entry of a norm, and with its constant at the end of their list."""
    text = (root / _SPEC).read_text(encoding="utf-8")
    found = re.search(r"^NORMS: tuple\[OpSpec, \.\.\.\] = \((.*?)\)\n", text, re.M | re.S)
    if found is None:
        raise UsageError(
            WHERE, f"{_SPEC} should list NORMS", "no list", "Restore it from the repository"
        )
    constants = [*re.findall(r"\w+", found[1]), names.constant]
    listed = f"NORMS: tuple[OpSpec, ...] = ({', '.join(constants)})"
    if len(listed) > skeletons.WIDTH:
        listed = "\n".join(
            ["NORMS: tuple[OpSpec, ...] = (", *(f"    {c}," for c in constants), ")"]
        )
    text = f"{text[: found.start()]}{listed}\n{text[found.end() :]}"
    at = text.index("ELEMENTWISE: tuple[OpSpec")
    head = text[:at].rstrip("\n")
    return f"{head}\n\n\n{code}\n\n{text[at:]}"


def _with_entry(root: Path, code: str, names: Names, after: str) -> str:
    """``spec.py`` with the entry, and with its constant in the list at the functor's place."""
    text = (root / _SPEC).read_text(encoding="utf-8")
    found = re.search(r"^ELEMENTWISE: tuple\[OpSpec, \.\.\.\] = \((.*?)^\)\n", text, re.M | re.S)
    constants = re.findall(r"\b[A-Z][A-Z0-9_]*\b", found[1]) if found else []
    follows = _constant_of(text, after)
    if found is None or follows not in constants:
        raise UsageError(
            WHERE,
            f"{_SPEC} should list {follows} in ELEMENTWISE",
            ", ".join(constants) or "no list",
            "Restore it from the repository",
        )
    constants.insert(constants.index(follows) + 1, names.constant)
    lines, line = [], ""
    for constant in constants:  # in ruff's layout
        longer = f"{line}, {constant}" if line else f"    *({constant}"
        if len(longer) > skeletons.WIDTH - 3:
            lines.append(f"{line})," if ", " in line else f"{line},),")
            longer = f"    *({constant}"
        line = longer
    lines.append(f"{line})," if ", " in line else f"{line},),")
    listed = "\n".join(["ELEMENTWISE: tuple[OpSpec, ...] = (", *lines, ")", ""])
    head = text[: found.start()].rstrip("\n")
    return f"{head}\n\n\n{code}\n\n{listed}{text[found.end() :]}"


def _write_all_or_none(contents: dict[Path, str]) -> None:
    """Writes all files under temporary names beside them, then moves them into place."""
    moves: list[tuple[str, Path]] = []
    try:
        for path, text in contents.items():
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            moves.append((name, path))
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).chmod(path.stat().st_mode)
        for name, path in moves:
            Path(name).replace(path)
    finally:
        for name, _ in moves:
            Path(name).unlink(missing_ok=True)


def _places(contents: dict[str, str], names: Names) -> tuple[str, ...]:
    found = []
    for path, text in contents.items():
        for number, line in enumerate(text.splitlines(), 1):
            if f"[{names.onnx}" in line or f'missing_formula("{names.onnx}' in line:
                found.append(f"{path}:{number}")
    return tuple(found)


def new_operator(
    name: str,
    kind: str,
    attributes: Sequence[NewAttribute] = (),
    torch_name: str | None = None,
    activation: str | None = None,
    start: Path | None = None,
) -> Change:
    """Adds an operator to the checkout: a functor to its family's header, an ``OpSpec`` to
    ``spec.py``.

    Args:
        name: in CamelCase, the functor's and ONNX's.
        kind: "activation", "gated" for ``f(gate) * x``, or "norm" for
            ``x * factor(mean(x**2)) * weight`` over the last dim.
        attributes: scalars fixed per node.
        torch_name: snake_case; derived from ``name`` if None.
        activation: for "gated", an operator of the tree to take for ``f``: then no formula is left
            to be written. Without it, ``f`` is.
        start: a folder in the checkout; the current one if None.

    Returns:
        What changed, and where formulas are to be written.

    Raises:
        UsageError: not in a checkout, or a name is taken or has another form.
    """
    names = Names.parse(name, torch_name)
    root = checkout((start or Path.cwd()).resolve())
    check_free(names, _taken(root))
    if kind not in FAMILIES:
        raise UsageError(
            WHERE,
            f"--kind should be one of {', '.join(FAMILIES)}",
            kind,
            "Choose one of these",
        )
    if activation is not None and (kind != "gated" or attributes):
        raise UsageError(
            WHERE,
            "--activation is for --kind gated, and its attributes become the operator's",
            f"--kind {kind} and {len(attributes)} attributes",
            "Leave one of them out",
        )
    for attribute in attributes if kind == "norm" else ():
        if attribute.name in _TAKEN_IN_NORMS.split():
            raise UsageError(
                WHERE,
                "an attribute's name should be new",
                f"{attribute.name!r}, which norms have already",
                "Choose another name",
            )
    if kind == "norm":
        code = skeletons.norm_functor(names.onnx, attributes)
        entry = skeletons.spec_entry(names, attributes, norm=True)
    elif kind == "activation":
        code = skeletons.functor(names.onnx, attributes, f"{names.onnx}, y = TODO.")
        entry = skeletons.spec_entry(names, attributes)
    elif activation is not None:
        constant = _constant_of((root / _SPEC).read_text(encoding="utf-8"), activation)
        code = skeletons.gated_functor(names.onnx, activation)
        entry = skeletons.gated_entry(names, activation, constant)
    else:
        inner = Names(f"{names.onnx}Gate", f"{names.torch}_gate")
        code = skeletons.functor(inner.onnx, attributes, f"The f of {names.onnx}.")
        code += "\n" + skeletons.gated_functor(names.onnx, inner.onnx)
        entry = skeletons.spec_entry(inner, attributes, inner=True)
        entry += "\n\n" + skeletons.gated_entry(names, inner.onnx, f"_{inner.constant}")
    header, path, after = _with_functor(root, kind, code, names)
    spec = (
        _with_norm(root, entry, names) if kind == "norm" else _with_entry(root, entry, names, after)
    )
    contents = {path: header, _SPEC: spec}
    _write_all_or_none({root / path: text for path, text in contents.items()})
    return Change(root, tuple(contents), names, _places(contents, names))
