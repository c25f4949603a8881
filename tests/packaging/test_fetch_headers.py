# SPDX-License-Identifier: Apache-2.0
"""The header lookup: its order, its checks and its messages, with no network."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import io
import sys
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

THIRD_PARTY = Path(__file__).resolve().parents[2] / "third_party"
NAMES = ("onnxruntime", "doctest")


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, THIRD_PARTY / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and the sibling import look the module up here
    spec.loader.exec_module(module)
    return module


apt_package: Any = load("apt_package")
fetch_headers: Any = load("fetch_headers")


def header_text(package: Any, version: tuple[int, ...] | None = None) -> str:
    numbers = version or package.lowest
    return "".join(f"#define {d} {n}\n" for d, n in zip(package.defines, numbers, strict=True))


def put_header(package: Any, include: Path, version: tuple[int, ...] | None = None) -> Path:
    header: Path = include / package.header
    header.parent.mkdir(parents=True, exist_ok=True)
    header.write_text(header_text(package, version))
    return include


def fake_source(package: Any, calls: list[str]) -> Callable[[Path], Path]:
    def unpack(work: Path) -> Path:
        calls.append(package.name)
        put_header(package, work / "tree" / "usr" / "include" / package.subfolders[0])
        (work / "tree" / "usr" / "include" / "neighbour.h").write_text("")
        return work / "tree"

    return unpack


@pytest.fixture(params=NAMES)
def package(request: pytest.FixtureRequest) -> Any:
    return fetch_headers.PACKAGES[request.param]


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No headers on the system, none named by the environment, nothing to fetch from."""
    for name in ("ONNXRUNTIME_ROOT", "DOCTEST_ROOT", "CMAKE_PREFIX_PATH", "MYOPS_HEADER_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    monkeypatch.setattr(fetch_headers, "SYSTEM_FOLDERS", (tmp_path / "system",))
    monkeypatch.setattr(fetch_headers, "attempts", lambda _: iter(()))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One working source; the list grows by a name each time it is used."""
    used: list[str] = []
    monkeypatch.setattr(
        fetch_headers, "attempts", lambda package: iter([("fake", fake_source(package, used))])
    )
    return used


def run(package: Any, cache: Path, *more: str) -> int:
    return int(fetch_headers.main([package.name, "--cache", str(cache), *more]))


def check_message(text: str) -> None:
    assert text.startswith("[fetch_headers] ")
    assert " should " in text
    assert "Received " in text


@pytest.mark.parametrize("below", ["", "include", "usr/include"])
def test_user_root(package: Any, cache: Path, tmp_path: Path, capsys: Any, below: str) -> None:
    include = put_header(package, tmp_path / "mine" / below)
    assert run(package, cache, "--root", str(tmp_path / "mine")) == 0
    assert capsys.readouterr().out == f"{include}\n"
    assert not cache.exists()


def test_user_root_from_environment(
    package: Any, cache: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_header(package, tmp_path / "system")
    include = put_header(package, tmp_path / "mine" / "include")
    monkeypatch.setenv(package.variable, str(tmp_path / "mine"))
    assert run(package, cache) == 0
    assert capsys.readouterr().out == f"{include}\n"


def test_wrong_user_root_is_an_error_even_when_another_copy_exists(
    package: Any, cache: Path, tmp_path: Path, capsys: Any, calls: list[str]
) -> None:
    put_header(package, tmp_path / "system")
    assert run(package, cache, "--root", str(tmp_path / "empty")) == 1
    out, err = capsys.readouterr()
    check_message(err)
    assert out == ""
    assert calls == []
    assert package.variable in err
    assert str(tmp_path / "empty") in err
    assert package.wanted in err


def test_user_root_of_a_wrong_version(
    package: Any, cache: Path, tmp_path: Path, capsys: Any
) -> None:
    old = (*package.lowest[:-1], package.lowest[-1] - 1)
    put_header(package, tmp_path / "include", old)
    assert run(package, cache, "--root", str(tmp_path)) == 1
    assert f"{package.defines[-1]} {old[-1]}" in capsys.readouterr().err


def test_header_without_a_version_is_refused(
    package: Any, cache: Path, tmp_path: Path, capsys: Any
) -> None:
    (put_header(package, tmp_path) / package.header).write_text("int x;\n")
    assert run(package, cache, "--root", str(tmp_path)) == 1
    assert f"without the define {package.defines[0]}" in capsys.readouterr().err


def test_prefix_path_comes_before_the_system(
    package: Any, cache: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_header(package, tmp_path / "system")
    include = put_header(package, tmp_path / "two" / "include" / package.subfolders[-1])
    monkeypatch.setenv("CMAKE_PREFIX_PATH", f"{tmp_path / 'one'}:{tmp_path / 'two'}")
    assert run(package, cache) == 0
    assert capsys.readouterr().out == f"{include}\n"


@pytest.mark.parametrize("subfolder", ["onnxruntime", "onnxruntime/core/session"])
def test_subfolders_of_a_system_folder(
    cache: Path, tmp_path: Path, capsys: Any, subfolder: str
) -> None:
    package = fetch_headers.PACKAGES["onnxruntime"]
    include = put_header(package, tmp_path / "system" / subfolder)
    assert run(package, cache) == 0
    assert capsys.readouterr().out == f"{include}\n"


def test_old_system_headers_are_passed_over(
    package: Any, cache: Path, tmp_path: Path, capsys: Any, calls: list[str]
) -> None:
    put_header(package, tmp_path / "system", tuple(0 for _ in package.lowest))
    assert run(package, cache) == 0
    out, err = capsys.readouterr()
    assert out == f"{cache / package.name / 'include'}\n"
    assert "passed over" in err
    assert calls == [package.name]


def test_second_run_uses_the_cache(
    package: Any, cache: Path, capsys: Any, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(package, cache) == 0
    first = capsys.readouterr().out
    include = Path(first.strip())
    assert calls == [package.name]
    assert fetch_headers.flaw(package, include) == ""
    assert not (include / "neighbour.h").exists()
    assert not list(cache.glob(".fetch-*"))

    monkeypatch.setattr(fetch_headers, "attempts", lambda _: pytest.fail("went to fetch"))
    assert run(package, cache) == 0
    assert capsys.readouterr().out == first


@pytest.mark.parametrize("damage", ["header", "extra", "manifest", "gone"])
def test_damaged_cache_is_fetched_again(
    package: Any, cache: Path, capsys: Any, calls: list[str], damage: str
) -> None:
    assert run(package, cache) == 0
    home = cache / package.name
    header = home / "include" / package.header
    if damage == "header":
        header.write_text(header_text(package) + "// cut of")
    elif damage == "extra":
        (home / "include" / "more.h").write_text("")
    elif damage == "manifest":
        (home / "manifest.json").write_text("{")
    else:
        header.unlink()
    capsys.readouterr()
    assert run(package, cache) == 0
    out, err = capsys.readouterr()
    assert out == f"{home / 'include'}\n"
    assert "damaged" in err
    assert calls == [package.name] * 2
    assert header.read_text() == header_text(package)


def test_nothing_reachable(
    package: Any, cache: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(_: Path) -> Path:
        raise OSError("no route to the fake host")

    monkeypatch.setattr(fetch_headers, "attempts", lambda _: iter([("fake", unreachable)]))
    assert run(package, cache) == 1
    out, err = capsys.readouterr()
    check_message(err.splitlines()[-1])
    assert out == ""
    assert "no route to the fake host" in err
    assert f"Set {package.variable}" in err
    assert not (cache / package.name).exists()
    assert not list(cache.glob(".fetch-*"))


def test_a_source_of_a_wrong_version_is_not_stored(
    package: Any, cache: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def old(work: Path) -> Path:
        put_header(package, work / "include", tuple(0 for _ in package.lowest))
        return work

    monkeypatch.setattr(fetch_headers, "attempts", lambda _: iter([("fake", old)]))
    assert run(package, cache) == 1
    assert f"{package.defines[0]} 0" in capsys.readouterr().err
    assert not (cache / package.name).exists()


def test_cache_that_cannot_be_written(package: Any, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "file").write_text("")
    assert run(package, tmp_path / "file" / "cache") == 1
    err = capsys.readouterr().err
    check_message(err)
    assert "MYOPS_HEADER_CACHE" in err
    assert package.variable in err


def test_two_runs_at_once_fetch_once(
    package: Any, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[str] = []
    unpack = fake_source(package, used)

    def slow(work: Path) -> Path:
        time.sleep(0.2)
        return unpack(work)

    monkeypatch.setattr(fetch_headers, "attempts", lambda _: iter([("fake", slow)]))
    codes: list[int] = []
    runs = [threading.Thread(target=lambda: codes.append(run(package, cache))) for _ in range(4)]
    for thread in runs:
        thread.start()
    for thread in runs:
        thread.join()
    assert codes == [0, 0, 0, 0]
    assert used == [package.name]


@pytest.mark.parametrize("right_sum", [True, False])
def test_release_archive(
    cache: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, right_sum: bool
) -> None:
    real = fetch_headers.PACKAGES["onnxruntime"]
    path = tmp_path / "release.tgz"
    with tarfile.open(path, "w:gz") as tar:
        for name in ("top-1.0/include/onnxruntime_c_api.h", "top-1.0/lib/library.so"):
            data = header_text(real).encode()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    digest = hashlib.sha256(path.read_bytes()).hexdigest() if right_sum else "0" * 64
    package = dataclasses.replace(real, archive=path.as_uri(), sha256=digest)
    monkeypatch.setitem(fetch_headers.PACKAGES, "onnxruntime", package)
    monkeypatch.setattr(
        fetch_headers,
        "attempts",
        lambda p: iter([("release", lambda work: fetch_headers.unpack_release(p, work))]),
    )
    assert run(package, cache) == (0 if right_sum else 1)
    if not right_sum:
        assert "sha256" in capsys.readouterr().err


ONE_LINE = """\
# deb mirror://commented noble main
deb-src mirror://src noble main
deb [arch=amd64 signed-by=/keys/own.gpg] mirror://own/ubuntu noble main restricted # own
deb mirror://own/ubuntu noble universe
"""
DEB822 = """\
Types: deb deb-src
# a comment inside
URIs: mirror://own/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By:
 -----BEGIN KEY-----
 .
 abc

Types: deb
URIs: mirror://off
Suites: bookworm
Components: main
Enabled: no

Types: deb-src
URIs: mirror://src
Suites: bookworm
Components: main
"""


def test_one_line_sources() -> None:
    first, second = apt_package.parse_one_line(ONE_LINE)
    assert first.signed_by == "/keys/own.gpg"
    assert first.components == ("main", "restricted")
    assert second.signed_by == ""
    assert second.components == ("universe",)


def test_deb822_sources_keep_an_inline_key() -> None:
    (entry,) = apt_package.parse_deb822(DEB822)
    assert entry.uris == ("mirror://own/debian",)
    assert entry.suites == ("bookworm", "bookworm-updates")
    assert "Signed-By: \n -----BEGIN KEY-----\n .\n abc\n" in entry.stanza()


@pytest.mark.parametrize(
    ("distribution", "codename", "file", "text", "suites"),
    [
        ("debian", "bookworm", "debian.sources", DEB822, ["bookworm", "trixie"]),
        ("ubuntu", "noble", "ubuntu.list", ONE_LINE, ["noble"]),
    ],
)
def test_only_debian_gets_the_newer_suite(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    distribution: str,
    codename: str,
    file: str,
    text: str,
    suites: list[str],
) -> None:
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (parts / "a-stranger.list").write_text(f"deb mirror://stranger {codename} main\n")
    (parts / file).write_text(text)
    monkeypatch.setattr(apt_package, "APT_DIR", tmp_path)
    monkeypatch.setattr(apt_package.shutil, "which", lambda name: name)
    release = {"ID": distribution, "VERSION_CODENAME": codename}
    monkeypatch.setattr(apt_package.platform, "freedesktop_os_release", lambda: release)
    groups = apt_package.suite_groups()
    assert [group[0].suites[0] for group in groups] == suites
    assert all("own" in entry.uris[0] for group in groups for entry in group)
    assert len({group[0].signed_by for group in groups}) == 1


def test_a_machine_without_apt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert apt_package.suite_groups() == []
