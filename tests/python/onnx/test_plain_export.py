# SPDX-License-Identifier: Apache-2.0
"""``torch.onnx.export`` itself, with nothing of ours passed, and the translation table."""

from __future__ import annotations

import inspect

import myops.functional
import onnx
import pytest
import torch
from myops._errors import ExportError
from myops.onnx import translation_table
from myops.onnx.translate import _constant
from myops.spec import DOMAIN, DOMAIN_VERSION, ELEMENTWISE, SPECS

from ..support import each_representative, each_spec, each_spec_with
from .support import (
    Call,
    attributes,
    call,
    our_nodes,
)

EXPORT = f"""
import sys, warnings
warnings.simplefilter("ignore")
import torch
exec(sys.argv[1])
from myops.spec import ELEMENTWISE

class Net(torch.nn.Module):
    def __init__(self, spec):
        super().__init__()
        self.spec = spec
        self.act = getattr(sys.modules["myops.nn"], spec.name)()
    def forward(self, x):
        return self.act(*[x] * len(self.spec.inputs))

for spec in ELEMENTWISE:
    dynamo = sys.argv[2] == "dynamo"
    more = dict(dynamo=False) if not dynamo else dict(dynamo=True, verbose=False)
    torch.onnx.export(Net(spec).eval(), (torch.randn(2, 3),), "m.onnx", **more)
    import onnx
    model = onnx.load("m.onnx")
    print(*(node.domain + "::" + node.op_type for node in model.graph.node))
    (node,) = model.graph.node
    assert {{a.name: a.f for a in node.attribute}} == spec.defaults()
    assert [e.version for e in model.opset_import if e.domain == "{DOMAIN}"] == [{DOMAIN_VERSION}]
"""

ORDERS = {
    "before_onnxscript": "import myops.nn\nassert 'onnxscript' not in sys.modules",
    "after_its_registry": (
        "import onnxscript.function_libs.torch_lib.registration\nimport myops.nn"
    ),
    "after_an_export": (
        "torch.onnx.export(torch.nn.ReLU(), (torch.randn(2, 3),), 'm.onnx', dynamo=True,"
        " verbose=False)\nimport myops.nn"
    ),
}


@pytest.mark.parametrize("order", ORDERS)
def test_dynamo_in_any_order_of_imports(run_python, order):
    lines = run_python(EXPORT, ORDERS[order], "dynamo").stdout.splitlines()
    assert lines[-len(ELEMENTWISE) :] == [f"{DOMAIN}::{s.name}" for s in ELEMENTWISE]


@pytest.mark.parametrize("order", ["before_onnxscript", "after_its_registry"])
def test_torchscript_in_any_order_of_imports(run_python, order):
    lines = run_python(EXPORT, ORDERS[order], "torchscript").stdout.splitlines()
    assert lines[-len(ELEMENTWISE) :] == [f"{DOMAIN}::{s.name}" for s in ELEMENTWISE]


def test_import_hook_leaves_imports_as_they_were(run_python):
    """Once onnxscript's registry is imported, our finder is gone and its loader restored."""
    run_python(
        """
        import sys
        before = list(sys.meta_path)
        import myops.nn
        name = "onnxscript.function_libs.torch_lib.registration"
        def ours():
            return [f for f in sys.meta_path if getattr(f, "_name", None) == name]

        assert len(ours()) == 1
        import importlib
        module = importlib.import_module(name)
        assert not ours()
        assert module.__spec__.name == name and module.default_registry
        assert "myops::swish" in module.default_registry
        """
    )


def test_translation_table_keys_and_values():
    """The table wants overloads as keys and, from torch 2.11 on, no sequences as values."""
    table = translation_table()
    assert set(table) == {
        getattr(getattr(torch.ops, DOMAIN), spec.torch_name).default for spec in SPECS
    }
    for spec in SPECS:
        target = table[getattr(getattr(torch.ops, DOMAIN), spec.torch_name).default]
        parameters = inspect.signature(target).parameters
        assert list(parameters) == [*spec.inputs, *spec.defaults()]
        assert {name: parameters[name].default for name in spec.defaults()} == spec.defaults()


@each_representative
def test_translation_table_in_torchs_own_export(spec):
    model = Call(lambda x: call(spec, x, **attributes(spec)))
    program = torch.onnx.export(
        model.eval(),
        (torch.randn(2, 3),),
        dynamo=True,
        custom_translation_table=translation_table(),
        verbose=False,
    )
    (node,) = our_nodes(program.model_proto)
    assert node.op_type == spec.name
    assert {a.name: a.f for a in node.attribute} == attributes(spec)


def test_translation_registers_no_schema_with_onnx():
    """A global schema would change what checker and shape inference do in the whole process."""
    translation_table()
    for spec in SPECS:
        assert not onnx.defs.has(spec.name, DOMAIN)


@each_spec_with("opset", [7, 8, 9, 13, 17, 20], [9])
def test_torchscript_symbolic_serves_all_opsets(spec, opset, tmp_path):
    model = Call(lambda x: call(spec, x, **attributes(spec)))
    torch.onnx.export(
        model.eval(),
        (torch.randn(2, 3),),
        str(tmp_path / "m.onnx"),
        dynamo=False,
        opset_version=opset,
        input_names=["x"],
        output_names=["y"],
        dynamic_axes={"x": {0: "N"}},
    )
    file = onnx.load(tmp_path / "m.onnx")
    (node,) = our_nodes(file)
    assert {a.name: a.f for a in node.attribute} == attributes(spec)
    dims = file.graph.output[0].type.tensor_type.shape.dim
    assert [dim.dim_param or dim.dim_value for dim in dims] == ["N", 3]


@each_spec
@pytest.mark.parametrize("value", [True, None, "1.0", torch.tensor(1.0), 1j])
def test_attribute_that_is_no_number(spec, value, check_message):
    for attribute in spec.attributes:
        with pytest.raises(ExportError) as raised:
            _constant(spec, attribute.name, value)
        assert attribute.name in check_message(raised.value)


def test_functional_is_what_the_exporters_know():
    assert {spec.torch_name for spec in ELEMENTWISE} <= set(myops.functional.__all__)
