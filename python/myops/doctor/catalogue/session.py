# SPDX-License-Identifier: Apache-2.0
"""Findings about a running process, which only its error texts show."""

from __future__ import annotations

from myops.doctor.catalogue.entry import entries

ENTRIES = entries(
    "session",
    (
        "plugin-not-registered",
        "error",
        "The plugin is not registered with the session's options.",
        "Call options.register_custom_ops_library(myops.ort.library_path()), or open the model "
        "with myops.ort.session; export with mode='portable' to do without.",
        "The domain in the text is exactly 'myops' and the name one that myops info lists: then "
        "the model is right and the session is not.",
    ),
    (
        "plugin-registered-twice",
        "error",
        "The plugin is registered twice with the same session options.",
        "Register it once, and not beside myops.ort.session, which does it.",
    ),
    (
        "torch-library-not-loaded",
        "error",
        "torch does not have the operator: the torch library is not loaded, or an older one is.",
        "Run import myops.functional, or torch.ops.load_library with libmyops.so.",
    ),
    (
        "torch-library-twice",
        "error",
        "Another copy of the torch library is already loaded in this process.",
        "Load one of the two files that the text names.",
    ),
    (
        "feed-mismatch",
        "error",
        "An array given to session.run has another name, dtype, rank or size than the model's "
        "input.",
        "Compare with session.get_inputs(); numpy's default dtype is float64.",
    ),
)
