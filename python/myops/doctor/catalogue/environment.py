# SPDX-License-Identifier: Apache-2.0
"""Findings about the machine and what is installed."""

from __future__ import annotations

from myops.doctor.catalogue.entry import REINSTALL, entries

ENTRIES = entries(
    "environment",
    (
        "package-missing",
        "note",
        "A package is not installed, so that part was not examined.",
        "Install it if you need that part.",
    ),
    (
        "library-not-built",
        "note",
        "This build of myops does not hold one of its libraries.",
        "For the torch library, install torch first, then: " + REINSTALL,
    ),
    (
        "torch-version-mismatch",
        "warning",
        "The torch library is built for another release than the torch that is installed; torch "
        "promises no stable C++ ABI between releases.",
        REINSTALL,
    ),
    (
        "torch-too-old",
        "error",
        "The installed torch is older than 2.11.",
        "Run: pip install 'torch>=2.11'",
    ),
    (
        "onnxruntime-too-old",
        "error",
        "The installed onnxruntime is older than 1.16.",
        "Run: pip install 'onnxruntime>=1.16'",
        "ONNX Runtime says that the requested API version is not available.",
    ),
    (
        "onnxruntime-twice",
        "error",
        "Two packages of ONNX Runtime are installed over each other; which files won is chance.",
        "Run pip uninstall on all of them, then install the one you want.",
    ),
    (
        "onnxruntime-does-not-import",
        "error",
        "onnxruntime is installed but does not import.",
        "Run: pip install --force-reinstall onnxruntime",
    ),
    (
        "provider-absent",
        "error",
        "The installed onnxruntime does not have the execution provider that is asked for.",
        "Install the package that has it (onnxruntime-gpu for CUDA and TensorRT), alone.",
        "ONNX Runtime itself only warns, and runs on the CPU.",
    ),
    (
        "driver-missing",
        "error",
        "A GPU is wanted or present, but there is no NVIDIA driver (libcuda.so.1).",
        "Install the NVIDIA driver; start a container with --gpus all.",
    ),
    (
        "driver-too-old",
        "error",
        "The NVIDIA driver serves an older CUDA release than torch is built for.",
        "Update the driver, or install a torch for the driver's CUDA release.",
    ),
    (
        "nvcc-host-compiler",
        "warning",
        "The C++ compiler is newer than nvcc supports.",
        "Set CMAKE_CUDA_HOST_COMPILER (nvcc: -ccbin) to a supported one.",
    ),
    (
        "nvcc-torch-cuda",
        "note",
        "nvcc and torch are of different CUDA major releases. myops links its CUDA runtime "
        "statically and may be built so; torch.utils.cpp_extension refuses.",
        "For other extensions, install the CUDA toolkit of torch's release.",
    ),
    (
        "threads-oversubscribed",
        "warning",
        "More threads are asked for than there are processors to run them.",
        "Set OMP_NUM_THREADS and intra_op_num_threads so that their sum is at most the number of "
        "processors that the process may use.",
    ),
)
