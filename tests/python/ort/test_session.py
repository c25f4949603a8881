# SPDX-License-Identifier: Apache-2.0
"""``myops.ort.session``: its arguments, and what it says where a model or file is wrong."""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path

import myops.ort
import numpy as np
import onnx
import onnxruntime
import pytest
from myops import _build_info, _library
from myops._errors import LibraryError, MissingPackageError, ModelError, UsageError
from myops.onnx import add_functions
from myops.spec import DOMAIN, SPECS
from onnx import TensorProto, helper

from ..support import each_spec
from .support import (
    attributes,
    exact,
    info,
    model,
    node,
    untyped,
)

# The package shows the function of that name in the module's place.
session_module = importlib.import_module("myops.ort.session")

X = np.linspace(-4, 4, 12, dtype=np.float32).reshape(3, 4)


def _load(file, check_message, kind=ModelError, **options) -> str:
    with pytest.raises(kind) as raised:
        myops.ort.session(file, **options)
    return check_message(raised.value)


@each_spec
@pytest.mark.parametrize("form", ["bytes", "path", "string"])
def test_forms_of_the_model(spec, form, tmp_path):
    content = model([node(spec, **attributes(spec))])
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    session = myops.ort.session({"bytes": content, "path": path, "string": str(path)}[form])
    assert isinstance(session, onnxruntime.InferenceSession)
    assert session.get_providers() == ["CPUExecutionProvider"]
    np.testing.assert_allclose(
        session.run(None, {"x": X})[0], exact(spec, X, **attributes(spec)), rtol=1e-6, atol=1e-7
    )


@each_spec
def test_options_reach_the_session(spec):
    content = model([node(spec)])
    levels = {
        "disable": "ORT_DISABLE_ALL",
        "basic": "ORT_ENABLE_BASIC",
        "extended": "ORT_ENABLE_EXTENDED",
        "all": "ORT_ENABLE_ALL",
    }
    for name, level in levels.items():
        session = myops.ort.session(content, intra_op_num_threads=1, graph_optimization_level=name)
        options = session.get_session_options()
        assert options.intra_op_num_threads == 1
        assert options.graph_optimization_level == getattr(
            onnxruntime.GraphOptimizationLevel, level
        )
    defaults = myops.ort.session(content).get_session_options()
    assert defaults.intra_op_num_threads == onnxruntime.SessionOptions().intra_op_num_threads
    assert not defaults.enable_profiling


@each_spec
def test_profile_names_the_kernel(spec, tmp_path):
    session = myops.ort.session(model([node(spec)]), profile=tmp_path / "p")
    session.run(None, {"x": X})
    file = Path(session.end_profiling())
    assert file.parent == tmp_path
    assert file.name.startswith("p")
    ran = [e["args"]["op_name"] for e in json.loads(file.read_text()) if e.get("cat") == "Node"]
    assert spec.name in ran


@pytest.mark.parametrize("level", ["max", "ALL", "", "ORT_ENABLE_ALL"])
def test_unknown_level(level, check_message):
    text = _load(b"", check_message, UsageError, graph_optimization_level=level)
    assert repr(level) in text
    assert "disable, basic, extended, all" in text


@pytest.mark.parametrize(
    "providers", [["CUDAExecutionProvider", "CPUExecutionProvider"], ["CPU"], [("TensorRT", {})]]
)
def test_provider_that_is_not_there(providers, check_message):
    """Not a silent fallback to the CPU."""
    assert "CUDAExecutionProvider" not in onnxruntime.get_available_providers()
    text = _load(b"", check_message, UsageError, providers=providers)
    name = providers[0] if isinstance(providers[0], str) else providers[0][0]
    assert name in text
    assert "CPUExecutionProvider" in text


class WithCuda:
    """An onnxruntime that has the CUDA provider, on a machine where it cannot start."""

    def __getattr__(self, name):
        return getattr(onnxruntime, name)

    @staticmethod
    def get_available_providers():
        return ["CUDAExecutionProvider", *onnxruntime.get_available_providers()]

    @staticmethod
    def InferenceSession(model, options, providers):
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


CUDA = ["CUDAExecutionProvider", "CPUExecutionProvider"]


@each_spec
def test_provider_that_does_not_start(spec, check_message, monkeypatch):
    monkeypatch.setattr(session_module, "_import_onnxruntime", WithCuda)
    monkeypatch.setattr(_build_info, "cuda_message", lambda: "")
    text = _load(model([node(spec)]), check_message, LibraryError, providers=CUDA)
    assert "CUDAExecutionProvider should start" in text


@each_spec
def test_cuda_session_without_cuda_kernels(spec, check_message, monkeypatch):
    monkeypatch.setattr(session_module, "_import_onnxruntime", WithCuda)
    monkeypatch.setattr(_build_info, "cuda_message", lambda: "built without CUDA")
    text = _load(model([node(spec)]), check_message, LibraryError, providers=CUDA)
    assert "built without CUDA" in text
    assert "MYOPS_CUDA=ON" in text


@each_spec
def test_providers_as_pairs(spec):
    session = myops.ort.session(model([node(spec)]), providers=[("CPUExecutionProvider", {})])
    assert session.get_providers() == ["CPUExecutionProvider"]


@each_spec
def test_without_the_plugin(spec, check_message):
    content = model([node(spec, **attributes(spec))])
    text = _load(content, check_message, plugin=False)
    assert f"{DOMAIN}::{spec.name}" in text
    assert "portable" in text
    proto = onnx.load_from_string(content)
    add_functions(proto)
    session = myops.ort.session(proto.SerializeToString(), plugin=False)
    np.testing.assert_allclose(
        session.run(None, {"x": X})[0], exact(spec, X, **attributes(spec)), rtol=1e-5, atol=1e-6
    )


@each_spec
def test_another_plugin_file(spec, tmp_path):
    """The library may be copied anywhere."""
    for name in ("moved.so", "with space.so"):
        copy = shutil.copy(myops.ort.library_path(), tmp_path / name)
        for plugin in (copy, Path(copy), True, None):
            assert myops.ort.session(model([node(spec)]), plugin=plugin).run(None, {"x": X})


@pytest.mark.parametrize("domain", ["MyOps", "MYOPS", "myop", "my_ops", "myopss"])
@each_spec
def test_misspelt_domain(spec, domain, check_message):
    wrong = node(spec)
    wrong.domain = domain
    text = _load(model([wrong], imports=[(domain, 1)]), check_message)
    assert f"{domain}::{spec.name}" in text
    assert f"'{DOMAIN}'" in text
    assert "y_node" in text


def test_domains_of_others_are_not_ours(check_message):
    other = helper.make_node("Gelu", ["x"], ["y"], "n", domain="com.microsoft")
    content = model([other], imports=[("com.microsoft", 1)])
    assert myops.ort.session(content).run(None, {"x": X})


@each_spec
@pytest.mark.parametrize("wrong", [str.lower, str.upper, lambda name: name + "s"])
def test_misspelt_operator(spec, wrong, check_message):
    misspelt = node(spec)
    misspelt.op_type = wrong(spec.name)
    text = _load(model([misspelt]), check_message)
    assert f"{DOMAIN}::{misspelt.op_type}" in text
    assert f"Did you mean {spec.name}?" in text


def test_unknown_operator(check_message):
    unknown = helper.make_node("Quantize", ["x"], ["y"], "n", domain=DOMAIN)
    text = _load(model([unknown]), check_message)
    assert "Did you mean" not in text
    assert all(spec.name in text for spec in SPECS)


@each_spec
@pytest.mark.parametrize("name", ["alpha", "nonsense"])
def test_wrong_attribute_name(spec, name, check_message):
    """ONNX Runtime would ignore it and compute with the default."""
    text = _load(model([node(spec, **{name: 2.0})]), check_message)
    assert repr(name) in text
    assert all(attribute.name in text for attribute in spec.attributes)


@each_spec
@pytest.mark.parametrize(
    ("value", "kind"), [("1.0", "STRING"), (1, "INT"), ([1.0], "FLOATS"), (["a"], "STRINGS")]
)
def test_attribute_of_another_type(spec, value, kind, check_message):
    for attribute in spec.attributes:
        text = _load(model([node(spec, **{attribute.name: value})]), check_message)
        assert kind in text
        assert attribute.name in text
        assert "y_node" in text


@each_spec
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_attribute_that_is_not_finite(spec, value, check_message):
    for attribute in spec.attributes:
        text = _load(model([node(spec, **{attribute.name: value})]), check_message)
        assert attribute.name in text
        assert "finite" in text


@each_spec
@pytest.mark.parametrize("element_type", [TensorProto.INT32, TensorProto.INT64, TensorProto.UINT8])
def test_input_of_another_type(spec, element_type, check_message):
    content = model([node(spec)], [info("x", element_type)], [info("y", element_type)])
    text = _load(content, check_message)
    assert TensorProto.DataType.Name(element_type).lower() in text
    assert "float32, float64, float16, bfloat16" in text


@each_spec
@pytest.mark.parametrize(
    "imports",
    [[], [(DOMAIN, 1), (DOMAIN, 1)], [(DOMAIN, 1), (DOMAIN, 2)], [(DOMAIN, 2)], [(DOMAIN, 0)]],
    ids=str,
)
def test_imports_of_the_domain(spec, imports, check_message):
    text = _load(model([node(spec)], imports=imports), check_message)
    assert f"{DOMAIN!r}" in text
    assert str([version for _, version in imports]) in text


@each_spec
@pytest.mark.parametrize("inputs", [[], ["x", ""], ["x", "x", "x", "x", "x"]], ids=str)
def test_number_of_inputs(spec, inputs, check_message):
    wrong = node(spec)
    del wrong.input[:]
    wrong.input.extend(inputs)
    if len(inputs) != len(spec.inputs):
        assert str(len(inputs)) in _load(model([wrong]), check_message)


@each_spec
def test_node_in_an_inner_graph_is_checked(spec, check_message):
    wrong = node(spec, "x", "z", nonsense=1.0)
    branch = helper.make_graph([wrong], "b", [], [untyped("z")])
    choice = helper.make_node("If", ["c"], ["y"], "if", then_branch=branch, else_branch=branch)
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    text = _load(model([choice], [info("x"), condition], [info("y")]), check_message)
    assert "'nonsense'" in text


@each_spec
def test_node_without_a_name_is_told_by_its_output(spec, check_message):
    wrong = node(spec, nonsense=1.0)
    wrong.name = ""
    assert "'y'" in _load(model([wrong]), check_message)


def test_missing_plugin(tmp_path, check_message):
    path = tmp_path / "nowhere.so"
    assert str(path) in _load(b"", check_message, LibraryError, plugin=path)


@pytest.mark.parametrize("kind", ["torch", "text", "folder", "empty"])
def test_file_that_is_no_plugin(kind, tmp_path, check_message):
    path = tmp_path / "lib.so"
    if kind == "torch":
        path = _library.torch_library()
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_text("hello" if kind == "text" else "")
    text = _load(b"", check_message, LibraryError, plugin=path)
    assert str(path) in text
    assert kind != "torch" or "torch library" in text


@each_spec
@pytest.mark.parametrize("form", ["bytes", "path"])
@pytest.mark.parametrize("keep", [0, 1, 20, -20, -1])
def test_truncated_model(spec, form, keep, tmp_path, check_message):
    content = model([node(spec)])[:keep]
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    _load(content if form == "bytes" else path, check_message)


@pytest.mark.parametrize("name", ["missing.onnx", "."])
def test_missing_model(name, tmp_path, check_message):
    assert str(tmp_path) in _load(tmp_path / name, check_message)


@each_spec
def test_array_of_another_dtype(spec):
    """Neither converted nor misread."""
    session = myops.ort.session(model([node(spec)]))
    with pytest.raises(Exception, match=r"tensor\(double\).*tensor\(float\)"):
        session.run(None, {"x": X.astype(np.float64)})


@each_spec
def test_type_that_only_the_runtime_sees(spec, check_message):
    """Where inference ends before our node, ONNX Runtime's own refusal is passed on."""
    content = model([node(spec)], [info("x", TensorProto.STRING)], [untyped("y")])
    _load(content, check_message)


def test_onnxruntime_not_installed(run_python, check_message):
    done = run_python(
        """
        import sys
        sys.modules["onnxruntime"] = None
        import myops.ort
        try:
            myops.ort.session(b"")
        except ImportError as error:
            print(error)
        """
    )
    assert "onnxruntime" in check_message(done.stdout.strip())
    assert issubclass(MissingPackageError, ImportError)


@each_spec
def test_onnx_not_installed(spec, run_python, tmp_path):
    """A server with onnxruntime and this package only: no check, but a session."""
    (tmp_path / "m.onnx").write_bytes(model([node(spec)]))
    done = run_python(
        """
        import sys
        for name in ("onnx", "torch"):
            sys.modules[name] = None
        import numpy
        import myops.ort
        session = myops.ort.session(sys.argv[1])
        print(session.run(None, {"x": numpy.ones((1, 4), numpy.float32)})[0].shape)
        """,
        tmp_path / "m.onnx",
    )
    assert done.stdout.strip() == "(1, 4)"


@pytest.mark.parametrize("value", ["nonsense", "V3"])
def test_unknown_isa(run_python, value, check_message):
    done = run_python(
        """
        import myops.ort
        try:
            myops.ort.session(b"")
        except RuntimeError as error:
            print(error)
        """,
        env={"MYOPS_ISA": value},
    )
    assert f'"{value}"' in check_message(done.stdout.strip())
