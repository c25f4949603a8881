# SPDX-License-Identifier: Apache-2.0
"""Findings about a native library."""

from __future__ import annotations

from myops.doctor.catalogue.entry import entries

ENTRIES = entries(
    "library",
    (
        "library-missing",
        "error",
        "The library file does not exist.",
        "Correct the path; myops.ort.library_path() prints the installed plugin's.",
        "The loader says 'cannot open shared object file' of the file itself. Of another name, "
        "that other library is missing; of a file that exists, it is built for another processor.",
    ),
    (
        "library-not-elf",
        "error",
        "The file is not an ELF shared library.",
        "Copy the library again, in binary mode; for a Git LFS pointer, run: git lfs pull.",
    ),
    (
        "library-truncated",
        "error",
        "The file ends before the library does. Loading it may kill the process (SIGBUS).",
        "Copy the library again and compare checksums.",
    ),
    (
        "library-wrong-architecture",
        "error",
        "The library is built for another processor or word size than this machine's.",
        "Build the library on a machine of this architecture.",
        "The loader says 'cannot open shared object file: No such file or directory' although the "
        "file exists, or 'wrong ELF class'.",
    ),
    (
        "library-not-shared",
        "error",
        "The ELF file is not a shared library.",
        "Pass the .so file, not a program, an object file or a static library.",
    ),
    (
        "entry-symbol-missing",
        "error",
        "The library has no RegisterCustomOps, the entry ONNX Runtime calls.",
        'Define extern "C" OrtStatus* RegisterCustomOps(OrtSessionOptions*, const OrtApiBase*), '
        "or pass libmyops_ort.so.",
        "ONNX Runtime prints the same text where the name is there but mangled or hidden: run "
        "myops doctor on the library, or nm -D on it.",
    ),
    (
        "entry-symbol-mangled",
        "error",
        "The library exports RegisterCustomOps under a C++ name only.",
        'Declare the function extern "C".',
        "nm -D shows _Z17RegisterCustomOps... instead of RegisterCustomOps.",
    ),
    (
        "entry-symbol-hidden",
        "error",
        "The library holds RegisterCustomOps but does not export it.",
        "Give it default visibility, and list it as global in the linker's version script.",
        "nm -D does not show RegisterCustomOps, nm does, with a small t.",
    ),
    (
        "torch-library-for-plugin",
        "error",
        "A PyTorch extension is given where the ONNX Runtime plugin is wanted.",
        "Pass libmyops_ort.so; libmyops.so is for torch.ops.load_library.",
        "The loader misses libtorch.so or libc10.so; where torch was imported before, the entry "
        "symbol is missing instead.",
    ),
    (
        "plugin-for-torch-library",
        "error",
        "The ONNX Runtime plugin is given where the PyTorch extension is wanted.",
        "Pass libmyops.so; libmyops_ort.so is for SessionOptions.register_custom_ops_library.",
        "torch loads it without a word, and then has no operator: '_OpNamespace' 'myops' object "
        "has no attribute.",
    ),
    (
        "undefined-symbol",
        "error",
        "The library needs a symbol that none of the libraries it names has.",
        "Link the library that defines it; for a symbol of torch, c10 or at, build for the torch "
        "that is installed: pip install --force-reinstall --no-deps .",
        "The symbol is another than RegisterCustomOps.",
    ),
    (
        "needed-unresolved",
        "error",
        "A library that this one is linked with cannot be found.",
        "Install it, or add its folder to LD_LIBRARY_PATH or to the run path "
        "(patchelf --set-rpath).",
        "The loader names a file other than the one it was asked to load.",
    ),
    (
        "glibc-too-old",
        "error",
        "The library needs a newer GNU C library than the system's.",
        "Build on the oldest system you serve, or run on a newer one; glibc cannot be upgraded "
        "by itself.",
    ),
    (
        "libstdcxx-too-old",
        "error",
        "The library needs a newer C++ runtime (libstdc++) than the one found.",
        "Install a newer libstdc++6 (conda: libstdcxx-ng), see that it comes first in "
        "LD_LIBRARY_PATH, or build with an older GCC.",
    ),
    (
        "symbol-version-missing",
        "error",
        "The library needs a version of another library's symbols that that one does not have.",
        "Install the version of the other library it was built with, or build here.",
    ),
    (
        "cxx11-abi-mismatch",
        "error",
        "The library and torch use different C++ string ABIs (_GLIBCXX_USE_CXX11_ABI).",
        "Build for the torch that is installed: pip install --force-reinstall --no-deps .",
        "The undefined symbol's name holds __cxx11, or is the same without it.",
    ),
    (
        "openmp-in-plugin",
        "warning",
        "The plugin brings OpenMP threads of its own beside the session's pool.",
        "Use KernelContext_ParallelFor in place of OpenMP, or set OMP_NUM_THREADS=1.",
    ),
    (
        "library-kills-process",
        "error",
        "A process that loads the library dies.",
        "Copy or build the library again; run the loading process in a debugger to see where.",
    ),
    (
        "library-does-not-load",
        "error",
        "The library does not load, for a reason that the file does not show.",
        "Read the evidence; LD_DEBUG=libs shows each step of the loader.",
    ),
    (
        "gpu-architecture-missing",
        "error",
        "The library's CUDA kernels are not built for this GPU.",
        "Build with CMAKE_CUDA_ARCHITECTURES or TORCH_CUDA_ARCH_LIST including the GPU's.",
        "CUDA says 'no kernel image is available for execution on the device'.",
    ),
    (
        "gpu-architecture-jit",
        "note",
        "The library holds PTX only for this GPU, which the driver compiles at the first call.",
        "Build with the GPU's own architecture to save that time.",
    ),
)
