# SPDX-License-Identifier: Apache-2.0
"""Operators in projects of their own: built from the installed wheel alone, without this tree."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from environments import PYTHON, ROOT, Venv, environment, run

pytestmark = pytest.mark.timeout(1800)

QUICK = ("-C", "cmake.define.MYOPS_CUDA=OFF", "-C", "cmake.define.MYOPS_ISAS=baseline")


@pytest.fixture(scope="module")
def equipped(tmp_path_factory: pytest.TempPathFactory) -> Venv:
    """An environment with a wheel of ours, built with torch, and all of this one's packages but
    ours."""
    folder = tmp_path_factory.mktemp("equipped")
    made = Venv(folder / "venv")
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    for entry in Path(torch.__file__).parents[1].iterdir():
        if not entry.name.startswith(("myops", "_myops", "pip")) and entry.suffix != ".pth":
            place = site / entry.name
            if not place.exists():
                place.symlink_to(entry)
    build = [
        PYTHON,
        "-m",
        "pip",
        "--python",
        made.python,
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        *QUICK,
    ]
    build += ["--wheel-dir", folder, "-C", f"build-dir={folder / 'build'}", ROOT]
    run(build, env=environment())
    (wheel,) = folder.glob("*.whl")
    made.install("--no-deps", wheel)
    shutil.rmtree(folder / "build")
    return made


def install(python: Path, project: Path) -> None:
    command = [
        PYTHON,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--no-deps",
        "--no-build-isolation",
        *QUICK,
    ]
    run([*command, project], cwd=project, env=environment())


def new(python: Path, cwd: Path, *arguments: str) -> dict[str, object]:
    text = run([python, "-m", "myops.cli", "new", *arguments, "--json"], cwd=cwd, env=environment())
    report: dict[str, object] = json.loads(text)
    return report


@pytest.fixture(scope="module")
def projects(equipped: Venv, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A project of each kind and the worked example, by namespace, all installed."""
    folder = tmp_path_factory.mktemp("projects")
    new(equipped.python, folder, "SoftStep", "--project", "acme", "--namespace", "acme")
    custom = ("--kind", "custom", "--project", "beam", "--namespace", "beam")
    new(equipped.python, folder, "FrameStats", *custom)
    shutil.copytree(ROOT / "examples" / "spectral", folder / "spectral")
    for path in folder.iterdir():
        install(equipped.python, path)
    return {path.name: path for path in folder.iterdir()}


@pytest.mark.parametrize("namespace", ["acme", "beam", "spectral"])
def test_project_passes_its_own_tests(
    equipped: Venv, projects: dict[str, Path], namespace: str
) -> None:
    text = run(
        [equipped.python, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=projects[namespace],
        env=environment(),
    )
    assert " passed" in text
    assert "skipped" not in text


def test_command_line_knows_their_operators(equipped: Venv, projects: dict[str, Path]) -> None:
    code = """
import sys
from myops import registry
registry.register_installed()
from myops.spec import SPECS, find
assert {"acme", "beam", "spectral", "myops"} == SPECS.namespaces()
assert find("soft_step").namespace == "acme"
assert "torch" not in sys.modules and "onnxruntime" not in sys.modules
"""
    equipped.check(code)


def test_names_of_installed_operators_are_refused(
    equipped: Venv, projects: dict[str, Path], tmp_path: Path
) -> None:
    code = """
import sys, acme
from myops.scaffold import new_project
from myops._errors import UsageError
for name, namespace in (("SoftStep", "other"), ("Other", "acme")):
    try:
        new_project(name, "activation", sys.argv[1], namespace)
    except UsageError as error:
        print(error)
"""
    text = equipped.check(code, tmp_path / "never").splitlines()
    assert len(text) == 2
    assert "an operator of acme" in text[0]
    assert "'acme'" in text[1]
    assert not (tmp_path / "never").exists()


def test_plugin_alone_needs_only_the_system(equipped: Venv, projects: dict[str, Path]) -> None:
    from elftools.elf.elffile import ELFFile

    site = Path(equipped.check("import acme; print(acme.__path__[0])").strip()).parent
    for namespace in projects:
        path = site / namespace / "lib" / f"lib{namespace}_ort.so"
        with path.open("rb") as file:
            elf = ELFFile(file)
            needed = {
                tag.needed for tag in elf.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")
            }
            exported = {
                symbol.name
                for symbol in elf.get_section_by_name(".dynsym").iter_symbols()
                if symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["bind"] != "STB_LOCAL"
            }
        assert all(name.startswith(("libstdc++", "libm.", "libgcc_s", "libc.")) for name in needed)
        assert exported == {"RegisterCustomOps"}


def test_whole_chain_takes_their_operators(
    equipped: Venv, projects: dict[str, Path], tmp_path: Path
) -> None:
    """A model of the standard operators of a body, to the bundle of a target."""
    code = """
import json, subprocess, sys
from pathlib import Path
import acme, beam, numpy, onnx
from myops.bench import run as bench
from myops.bench.ort_rows import chain
from myops.doctor.report import examine
from myops.onnx import expand
from myops.onnx.inject import inject
from myops.ort.profile import profile
from myops.pack import make_bundle
from myops.spec import find
from myops.verify import verify_model
from myops.verify.golden import check_golden, make_golden
from myops.verify.operators import one_node_model, sample
from myops.verify.selfcheck import check_file

folder, spec, frames = Path(sys.argv[1]), find("SoftStep"), find("FrameStats")
model = onnx.load_from_string(chain(spec, "float32", links=2))
expand(model)
assert {node.domain for node in model.graph.node} == {""}
injected, report = inject(model, target="custom")
path = folder / "injected.onnx"
onnx.save(injected, path)
assert [(n.domain, n.op_type) for n in injected.graph.node] == [("acme", "SoftStep")] * 2
assert [(f.domain, f.name) for f in injected.functions] == [("acme", "SoftStep")]
assert {entry.domain for entry in injected.opset_import} == {"", "acme"}
verified = verify_model(path, find_node=True)
assert verified.ok, verified.sentences()
assert {row.subject for row in verified.rows} >= {"SoftStep"}
assert all(line.ok for line in check_file(path).lines)
meta = make_golden(path, folder / "golden.npz")
assert [file["name"] for file in meta["other_plugins"]] == ["libacme_ort.so"]
assert check_golden(folder / "golden.npz", path).ok
nodes = profile(path, inputs={"x": numpy.zeros(1000, numpy.float32)}).nodes
assert {(node.domain, node.ours) for node in nodes} == {("acme", True)}
assert not [f for f in examine(path).findings if f.entry.severity == "error"]
rows = bench(["SoftStep"], sizes=(64,), rounds=1, warmup=1).rows
assert {row.framework for row in rows if row.name == "myops"} == {"torch", "onnxruntime"}

custom = folder / "frames.onnx"
onnx.save(one_node_model(frames, "float32", frames.defaults()), custom)
inputs = dict(zip(frames.inputs, sample(frames, "float32")))
assert verify_model(custom, inputs=inputs).ok
for number, (file, given) in enumerate(((path, None), (custom, inputs))):
    bundle = make_bundle(file, folder / f"bundle{number}", inputs=given)
    names = {Path(p["path"]).name for p in bundle.manifest["other_plugins"]}
    done = subprocess.run([sys.executable, bundle.path / "check.py", "--json"], capture_output=True)
    said = [s["text"] for s in json.loads(done.stdout)["steps"] if s["step"] == "plugin"]
    assert done.returncode == 0 and len(names) == 1 and len(said) == 2, (names, said)
"""
    equipped.check(code, tmp_path)
