# SPDX-License-Identifier: Apache-2.0
"""Error texts provoked here, and what the files they are about make of their causes."""

from __future__ import annotations

from pathlib import Path

import myops.ort
import numpy as np
import onnxruntime
import pytest
from myops import _library
from myops._errors import LibraryError, ModelError, UsageError
from myops.doctor import explain_with, trial
from myops.doctor.explain import explain
from myops.spec import DOMAIN, OpSpec
from onnx import TensorProto

from ..ort.support import OURS, by_hand, info, model, node
from ..support import one_spec
from .support import ENTRY, build


def _ids(text: str) -> list[str]:
    return [match.id for match in explain(text)]


def _first(text: str, **files: Path) -> tuple[str, str]:
    """The best cause, and what became of it."""
    best = explain_with(text, **files)[0]
    return best.id, best.status


LIBRARIES = {
    "entry-symbol-missing": ("int other(void) { return 0; }", "c"),
    "entry-symbol-mangled": (ENTRY, "cc"),
    "undefined-symbol": (f"int nowhere(void); {ENTRY} int f(void) {{ return nowhere(); }}", "c"),
}


@pytest.mark.parametrize("id", LIBRARIES)
def test_looking_alike_libraries(tmp_path, id):
    """The file that the live text names is read, so the first cause is the right one."""
    source, suffix = LIBRARIES[id]
    library = build(tmp_path, "l.so", source, "-Wl,-z,now", suffix=suffix)
    text = trial.plugin(library).problem
    assert "onnxruntime" in text.lower()
    assert _first(text) == (id, "confirmed")


def test_hidden_entry(tmp_path):
    library = build(tmp_path, "l.so", ENTRY, "-fvisibility=hidden")
    assert _first(trial.plugin(library).problem) == ("entry-symbol-hidden", "confirmed")


def test_the_library_that_is_named(tmp_path):
    """Not the C library, which the loader's text names first."""
    (tmp_path / "versions").write_text("GLIBC_9.9 { global: brand_new; };")
    flags = ("-nostdlib", "-Wl,-soname,libc.so.6", f"-Wl,--version-script={tmp_path / 'versions'}")
    newer = build(tmp_path, "newer.so", "int brand_new(void) { return 0; }", *flags)
    source = f"int brand_new(void); {ENTRY} int f(void) {{ return brand_new(); }}"
    text = trial.plugin(build(tmp_path, "l.so", source, newer)).problem
    assert f"required by {tmp_path / 'l.so'}" in text
    assert _first(text) == ("glibc-too-old", "confirmed")


def test_missing_file(tmp_path):
    text = trial.plugin(tmp_path / "l.so").problem
    assert _first(text) == ("library-missing", "possible")
    assert _first(text, library=tmp_path / "l.so") == ("library-missing", "confirmed")


def test_library_for_another_machine(tmp_path):
    """The loader says of it that there is no such file."""
    content = bytearray(build(tmp_path, "l.so", ENTRY).read_bytes())
    content[18] = 183
    (tmp_path / "l.so").write_bytes(content)
    text = trial.plugin(tmp_path / "l.so").problem
    assert "No such file" in text
    assert _first(text) == ("library-wrong-architecture", "confirmed")


def test_torch_library_for_the_plugin():
    text = trial.plugin(_library.torch_library()).problem
    assert _first(text) == ("torch-library-for-plugin", "confirmed")


@one_spec
@pytest.mark.parametrize("earlier", [False, True], ids=["fresh", "plugin-before"])
def test_looking_alike_sessions(spec, tmp_path, run_python, earlier):
    """A model that imports no domain, and a session without the plugin. In a process that has
    had a session with the plugin the texts are the same."""
    code = """
        import sys, onnxruntime
        for plugin in sys.argv[3:]:
            options = onnxruntime.SessionOptions()
            options.register_custom_ops_library(plugin)
            onnxruntime.InferenceSession(sys.argv[2], options)
        try:
            onnxruntime.InferenceSession(sys.argv[1])
        except Exception as error:
            print(error)
    """
    plugins = [_library.ort_library()] if earlier else []
    good = tmp_path / "good.onnx"
    good.write_bytes(model([node(spec)]))
    texts = []
    for imports, cause in (
        (OURS, ("plugin-not-registered", "possible")),
        ((), ("domain-not-imported", "confirmed")),
    ):
        path = tmp_path / "m.onnx"
        path.write_bytes(model([node(spec)], imports=imports))
        texts.append(run_python(code, path, good, *plugins).stdout)
        assert _first(texts[-1], model=path) == cause
    assert (texts[0] == texts[1]) is earlier


@one_spec
def test_registered_twice(spec):
    options = onnxruntime.SessionOptions()
    for _ in range(2):
        options.register_custom_ops_library(str(_library.ort_library()))
    with pytest.raises(Exception, match="registry") as raised:
        onnxruntime.InferenceSession(model([node(spec)]), options)
    assert _first(str(raised.value)) == ("plugin-registered-twice", "possible")


@one_spec
@pytest.mark.parametrize(
    "feed",
    [
        {"x": np.zeros((2, 4))},
        {"x": np.zeros((2, 5), np.float32)},
        {"x": np.zeros(4, np.float32)},
        {"z": np.zeros((2, 4), np.float32)},
    ],
)
def test_feeds(spec, feed):
    with pytest.raises(Exception) as raised:
        by_hand(model([node(spec)])).run(None, feed)
    assert _first(str(raised.value)) == ("feed-mismatch", "possible")


@one_spec
def test_provider_that_the_runtime_lacks(spec, tmp_path):
    with pytest.warns(UserWarning) as warned:
        onnxruntime.InferenceSession(
            model([node(spec)]), _with_plugin(), providers=["QNNExecutionProvider"]
        )
    assert _ids(str(warned[0].message)) == ["provider-absent"]


def _with_plugin() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(_library.ort_library()))
    return options


def test_torch_says_less_than_the_loader(tmp_path):
    """Its message names no cause; the traceback does."""
    source = "namespace c10 { void gone(); } void use() { c10::gone(); }"
    library = build(tmp_path, "l.so", source, "-Wl,-z,now", suffix="cc")
    text = trial.torch_library(library).problem
    assert _first(text) == ("undefined-symbol", "confirmed")
    alone = _ids(f"OSError: Could not load this library: {library}")
    assert "torch-version-mismatch" in alone
    assert "undefined-symbol" in alone


def test_torch_without_the_library(run_python):
    code = """
        import sys, torch
        for path in sys.argv[1:]:
            torch.ops.load_library(path)
        try:
            torch.ops.myops.swish(torch.ones(2))
        except Exception as error:
            print(type(error).__name__, error)
    """
    expected = ["torch-library-not-loaded", "plugin-for-torch-library"]
    assert _ids(run_python(code).stdout) == expected
    assert _ids(run_python(code, _library.ort_library()).stdout) == expected


def test_second_copy_of_the_torch_library(run_python, tmp_path):
    copy = tmp_path / "libmyops.so"
    copy.write_bytes(_library.torch_library().read_bytes())
    code = "import sys, torch\nfor path in sys.argv[1:]: torch.ops.load_library(path)"
    done = run_python(code, _library.torch_library(), copy)
    assert _ids(done.stderr) == ["torch-library-twice"]


def test_runtime_that_is_too_old(run_python, tmp_path):
    text = "[myops] libmyops_ort.so needs ONNX Runtime 1.16 or newer. Received 1.15.1. Upgrade"
    assert _ids(text) == ["onnxruntime-too-old"]
    source = """
    struct Base { const void* (*get)(unsigned); };
    void* RegisterCustomOps(void* options, const struct Base* base) { base->get(999); return 0; }
    """
    library = build(tmp_path, "l.so", source)
    code = """
        import sys, onnxruntime
        onnxruntime.SessionOptions().register_custom_ops_library(sys.argv[1])
    """
    assert _ids(run_python(code, library).stderr) == ["onnxruntime-too-old"]


@one_spec
def test_our_own_messages(spec, tmp_path):
    """What ``myops.ort.session`` refuses is explained by the id that the check gives it."""
    wrong = {
        "domain-not-imported": model([node(spec)], imports=[]),
        "domain-imported-twice": model([node(spec)], imports=[*OURS, *OURS]),
        "domain-version": model([node(spec)], imports=[(DOMAIN, 7)]),
        "domain-case": _changed(spec, domain="MyOps"),
        "node-unknown": _changed(spec, op_type="Nothing"),
        "node-input-empty": _changed(spec, input=["x", ""]),
        "node-input-count": _changed(spec, input=["x", "x", "x", "x"]),
        "node-output-count": _changed(spec, output=["y", "a", "b"]),
        "node-attribute-unknown": model([node(spec, betta=1.0)]),
        "node-attribute-type": model([node(spec, beta="1")]),
        "node-dtype": model([node(spec)], [info("x", TensorProto.INT64)]),
        "model-damaged": b"no model",
    }
    for id, content in wrong.items():
        with pytest.raises(ModelError) as raised:
            myops.ort.session(content)
        assert _ids(str(raised.value)) == [id]
    with pytest.raises(ModelError) as raised:
        myops.ort.session(model([node(spec)]), plugin=False)
    assert _ids(str(raised.value)) == ["plugin-not-registered"]
    with pytest.raises(UsageError) as raised:
        myops.ort.session(model([node(spec)]), providers=["QNNExecutionProvider"])
    assert _ids(str(raised.value)) == ["provider-absent"]
    with pytest.raises(ModelError) as raised:
        myops.ort.session(tmp_path / "m.onnx")
    assert _ids(str(raised.value)) == ["model-missing"]
    with pytest.raises(LibraryError) as raised:
        myops.ort.session(model([node(spec)]), plugin=tmp_path / "l.so")
    assert _ids(str(raised.value)) == ["library-missing"]


def _changed(spec: OpSpec, **changes: object) -> bytes:
    ours = node(spec)
    for name, value in changes.items():
        if isinstance(value, list):
            del getattr(ours, name)[:]
            getattr(ours, name).extend(value)
        else:
            setattr(ours, name, value)
    return model([ours])
