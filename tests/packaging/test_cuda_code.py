# SPDX-License-Identifier: Apache-2.0
"""What nvcc makes of the CUDA sources, with the build's own flags. Where there is no nvcc, no CUDA
code is built and there is nothing to read."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections import Counter
from pathlib import Path

import pytest
from environments import ROOT, environment, run
from myops.spec import ELEMENTWISE

CUDA = ROOT / "native/kernels/cuda"
pytestmark = pytest.mark.skipif(
    shutil.which("nvcc") is None, reason="no nvcc, so this machine builds without CUDA"
)


def configure(build: Path, *options: str, **variables: str) -> str:
    surroundings = environment(**variables)
    return run(
        [
            *("cmake", "-S", ROOT, "-B", build, "-G", "Ninja", "-DMYOPS_CUDA=ON", *options),
            *("-DMYOPS_BUILD_TORCH=OFF", "-DMYOPS_BUILD_ORT=OFF"),
        ],
        env=surroundings,
    )


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """By source file: its PTX, and what ptxas says about registers."""
    build = tmp_path_factory.mktemp("cuda")
    configure(build, "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", "-DCMAKE_CUDA_ARCHITECTURES=80-real")
    result = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = Path(entry["file"])
        if source.suffix != ".cu":
            continue
        words = shlex.split(entry["command"])
        words[words.index("-c")] = "-ptx"
        words[words.index("-o") + 1] = str(build / "code.ptx")
        words = [w for w in words if "generate-code" not in w] + ["-arch=compute_80"]
        run(words, cwd=Path(entry["directory"]))
        said = run(
            [
                *(Path(words[0]).with_name("ptxas"), "-v", "-arch=sm_80"),
                *(build / "code.ptx", "-o", build / "code.cubin"),
            ],
            errors_too=True,
        )
        result[source.name] = (build / "code.ptx").read_text(), said
    return result


def kernels(ptx: str) -> dict[str, str]:
    """The code of each kernel by its mangled name."""
    return {
        match[1]: match[2] for match in re.finditer(r"\.entry (\w+)\((.*?)\n}\n", ptx, re.DOTALL)
    }


def test_all_sources_are_compiled(compiled: dict[str, tuple[str, str]]) -> None:
    assert set(compiled) == {path.name for path in CUDA.glob("*.cu")}


def test_no_kernel_has_a_stack_frame_or_spills(compiled: dict[str, tuple[str, str]]) -> None:
    for name, (ptx, said) in compiled.items():
        frames = re.findall(r"(\d+) bytes stack frame, (\d+) .*stores, (\d+) .*loads", said)
        assert len(frames) == len(kernels(ptx)) > 0, name
        assert set(frames) == {("0", "0", "0")}, name


def test_registers_leave_room_for_a_full_multiprocessor(
    compiled: dict[str, tuple[str, str]],
) -> None:
    """65,536 registers for 1,024 threads, half of what fits."""
    for name, (_, said) in compiled.items():
        assert max(int(n) for n in re.findall(r"Used (\d+) registers", said)) <= 64, name


def test_every_operator_and_dtype_has_a_vector_kernel(
    compiled: dict[str, tuple[str, str]],
) -> None:
    for source in ("forward.cu", "backward.cu", "double_backward.cu"):
        found: Counter[str] = Counter()
        for name, code in kernels(compiled[source][0]).items():
            match = re.search(
                r"elementwise.*neutral\d+(\w+?)E?LNS_4Pass.*?Li(\d+)ELi(\d+)ELi(\d)E", name
            )
            if match is None or match[2] == "1":
                continue
            operator, width, inputs, outputs = match[1], *map(int, match.groups()[1:])
            pieces = {2: "v2", 4: "v4", 8: "v4"}[width]  # eight halves are four 32-bit words
            assert code.count(f"ld.global.{pieces}.") >= inputs, name
            assert code.count(f"st.global.{pieces}.") >= outputs, name
            found[operator] += 1
        assert found == {spec.name: 4 for spec in ELEMENTWISE}, source


def test_products_and_sums_are_fused_only_where_written(
    compiled: dict[str, tuple[str, str]],
) -> None:
    """With --fmad=false the compiler leaves an addition of a product as two roundings."""
    ptx = compiled["forward.cu"][0]
    assert "fma.rn.f32" in ptx
    assert not re.search(r"mad\.(rn\.)?f(32|64)|\.ftz", ptx)


@pytest.mark.parametrize(
    ("variables", "architectures"),
    [
        ({"TORCH_CUDA_ARCH_LIST": "8.0;8.6;8.9+PTX"}, "80-real 86-real 89-real 89-virtual"),
        ({"TORCH_CUDA_ARCH_LIST": "9.0a 10.0"}, "90a-real 100-real"),
        ({"CUDAARCHS": "86", "TORCH_CUDA_ARCH_LIST": "8.0"}, "86"),
    ],
)
def test_architectures_come_from_the_environment(
    tmp_path: Path, variables: dict[str, str], architectures: str
) -> None:
    printed = configure(tmp_path, **variables)
    assert f"myops: CUDA architectures {architectures}\n" in printed
    assert re.search(
        r"myops: CUDA with nvcc [\d.]+, host compiler \w+ [\d.]+ \(up to GNU \d+\)", printed
    )


def test_cmake_s_own_variable_comes_first(tmp_path: Path) -> None:
    printed = configure(tmp_path, "-DCMAKE_CUDA_ARCHITECTURES=90", CUDAARCHS="86")
    assert "myops: CUDA architectures 90\n" in printed


def test_all_major_architectures_by_default(tmp_path: Path) -> None:
    (line,) = re.findall(r"CUDA architectures (.*)\n", configure(tmp_path))
    *real, newest = line.split()
    assert {"80-real", "90-real"} <= set(real)
    assert newest == real[-1].replace("real", "virtual")


def test_a_list_of_another_form_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"Received \"sm_80\""):
        configure(tmp_path, TORCH_CUDA_ARCH_LIST="8.0;sm_80")
