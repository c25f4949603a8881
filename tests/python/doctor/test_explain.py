# SPDX-License-Identifier: Apache-2.0
"""Error texts and their causes: those that ONNX Runtime, the loader, torch and CUDA print."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from myops.doctor.explain import explain
from myops.spec import DOMAIN, SPECS

MESSAGES = json.loads((Path(__file__).parent / "runtime_messages.json").read_text())

ENTRY_SYMBOL = [
    "entry-symbol-missing",
    "entry-symbol-mangled",
    "entry-symbol-hidden",
    "torch-library-for-plugin",
]

EXPECTED = {
    "noentry": ENTRY_SYMBOL,
    "mangled": ENTRY_SYMBOL,
    "undef": ["undefined-symbol"],
    "needed": ["needed-unresolved"],
    "trunc2": ["library-truncated"],
    "notelf": ["library-not-elf"],
    "empty": ["library-truncated"],
    "arch": ["library-missing", "library-wrong-architecture"],
    "missing": ["library-missing", "library-wrong-architecture"],
    "torchlib": ["torch-library-for-plugin", "needed-unresolved"],
    "twice": ["plugin-registered-twice"],
    "not registered": ["plugin-not-registered", "domain-not-imported"],
    "not imported": ["domain-not-imported"],
    "case": ["domain-case"],
    "name": ["node-unknown"],
    "dtype int": ["node-dtype"],
    "attr string": ["node-attribute-type"],
    "attr int": ["node-attribute-type"],
    "inputs 2": ["node-input-count"],
    "inputs 0": ["node-input-count"],
    "empty optional": ["node-input-empty", "node-input-count"],
    "outputs 2": ["node-output-count"],
    "ir": ["ir-too-new"],
    "opset": ["opset-too-new"],
    "swish24": ["opset-too-new"],
    "swish18": ["operator-unknown"],
    "garbage": ["model-damaged"],
    "protobuf trunc": ["model-damaged"],
    "external missing": ["external-data-missing", "external-data-outside"],
    "external short": ["external-data-short"],
    "no file": ["model-missing"],
    "feed dtype": ["feed-mismatch"],
    "feed shape": ["feed-mismatch"],
    "feed rank": ["feed-mismatch"],
    "feed name": ["feed-mismatch"],
}

# One case, which releases take differently.
VARIED = {
    "swish25": {"opset-too-new", "kernel-missing"},
    "external outside": {"external-data-outside", "external-data-missing"},
}


def _ids(text: str) -> list[str]:
    return [match.id for match in explain(text)]


def test_every_recorded_case_is_judged():
    assert set(MESSAGES) == set(EXPECTED) | set(VARIED)


@pytest.mark.parametrize("case", EXPECTED)
def test_recorded_messages(case):
    """Of ONNX Runtime 1.16.3 to 1.32.0."""
    for message in MESSAGES[case]:
        assert _ids(message["text"]) == EXPECTED[case], message
        # As part of a log, with the line broken anywhere.
        log = "Traceback (most recent call last):\n  File x\n" + message["text"].replace(" ", "\n")
        assert _ids(log) == EXPECTED[case]


@pytest.mark.parametrize("case", VARIED)
def test_recorded_messages_that_differ_by_release(case):
    assert {_ids(message["text"])[0] for message in MESSAGES[case]} == VARIED[case]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("Segmentation is a task of vision. KeyError: 'x'", []),
        ("other:Thing(-1) is not a registered function/op", []),
        ("/l.so: undefined symbol: RegisterCustomOps", ENTRY_SYMBOL),
        (
            "OSError: /l.so: undefined symbol: _ZN3c106detail14torchCheckFailEPKcS2_jRKSs",
            ["undefined-symbol", "torch-version-mismatch", "cxx11-abi-mismatch"],
        ),
        (
            "/lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by /l.so)",
            ["glibc-too-old"],
        ),
        ("libstdc++.so.6: version `GLIBCXX_3.4.32' not found", ["libstdcxx-too-old"]),
        ("libstdc++.so.6: version `CXXABI_1.3.15' not found", ["libstdcxx-too-old"]),
        ("libgcc_s.so.1: version `GCC_14.0' not found", ["symbol-version-missing"]),
        ("/l.so: wrong ELF class: ELFCLASS32", ["library-wrong-architecture"]),
        ("Bus error (core dumped)", ["library-truncated", "library-kills-process"]),
        ("Segmentation fault (core dumped)", ["library-kills-process", "node-input-empty"]),
        (
            "libcudart.so.12: cannot open shared object file: No such file or directory",
            ["needed-unresolved"],
        ),
        ("libcuda.so.1: cannot open shared object file: No such file", ["driver-missing"]),
        (
            "The requested API version [22] is not available, only API versions [1, 16] are "
            "supported in this build. Current ORT Version is: 1.16.3",
            ["onnxruntime-too-old"],
        ),
        (
            "CUDA error: no kernel image is available for execution on the device",
            ["gpu-architecture-missing"],
        ),
        (
            "CUDA driver version is insufficient for CUDA runtime version",
            ["driver-too-old"],
        ),
        ("Found no NVIDIA driver on your system.", ["driver-missing"]),
        (
            "error: #error -- unsupported GNU version! gcc versions later than 15 are not "
            "supported!",
            ["nvcc-host-compiler"],
        ),
        (
            "The detected CUDA version (13.0) mismatches the version that was used to compile\n"
            "PyTorch (12.6).",
            ["nvcc-torch-cuda"],
        ),
        (
            "Only a single TORCH_LIBRARY can be used to register the namespace myops; please",
            ["torch-library-twice"],
        ),
    ],
)
def test_texts(text, expected):
    assert _ids(text) == expected


def test_names_of_all_operators():
    for spec in SPECS:
        text = f"{DOMAIN}:{spec.name}(-1) is not a registered function/op"
        assert _ids(text) == ["plugin-not-registered", "domain-not-imported"]
        text = f"Could not find an implementation for {spec.name}(1) node with name 'n'"
        assert _ids(text) == ["node-dtype"]


@pytest.mark.parametrize("piece", ["a", "x/", '"myops", -1) : ', "load library /a ", "a.b:c "])
def test_long_logs(piece):
    """The time is linear in the length."""
    started = time.process_time()
    assert explain(piece * (300_000 // len(piece))) == []
    assert time.process_time() - started < 20
