# SPDX-License-Identifier: Apache-2.0
"""How the two torch exporters write our operators as ONNX nodes.

``install`` makes a plain ``torch.onnx.export(model, args)`` emit ``myops`` nodes. Importing
onnxscript takes over half a second, so its side is done when, and if, somebody else imports it.
"""

from __future__ import annotations

import functools
import linecache
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from myops import registry
from myops._after_import import call_after_import
from myops._errors import ExportError
from myops.spec import DOMAIN_VERSION, ELEMENTWISE, NORMS, SPECS, OpSpec

_REGISTRY_MODULE = "onnxscript.function_libs.torch_lib.registration"

# The TorchScript exporter uses a symbolic registered at 9 for all later opsets, and for 7 and 8.
_OLDEST_OPSET = 9


def _constant(spec: OpSpec, name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ExportError(
            spec.torch_name,
            f"{name} should be a Python number when the model is exported",
            f"a value computed in the model ({type(value).__name__})",
            f"Compute {name} before the export, or compose the function from torch operators",
        )
    return float(value)


def _spelt_out(spec: OpSpec, target: Callable[..., Any], *before: str) -> Callable[..., Any]:
    """``target`` behind a function with one named parameter per input and attribute.

    Both exporters read parameters from the function, onnxscript even from its source text, so
    ``*args`` will not do.
    """
    defaults = [f"{a.name}: float = {a.default!r}" for a in spec.attributes]
    names = [*before, *spec.inputs, *(a.name for a in spec.attributes)]
    source = (
        f"def {spec.torch_name}({', '.join([*before, *spec.inputs, *defaults])}):\n"
        f"    return target({', '.join(names)})\n"
    )
    file = f"<myops.onnx.translate {spec.name} {target.__name__}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"target": target, "__name__": __name__}
    exec(compile(source, file, "exec"), namespace)
    function: Callable[..., Any] = namespace[spec.torch_name]
    return function


def _translation(spec: OpSpec) -> Callable[..., Any]:
    """The function the dynamo exporter calls for one operator."""
    import onnx
    import onnxscript

    # A schema object of its own: registering it with onnx would change global state.
    types = ["tensor(float)", "tensor(double)", "tensor(float16)", "tensor(bfloat16)"]
    parameter = onnx.defs.OpSchema.FormalParameter
    schema = onnx.defs.OpSchema(
        spec.name,
        spec.namespace,
        DOMAIN_VERSION,
        inputs=[parameter(name, "T") for name in spec.inputs],
        outputs=[parameter(name, "T") for name in spec.outputs],
        type_constraints=[("T", types, "floating point")],
        attributes=[
            onnx.defs.OpSchema.Attribute(a.name, onnx.defs.OpSchema.AttrType.FLOAT, a.doc)
            for a in spec.attributes
        ],
    )
    op = onnxscript.values.Op(
        onnxscript.values.Opset(spec.namespace, DOMAIN_VERSION), spec.name, schema
    )

    def translate(*args: Any) -> Any:
        inputs, values = args[: len(spec.inputs)], args[len(spec.inputs) :]
        # Always written: the onnx reference evaluator ignores a function's attribute defaults.
        attributes = {
            a.name: _constant(spec, a.name, value)
            for a, value in zip(spec.attributes, values, strict=True)
        }
        return op(*inputs, **attributes)

    return _spelt_out(spec, translate)


def translation_table() -> dict[Any, Callable[..., Any]]:
    """For ``torch.onnx.export(..., custom_translation_table=translation_table())``.

    Returns:
        ``{torch.ops.myops.<op>.default: function}`` for every operator.

    Needed only where the automatic registration does not work: myops registers the same functions
    when ``myops.functional`` or ``myops.nn`` is imported.
    """
    import torch

    import myops.functional  # noqa: F401  (the operators must exist)

    return {
        getattr(getattr(torch.ops, spec.namespace), spec.torch_name).default: _translation(spec)
        for spec in SPECS
        if registry.in_torch(spec)
    }


def _register_torchscript(spec: OpSpec) -> None:
    import torch
    from torch.onnx import symbolic_helper

    def symbolic(g: Any, *args: Any) -> Any:
        inputs, values = args[: len(spec.inputs)], args[len(spec.inputs) :]
        attributes = {
            f"{a.name}_f": value for a, value in zip(spec.attributes, values, strict=True)
        }
        count = len(spec.outputs)
        results = g.op(f"{spec.namespace}::{spec.name}", *inputs, **attributes, outputs=count)
        for result in results if count > 1 else [results]:
            # Without a type the exporter gives every dim after the node a new name.
            if spec.kind != "custom":
                result.setType(inputs[0].type())
            else:
                scalar = torch.onnx.JitScalarType.from_value(inputs[0])  # type: ignore[attr-defined]
                result.setType(torch._C.TensorType.get().with_dtype(scalar.dtype()))
        return results

    parse = symbolic_helper.parse_args(*"v" * len(spec.inputs), *"f" * len(spec.attributes))
    torch.onnx.register_custom_op_symbolic(  # type: ignore[attr-defined]
        f"{spec.namespace}::{spec.torch_name}",
        parse(_spelt_out(spec, symbolic, "g")),
        opset_version=_OLDEST_OPSET,
    )


def _register_torchlib(specs: Sequence[OpSpec], registration: ModuleType) -> None:
    for spec in specs:
        if f"{spec.namespace}::{spec.torch_name}" not in registration.default_registry:
            decorate = registration.torch_op(
                f"{spec.namespace}::{spec.torch_name}", trace_only=True
            )
            decorate(_translation(spec))


def install_operators(specs: Sequence[OpSpec]) -> None:
    """Makes both exporters of ``torch.onnx.export`` know the operators."""
    for spec in specs:
        _register_torchscript(spec)
    call_after_import(_REGISTRY_MODULE, functools.partial(_register_torchlib, specs))


@functools.cache
def install() -> None:
    """Makes both exporters know our operators, once per process."""
    install_operators((*ELEMENTWISE, *NORMS))
