# SPDX-License-Identifier: Apache-2.0
"""Which findings an error text may stand for. The texts are those of ONNX Runtime 1.16 to 1.32,
the loader, torch, CUDA and our own libraries; several causes may print the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from myops import _build_info
from myops.doctor.catalogue import BY_ID, Entry
from myops.opspec import DOMAIN
from myops.spec import SPECS

_OPS = {op["name"] for op in _build_info.ops()}


def _known_ops() -> set[str]:
    return _OPS | {spec.name for spec in SPECS}


@dataclass(frozen=True)
class Match:
    """A finding that a text may stand for, and the part of the text that says so."""

    id: str
    excerpt: str

    @property
    def entry(self) -> Entry:
        return BY_ID[self.id]


def _entry_symbol(found: re.Match[str]) -> list[str]:
    return [
        "entry-symbol-missing",
        "entry-symbol-mangled",
        "entry-symbol-hidden",
        "torch-library-for-plugin",
    ]


def _cannot_open(found: re.Match[str]) -> list[str]:
    asked, missing = found["asked"], found["missing"]
    if re.match(r"lib(torch|c10)", missing):
        return ["torch-library-for-plugin", "needed-unresolved"]
    if missing.startswith("libcuda.so"):
        return ["driver-missing"]
    if asked is None:
        return ["library-missing" if "/" in missing else "needed-unresolved"]
    if asked == missing:
        return ["library-missing", "library-wrong-architecture"]
    return ["needed-unresolved"]


def _undefined(found: re.Match[str]) -> list[str]:
    symbol = found["symbol"]
    if symbol == "RegisterCustomOps":
        return _entry_symbol(found)
    if re.search(r"3c10|2at|5torch", symbol):
        return ["undefined-symbol", "torch-version-mismatch", "cxx11-abi-mismatch"]
    return ["undefined-symbol"]


def _version(found: re.Match[str]) -> list[str]:
    kinds = {"GLIBC": "glibc-too-old"} | dict.fromkeys(("GLIBCXX", "CXXABI"), "libstdcxx-too-old")
    return [kinds.get(found["kind"], "symbol-version-missing")]


def _not_registered(found: re.Match[str]) -> list[str]:
    domain, name = found["domain"], found["name"]
    if SPECS.of_node(domain, name) is not None:
        return ["plugin-not-registered", "domain-not-imported"]
    if domain in SPECS.namespaces():
        return ["node-unknown"]
    if domain.lower() == DOMAIN or name in _OPS:
        return ["domain-case"]
    return []


def _not_imported(found: re.Match[str]) -> list[str]:
    if found["domain"] in SPECS.namespaces():
        return ["domain-not-imported"]
    return ["domain-case"] if found["domain"].lower() == DOMAIN else []


def _imports(found: re.Match[str]) -> list[str]:
    kinds = {"0": "domain-not-imported", "1": "domain-version"}
    return [kinds.get(found["count"], "domain-imported-twice")]


def _implementation(found: re.Match[str]) -> list[str]:
    # ONNX Runtime 1.16 and 1.17 say this of our operators, too; they have all versions, not dtypes.
    ours = found["name"] in _known_ops()
    return ["node-dtype" if ours and found["version"] == "1" else "kernel-missing"]


def _input_size(found: re.Match[str]) -> list[str]:
    if found["domain"] not in SPECS.namespaces():
        return []
    empty = re.search(r'[(,]"",', found[0])
    return ["node-input-empty", "node-input-count"] if empty else ["node-input-count"]


def _output_size(found: re.Match[str]) -> list[str]:
    return ["node-output-count"] if found["domain"] in SPECS.namespaces() else []


Rule = tuple[str, list[str] | Callable[[re.Match[str]], list[str]]]

# Best first. @OP@ stands for the name of any of our operators. Texts are matched with white space
# folded. Patterns begin at a word's begin and look ahead a bounded way: a pasted log may have
# megabytes.
_RULES: tuple[Rule, ...] = (
    (r"Failed to get symbol RegisterCustomOps", _entry_symbol),
    (r"undefined symbol: (?P<symbol>\w+)", _undefined),
    (
        r"(?:load (?:this )?library:? (?P<asked>\S+) (?:with error: |Because of OSError: ))?"
        r"(?<![^\s'\":])(?P<missing>[^\s'\":]+): cannot open shared object file",
        _cannot_open,
    ),
    (r"version `(?P<kind>[A-Za-z]+)[^']*' not found", _version),
    (r"invalid ELF header|cannot read file data: Is a directory", ["library-not-elf"]),
    (r"file too short", ["library-truncated"]),
    (r"Bus error|SIGBUS", ["library-truncated", "library-kills-process"]),
    (r"Segmentation fault|SIGSEGV", ["library-kills-process", "node-input-empty"]),
    (r"wrong ELF class|Exec format error", ["library-wrong-architecture"]),
    (
        r"(?<![\w.])(?P<domain>[\w.]+):(?P<name>\w+)\(-1\) is not a registered function/op",
        _not_registered,
    ),
    (r"No opset import for domain '(?P<domain>[^']*)'", _not_imported),
    (r"Domain already set in registry", ["plugin-registered-twice"]),
    (r"of operator \((@OP@)\) in node \([^)]*\) is invalid", ["node-dtype"]),
    (
        r"Could not find an implementation for (?P<name>\w+)\((?P<version>\d+)\) node",
        _implementation,
    ),
    (r'"(?P<domain>\w+)", -1\) : .{0,2000}?has input size \d+ not in range', _input_size),
    (r'"(?P<domain>\w+)", -1\) : .{0,2000}?has output size \d+ not in range', _output_size),
    (
        r"attribute \w+ of (?:node \"[^\"]*\"|\w+) should be a (?:finite )?float",
        ["node-attribute-type"],
    ),
    (r"Unsupported model IR version", ["ir-too-new"]),
    (r"Current official support for domain ai\.onnx is till opset", ["opset-too-new"]),
    (r"No Op registered for \w+ with domain_version of \d+", ["operator-unknown"]),
    (
        r"escapes (?:both )?model directory|escapes working directory",
        ["external-data-outside"],
    ),
    (
        r"External data path does not exist|GetFileLength for \S+ failed|"
        r"cannot get file size: No such file",
        ["external-data-missing", "external-data-outside"],
    ),
    (
        r"External initializer: \S+ offset: \d+ size to read: \d+ .{0,200}?out of bounds",
        ["external-data-short"],
    ),
    (r"[Pp]rotobuf parsing failed", ["model-damaged"]),
    (r"Load model \S+ failed\. File doesn't exist", ["model-missing"]),
    (
        r"is not in available provider names|Unknown Provider Type",
        ["provider-absent"],
    ),
    (
        r"requested API version \[\d+\] is not available|needs ONNX Runtime 1\.\d+ or newer",
        ["onnxruntime-too-old"],
    ),
    (
        r"Unexpected input data type|Got invalid dimensions for input|Invalid rank for input|"
        r"are missing from input feed|Invalid [Ff]eed [Ii]nput [Nn]ame",
        ["feed-mismatch"],
    ),
    (
        rf"'_OpNamespace' '{DOMAIN}' object has no attribute|"
        rf"Could not find (?:any similar ops to|schema for) {DOMAIN}::",
        ["torch-library-not-loaded", "plugin-for-torch-library"],
    ),
    (
        r"one copy of the torch library should be loaded per process|"
        rf"Only a single TORCH_LIBRARY can be used to register the namespace {DOMAIN}",
        ["torch-library-twice"],
    ),
    (r"no kernel image is available", ["gpu-architecture-missing"]),
    (
        r"driver version is insufficient|NVIDIA driver on your system is too old",
        ["driver-too-old"],
    ),
    (r"Found no NVIDIA driver", ["driver-missing"]),
    (r"unsupported GNU version", ["nvcc-host-compiler"]),
    (
        r"CUDA version .{0,100}?mismatches the version that was used to compile PyTorch",
        ["nvcc-torch-cuda"],
    ),
)

# What myops.ort says before ONNX Runtime can.
_OURS: tuple[Rule, ...] = (
    (r"the domain of our operators is", ["domain-case"]),
    (r"should import domain .{0,200}? Received (?P<count>\d+) imports", _imports),
    (r"the plugin offers ", ["node-unknown"]),
    (r"(?:@OP@) takes \d+ inputs.{0,200}? with an empty one", ["node-input-empty"]),
    (r"(?:@OP@) takes \d+ inputs?\.", ["node-input-count"]),
    (r"(?:@OP@) has \d+ outputs?\.", ["node-output-count"]),
    (r"the attributes of (?:@OP@) are", ["node-attribute-unknown"]),
    (r"(?:@OP@) takes float", ["node-dtype"]),
    (r"without the plugin the model should hold a function", ["plugin-not-registered"]),
    (r"the plugin should be a file", ["library-missing"]),
    (r"the model file should exist", ["model-missing"]),
    (r"should be a whole ONNX model", ["model-damaged"]),
    (r"providers should be among those of the installed onnxruntime", ["provider-absent"]),
    (r"should be installed beside the package|need a build made where", ["library-not-built"]),
    (r"\b(?:torch|onnxruntime) should be installed", ["package-missing"]),
)

# Without the loader's own words, which torch hides in the error's cause.
_LAST: tuple[Rule, ...] = (
    (
        r"Could not load this library: \S+",
        [
            "library-missing",
            "torch-version-mismatch",
            "undefined-symbol",
            "needed-unresolved",
            "library-not-elf",
        ],
    ),
)


def explain(text: str) -> list[Match]:
    """The findings that an error text may stand for, best first.

    Args:
        text: what was printed: the message alone, or a whole log with its traceback.

    Returns:
        Empty where nothing in the text is known.
    """
    folded = " ".join(text.split())
    return _matches(folded, (*_RULES, *_OURS)) or _matches(folded, _LAST)


def _matches(text: str, rules: tuple[Rule, ...]) -> list[Match]:
    matches: dict[str, Match] = {}
    any_op = "|".join(sorted(_known_ops(), key=len, reverse=True))
    for pattern, ids in rules:
        for found in re.finditer(pattern.replace("@OP@", any_op), text):
            for id in ids(found) if callable(ids) else ids:
                matches.setdefault(id, Match(id, found[0][-300:]))
    return list(matches.values())
