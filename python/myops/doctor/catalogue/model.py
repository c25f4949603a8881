# SPDX-License-Identifier: Apache-2.0
"""Findings about a model."""

from __future__ import annotations

from myops.doctor.catalogue.entry import entries

ENTRIES = entries(
    "model",
    (
        "model-missing",
        "error",
        "The model file does not exist.",
        "Correct the path.",
    ),
    (
        "model-damaged",
        "error",
        "The file is not a whole ONNX model.",
        "Export or copy it again, and compare checksums; for a Git LFS pointer, run: git lfs pull.",
    ),
    (
        "ir-too-new",
        "error",
        "The model's IR version is newer than the installed onnxruntime reads.",
        "Update onnxruntime, or export with the older onnx (model.ir_version).",
    ),
    (
        "opset-too-new",
        "error",
        "The model's opset is newer than the installed onnxruntime supports.",
        "Update onnxruntime, or export with a lower opset.",
    ),
    (
        "operator-unknown",
        "error",
        "The model uses a standard operator that its opset does not have.",
        "Export again with the opset that has it; the import must not be edited by hand.",
    ),
    (
        "kernel-missing",
        "error",
        "ONNX Runtime knows the operator but has no kernel for its version and dtype.",
        "Update onnxruntime, change the dtype, or put a myops operator in its place.",
    ),
    (
        "domain-not-imported",
        "error",
        "The model has myops nodes but does not import the domain.",
        "Add onnx.helper.make_opsetid('myops', 1) to opset_import.",
        "ONNX Runtime says 'No opset import for domain', or, in a process that has had a session "
        "with the plugin, the same as where the plugin is not registered. With the plugin it loads "
        "the file: run myops doctor on the model.",
    ),
    (
        "domain-imported-twice",
        "error",
        "The model imports the domain more than once; readers differ in which they take.",
        "Leave one opset_import of 'myops', at version 1.",
    ),
    (
        "domain-case",
        "error",
        "The domain of a node is spelt otherwise than 'myops'.",
        "Write the nodes and the import with domain 'myops', in lower case.",
        "The domain in ONNX Runtime's text is not exactly 'myops'.",
    ),
    (
        "domain-version",
        "error",
        "The model imports the domain at another version than the plugin's, 1.",
        "Import 'myops' at version 1, or use the plugin of the release that wrote the model.",
    ),
    (
        "node-unknown",
        "error",
        "The plugin has no operator of this name.",
        "Correct the name (capitals count), or use a newer plugin.",
        "The name in ONNX Runtime's text is none that myops info lists.",
    ),
    (
        "node-input-count",
        "error",
        "A node has another number of inputs than the operator.",
        "Correct the node's inputs.",
    ),
    (
        "node-output-count",
        "error",
        "A node has another number of outputs than the operator.",
        "Correct the node's outputs.",
    ),
    (
        "node-input-empty",
        "error",
        "A node has an explicit empty input; ONNX Runtime 1.17 to 1.23 crash on one.",
        "Leave the trailing input out instead of writing ''; the operators' inputs are all "
        "required.",
    ),
    (
        "node-dtype",
        "error",
        "A node's tensor has a dtype that the operators do not take.",
        "Cast the input to float32, float64, float16 or bfloat16.",
    ),
    (
        "node-attribute-unknown",
        "error",
        "A node has an attribute that the operator does not; ONNX Runtime ignores it silently.",
        "Correct the attribute's name.",
    ),
    (
        "node-attribute-type",
        "error",
        "A node's attribute is not a float.",
        "Write it as a float attribute.",
    ),
    (
        "node-on-other-provider",
        "warning",
        "A node would run on another execution provider than the one asked for, with copies "
        "around it.",
        "Use a plugin that has the operators for that provider, or leave the provider out.",
    ),
    (
        "symbolic-dims-lost",
        "warning",
        "An output's dim has lost the name that the input's has.",
        "Export again with myops.onnx.export(..., dynamic=...), or set the type in the symbolic.",
    ),
    (
        "external-data-missing",
        "error",
        "A file with the model's weights is missing.",
        "Copy it to where the model expects it, beside the .onnx file; it may not be renamed.",
    ),
    (
        "external-data-short",
        "error",
        "A file with the model's weights is shorter than the model says.",
        "Copy it again, from the same export as the .onnx file.",
    ),
    (
        "external-data-outside",
        "error",
        "The model names weights outside its own folder, which ONNX Runtime refuses.",
        "Load it with onnx.load and save it again with save_as_external_data=True.",
    ),
    (
        "model-does-not-load",
        "error",
        "ONNX Runtime refuses the model, for a reason that is not in this catalogue.",
        "Read the evidence; run onnx.checker.check_model on the file.",
    ),
)
