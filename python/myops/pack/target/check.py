# SPDX-License-Identifier: Apache-2.0
"""Is this bundle whole, and does it give the right numbers here? Needs numpy and onnxruntime.

    python check.py

One line per step. Exit codes: 0 everything is right, 1 something is not, 2 wrong usage. Python 3.8
and newer.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import platform
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
FORMAT = 1
# The manifest holds the SHA-256 of itself with zeros in the place of these digits.
OWN_SUM = re.compile(rb'"manifest_sha256": "([0-9a-f]{64})"')


@dataclass(frozen=True)
class Step:
    """One line of the report."""

    step: str
    ok: bool
    text: str


class Failed(Exception):
    """A step that ends the check, in the form of all our messages."""

    def __init__(self, rule: str, received: str, remedy: str) -> None:
        parts = (" ".join(part.split()).rstrip(". ") for part in (rule, received, remedy))
        super().__init__("[bundle] {}. Received {}. {}.".format(*parts))


def read_manifest() -> dict[str, Any]:
    """The manifest, if it is the one that was written.

    Raises:
        Failed: it is missing, damaged or of another format.
    """
    rule = "manifest.json should be as it was packed"
    try:
        content = (FOLDER / "manifest.json").read_bytes()
    except OSError as error:
        raise Failed(rule, str(error), "Copy the bundle again") from error
    match = OWN_SUM.search(content)
    if match is None:
        raise Failed(rule, "one without its checksum: it was damaged", "Copy it again")
    zeroed = content[: match.start(1)] + b"0" * 64 + content[match.end(1) :]
    if hashlib.sha256(zeroed).hexdigest().encode() != match[1]:
        raise Failed(rule, "one with another checksum: it was damaged", "Copy it again")
    found: dict[str, Any] = json.loads(content)
    if found["format"] != FORMAT:
        raise Failed(
            f"the bundle should be of format {FORMAT}",
            f"format {found['format']}",
            "Use the check.py that was packed with it",
        )
    return found


def check_file(about: dict[str, Any]) -> Step:
    """Size and SHA-256 of one file."""
    path = FOLDER / about["path"]
    rule = f"{about['path']} should be the {about['size']} bytes that were packed"
    remedy = f"Copy {about['path']} again"
    if not path.is_file():
        return Step("file", False, str(Failed(rule, "no such file", remedy)))
    size = path.stat().st_size
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while True:
            block = file.read(1 << 20)
            if not block:
                break
            digest.update(block)
    if size != about["size"]:
        how = "cut off in transfer" if size < about["size"] else "replaced or added to"
        return Step("file", False, str(Failed(rule, f"{size} bytes: it was {how}", remedy)))
    if digest.hexdigest() != about["sha256"]:
        found = "other ones: it was damaged in transfer, or changed afterwards"
        return Step("file", False, str(Failed(rule, found, remedy)))
    return Step("file", True, f"{about['path']}, {size} bytes")


def versions(made_with: dict[str, str]) -> Step:
    """What is installed here and what was there."""
    here = {"python": platform.python_version()}
    for name in ("numpy", "onnxruntime"):
        try:
            here[name] = __import__(name).__version__
        except Exception as error:  # a half-installed one raises anything
            failed = Failed(f"{name} should be installed", str(error), f"Run: pip install {name}")
            return Step("packages", False, str(failed))
    there = ", ".join(f"{name} {made_with.get(name, 'unknown')}" for name in here)
    text = ", ".join(f"{name} {version}" for name, version in here.items())
    return Step("packages", True, f"{text} (packed with {there}), {platform.machine()}")


def numbers(about: dict[str, Any], session: Any) -> Iterator[Step]:
    """A step per output on the golden inputs."""
    import run
    from compare import Tolerance, compare

    inputs, expected = run.golden()
    results = session.run(list(expected), inputs)
    for (name, truth), result in zip(expected.items(), results):  # noqa: B905
        limit = about["outputs"][name]
        rule = f"output {name} should be within {limit['absolute']:.3g} of its golden values"
        remedy = "Try another onnxruntime, and --no-plugin if the model allows it; report it"
        if result.shape != truth.shape:
            found = f"shape {list(result.shape)}, not {list(truth.shape)}"
            yield Step("numbers", False, str(Failed(rule, found, remedy)))
            continue
        distance = compare(result, truth, limit["dtype"], Tolerance(absolute=limit["absolute"]))
        if distance.ok:
            text = (
                f"{name} {result.dtype.name}{list(result.shape)}: largest error "
                f"{distance.max_abs:.3g}, allowed {limit['absolute']:.3g}"
            )
            yield Step("numbers", True, text)
            continue
        found = (
            f"{distance.wrong} of {distance.count} elements that are not, first "
            f"{distance.received!r} instead of {distance.expected!r} at {distance.first_wrong}"
        )
        yield Step("numbers", False, str(Failed(rule, found, remedy)))


def steps(provider: str, plugin: bool) -> Iterator[Step]:
    """All steps in order. Where a file is damaged, nothing of the bundle is run."""
    try:
        about = read_manifest()
    except Failed as error:
        yield Step("manifest", False, str(error))
        return
    text = f"format {about['format']}, packed by myops {about['myops']} from {about['source']}"
    yield Step("manifest", True, text)
    whole = True
    for file in about["files"]:
        step = check_file(file)
        whole = whole and step.ok
        yield step
    if not whole:
        return
    step = versions(about["made_with"])
    yield step
    if not step.ok:
        return

    # Read after its checksum; no files are to appear beside it.
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(FOLDER))
    import run

    name = "plugin"
    try:
        run.options(plugin=plugin)
        for path in run.plugin_paths():
            left_out = "" if plugin else " left out, the model's own functions run"
            shown_path = path.relative_to(FOLDER).as_posix()
            yield Step(name, True, shown_path + (left_out or " is registered"))
        name = "load"
        session = run.session(providers=[provider], plugin=plugin)
        shown = [
            f"{value.name} {value.type}{value.shape}"
            for value in (*session.get_inputs(), *session.get_outputs())
        ]
        yield Step(name, True, f"{about['model']['path']}: {', '.join(shown)}")
        name = "numbers"
        yield from numbers(about, session)
    except Exception as error:  # whatever a damaged environment raises is a line of the report
        text = str(error)
        if not isinstance(error, run.BundleError):
            text = str(
                Failed(
                    f"step {name} should end",
                    f"{type(error).__name__}: {error}",
                    "Check the installation of onnxruntime",
                )
            )
        yield Step(name, False, text)


def main(argv: Sequence[str] | None = None, out: Callable[..., None] = print) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Checks the bundle on this machine.")
    parser.add_argument("--provider", default="CPUExecutionProvider", help="execution provider")
    parser.add_argument("--no-plugin", dest="plugin", action="store_false", help="leave it out")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):  # names may hold what the terminal cannot show
        sys.stdout.reconfigure(errors="backslashreplace")
    done = []
    for step in steps(arguments.provider, arguments.plugin):
        done.append(step)
        if not arguments.json:
            out(f"{'ok' if step.ok else 'FAILED':<7} {step.step:<8} {step.text}", flush=True)
    failed = [step for step in done if not step.ok]
    if arguments.json:
        out(json.dumps({"ok": not failed, "steps": [asdict(step) for step in done]}, indent=2))
    elif failed:
        out(f"This bundle is not to be used here: {len(failed)} of {len(done)} steps failed.")
    else:
        out(f"This bundle is whole and right here: {len(done)} steps.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
