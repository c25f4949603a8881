# SPDX-License-Identifier: Apache-2.0
"""What is wrong with the machine and what is installed: pure functions of the facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from myops.doctor.cuda import Driver, Nvcc
from myops.doctor.findings import Finding

_LEAST = {"torch": (2, 11), "onnxruntime": (1, 16)}
_CUDA_PROVIDERS = ("CUDA", "Tensorrt", "NvTensorRTRTX")

Version = tuple[int, ...]


@dataclass(frozen=True)
class Facts:
    """What was found, by ``probe.gather`` or made up in a test.

    Attributes:
        myops, python, platform: this package, interpreter and system.
        packages: version of each package, None where it is not installed.
        ort_packages: the distributions that install the module onnxruntime, with versions.
        ort_problem: why onnxruntime does not import; empty where it does.
        providers: execution providers of the installed onnxruntime; None where unknown.
        built_for_torch: the torch release the torch library is built for; empty where there is
            none.
        torch_cuda: the CUDA release torch is built for; None for a CPU build.
        torch_cxx11_abi: _GLIBCXX_USE_CXX11_ABI of torch; None where unknown.
        torch_folder: folder of torch's libraries; None where torch is not installed.
        driver, nvidia_hardware, nvcc: see ``cuda``.
        processors: those this process may be scheduled on.
        quota: processors that the container's quota is worth; None without a quota.
        omp_threads: OMP_NUM_THREADS; None where it is not set.
        glibc: release of the C library; empty where it is another.
    """

    myops: str = ""
    python: str = ""
    platform: str = ""
    packages: dict[str, str | None] = field(default_factory=dict)
    ort_packages: dict[str, str] = field(default_factory=dict)
    ort_problem: str = ""
    providers: tuple[str, ...] | None = None
    built_for_torch: str = ""
    torch_cuda: str | None = None
    torch_cxx11_abi: bool | None = None
    torch_folder: str | None = None
    driver: Driver = field(default_factory=Driver)
    nvidia_hardware: bool = False
    nvcc: Nvcc | None = None
    processors: int = 1
    quota: float | None = None
    omp_threads: int | None = None
    glibc: str = ""


@dataclass(frozen=True)
class Wanted:
    """What the user wants to do.

    Attributes:
        providers: execution providers, in order of preference.
        threads: intra_op_num_threads of the session.
    """

    providers: Sequence[str] = ()
    threads: int | None = None

    @property
    def cuda(self) -> str:
        """The wanted provider that needs a GPU of NVIDIA's; empty if none."""
        return next((name for name in self.providers if name.startswith(_CUDA_PROVIDERS)), "")


def release(text: str | None) -> Version:
    """``2.13.0+cpu`` as ``(2, 13)``; () where there is none."""
    parts = (text or "").split("+")[0].split(".")[:2]
    return tuple(int(part) for part in parts) if all(p.isdigit() for p in parts) else ()


def check(facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    """Everything that is wrong, in the order of the catalogue."""
    yield from _packages(facts)
    yield from _torch(facts)
    yield from _onnxruntime(facts, wanted)
    yield from _cuda(facts, wanted)
    yield from _threads(facts, wanted)


def _packages(facts: Facts) -> Iterator[Finding]:
    leaves_out = {
        "torch": "the torch library was not loaded",
        "onnx": "the nodes of models are not examined",
        "onnxruntime": "nothing is loaded for trial",
    }
    for name, consequence in leaves_out.items():
        if facts.packages.get(name) is None and not (name == "onnxruntime" and facts.ort_packages):
            yield Finding("package-missing", name, f"{name} is not installed: {consequence}")


def _torch(facts: Facts) -> Iterator[Finding]:
    found = facts.packages.get("torch")
    if found is None:
        return
    if () < release(found) < _LEAST["torch"]:
        yield Finding("torch-too-old", "torch", f"torch {found}")
    elif facts.built_for_torch and release(found) != release(facts.built_for_torch):
        evidence = f"built for torch {facts.built_for_torch}, found torch {found}"
        yield Finding("torch-version-mismatch", "libmyops.so", evidence)


def _onnxruntime(facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    listed = ", ".join(f"{name} {version}" for name, version in facts.ort_packages.items())
    if len(facts.ort_packages) > 1:
        yield Finding("onnxruntime-twice", "onnxruntime", listed)
    if any(() < release(text) < _LEAST["onnxruntime"] for text in facts.ort_packages.values()):
        yield Finding("onnxruntime-too-old", "onnxruntime", listed)
    if facts.ort_problem:
        yield Finding("onnxruntime-does-not-import", "onnxruntime", facts.ort_problem)
    for name in wanted.providers if facts.providers is not None else ():
        if name not in (facts.providers or ()):
            evidence = f"{listed or 'onnxruntime'} has {', '.join(facts.providers or ())}"
            yield Finding("provider-absent", name, evidence)


def _cuda(facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    reasons = {
        "an NVIDIA GPU is on the bus": facts.nvidia_hardware,
        "onnxruntime-gpu is installed": "onnxruntime-gpu" in facts.ort_packages,
        f"{wanted.cuda} is asked for": bool(wanted.cuda),
    }
    reason = next((text for text, holds in reasons.items() if holds), None)
    if reason and facts.driver.problem:
        yield Finding("driver-missing", "libcuda.so.1", f"{reason}; {facts.driver.problem}")
    built, served = release(facts.torch_cuda), facts.driver.cuda
    if built and served and built[0] > served[0]:
        evidence = f"the driver serves CUDA {_dotted(served)}, torch is for {facts.torch_cuda}"
        yield Finding("driver-too-old", "libcuda.so.1", evidence)
    nvcc = facts.nvcc
    if nvcc is None:
        return
    if nvcc.host and nvcc.newest_gcc and nvcc.host[0] > nvcc.newest_gcc:
        evidence = f"g++ {_dotted(nvcc.host)}, nvcc {_dotted(nvcc.release)} takes up to "
        yield Finding("nvcc-host-compiler", "nvcc", f"{evidence}{nvcc.newest_gcc}")
    if built and nvcc.release[0] != built[0]:
        evidence = f"nvcc {_dotted(nvcc.release)}, torch for CUDA {facts.torch_cuda}"
        yield Finding("nvcc-torch-cuda", "nvcc", evidence)


def _threads(facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    usable = facts.processors
    has = f"the process may use {facts.processors} processors"
    if facts.quota is not None and facts.quota < facts.processors:
        usable = max(1, round(facts.quota))
        has = f"the container's quota is worth {facts.quota:g} of {facts.processors} processors"
    pool = wanted.threads or facts.processors
    named = "intra_op_num_threads" if wanted.threads else "ONNX Runtime's default pool"
    openmp = facts.omp_threads if facts.omp_threads and facts.omp_threads > 1 else 0
    asked = []
    if wanted.threads or (facts.ort_packages and pool > usable):
        asked.append((pool, f"{named} is {pool}"))
    if openmp:
        asked.append((openmp, f"OMP_NUM_THREADS is {openmp}"))
    if sum(count for count, _ in asked) > usable:
        said = " and ".join(text for _, text in asked)
        yield Finding("threads-oversubscribed", "threads", f"{said}; {has}")


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))
