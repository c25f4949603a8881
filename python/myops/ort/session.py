# SPDX-License-Identifier: Apache-2.0
"""A session with the plugin registered, and plain words where ONNX Runtime has few."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from myops import _build_info, registry
from myops._errors import LibraryError, MissingPackageError, ModelError, UsageError
from myops._library import ort_library
from myops.spec import DOMAIN, SPECS

if TYPE_CHECKING:
    import onnxruntime

WHERE = "myops.ort"

OPTIMIZATION_LEVELS = {
    "disable": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}


def library_path() -> str:
    """Path of ``libmyops_ort.so``, for ``SessionOptions.register_custom_ops_library``.

    The library needs neither torch nor Python and may be copied anywhere.

    Raises:
        LibraryError: this build does not have it.
    """
    return str(ort_library())


def _import_onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingPackageError(
            WHERE,
            "onnxruntime should be installed",
            f"{type(error).__name__}: {error}",
            "Run: pip install 'myops[ort]'",
        ) from error
    return onnxruntime


def _options(
    ort: Any,
    intra_op_num_threads: int | None,
    graph_optimization_level: str | None,
    profile: str | os.PathLike[str] | None,
) -> Any:
    options = ort.SessionOptions()
    if intra_op_num_threads is not None:
        options.intra_op_num_threads = intra_op_num_threads
    if graph_optimization_level is not None:
        level = OPTIMIZATION_LEVELS.get(graph_optimization_level)
        if level is None:
            raise UsageError(
                WHERE,
                f"graph_optimization_level should be one of {', '.join(OPTIMIZATION_LEVELS)}",
                repr(graph_optimization_level),
                "Choose one",
            )
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = os.fspath(profile)
    return options


def register(options: Any, plugin: str | os.PathLike[str] | None = None) -> None:
    """Registers the plugin with session options.

    Raises:
        LibraryError: the file is missing or ONNX Runtime cannot use it.
    """
    path = Path(plugin) if plugin is not None else ort_library()
    if not path.is_file():
        raise LibraryError(
            WHERE,
            "the plugin should be a file",
            f"{path}, which does not exist",
            "Use myops.ort.library_path(), or copy libmyops_ort.so there",
        )
    try:
        # A bare name would be looked up in the system's folders, not in this one.
        options.register_custom_ops_library(str(path.absolute()))
    except Exception as error:
        raise LibraryError(
            WHERE,
            "ONNX Runtime should accept the plugin",
            f"{path}: {' '.join(str(error).split())}",
            "Pass libmyops_ort.so (not the torch library libmyops.so), built for this machine; "
            f"myops doctor {path} says what is wrong with a file",
        ) from error


def _names(providers: Sequence[Any]) -> list[str]:
    return [provider if isinstance(provider, str) else provider[0] for provider in providers]


def _check_providers(ort: Any, providers: Sequence[Any] | None) -> list[Any]:
    available = ort.get_available_providers()
    if providers is None:
        return ["CPUExecutionProvider"]
    for name in _names(providers):
        if name not in available:
            raise UsageError(
                WHERE,
                f"providers should be among those of the installed onnxruntime: "
                f"{', '.join(available)}",
                name,
                "Install the onnxruntime package that has it, or leave it out",
            )
    return list(providers)


def _check_started(session: Any, providers: Sequence[Any]) -> None:
    """ONNX Runtime only warns where a provider that it has cannot start, and goes on without it."""
    started = session.get_providers()
    for name in _names(providers):
        if name not in started:
            raise LibraryError(
                WHERE,
                f"{name} should start",
                f"a session with {', '.join(started)} only",
                "Look at ONNX Runtime's warning above: driver, CUDA and cuDNN versions",
            )


def session(
    model: str | os.PathLike[str] | bytes,
    providers: Sequence[Any] | None = None,
    intra_op_num_threads: int | None = None,
    graph_optimization_level: str | None = None,
    profile: str | os.PathLike[str] | None = None,
    plugin: str | os.PathLike[str] | bool | None = None,
) -> onnxruntime.InferenceSession:
    """An ``onnxruntime.InferenceSession`` with the plugin registered.

    Args:
        model: path of an .onnx file, or its bytes.
        providers: execution providers in order of preference; the CPU's if None. One that the
            installed onnxruntime does not have is an error, not a silent fallback.
        intra_op_num_threads: threads of the session's pool, which the operators use too; ONNX
            Runtime's default if None.
        graph_optimization_level: "disable", "basic", "extended" or "all"; ONNX Runtime's default
            ("all") if None.
        profile: prefix of the profile file to write; none if None.
        plugin: another plugin file than the installed one; False registers none.

    Returns:
        A normal session.

    Raises:
        ModelError: a node of the ``myops`` domain, or of a registered package's, is not what its
            plugin offers (name, case of the domain, version, dtype, attribute), or ONNX Runtime
            refuses the model. The check of the nodes needs the ``onnx`` package and is left out
            where that is not installed.
        LibraryError: the plugin is missing or not usable, it has no CUDA kernels for a CUDA
            session, or a provider does not start.
        UsageError: an argument is not usable.
    """
    ort = _import_onnxruntime()
    chosen = _check_providers(ort, providers)
    options = _options(ort, intra_op_num_threads, graph_optimization_level, profile)
    if plugin is not False:
        register(options, None if plugin is True else plugin)
        for other in registry.plugins():
            register(options, other)
    if not isinstance(model, bytes) and not Path(model).is_file():
        raise ModelError(WHERE, "the model file should exist", os.fspath(model), "Check the path")
    _check_nodes(model, with_plugin=plugin is not False)
    if plugin in (None, True) and "CUDAExecutionProvider" in _names(chosen):
        _check_cuda_kernels(model)
    try:
        result = ort.InferenceSession(
            model if isinstance(model, bytes) else os.fspath(model), options, providers=chosen
        )
    except Exception as error:
        text = " ".join(str(error).split())
        remedy = "Check the model with onnx.checker, and its opset against the runtime's"
        if plugin is False and any(f"{domain}:" in text for domain in SPECS.namespaces()):
            remedy = "Leave out plugin=False, or export the model with mode='portable'"
        raise ModelError(
            WHERE,
            "ONNX Runtime should load the model",
            f"onnxruntime {ort.__version__}: {text}",
            remedy,
        ) from error
    _check_started(result, chosen)
    return result


def _check_nodes(model: str | os.PathLike[str] | bytes, with_plugin: bool) -> None:
    try:
        import onnx  # noqa: F401
    except ImportError:
        return
    from myops.ort import check

    check.check_model(model, with_plugin)


def _check_cuda_kernels(model: str | os.PathLike[str] | bytes) -> None:
    """Without CUDA kernels our nodes would run on the CPU, between copies from the GPU and back."""
    if not _build_info.cuda_message():
        return
    try:
        from myops.ort import check
    except ImportError:  # the nodes cannot be read without onnx
        return
    if check.has_nodes(model, DOMAIN):
        raise LibraryError(
            WHERE,
            "a CUDA session needs a plugin with CUDA kernels",
            "myops built without CUDA",
            "Rebuild it where nvcc is found (pip install -C cmake.define.MYOPS_CUDA=ON .), or run "
            "a portable model with plugin=False",
        )
