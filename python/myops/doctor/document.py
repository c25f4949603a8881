# SPDX-License-Identifier: Apache-2.0
"""Writes ``docs/doctor.md`` from the catalogue, as a program to standard output."""

from __future__ import annotations

import sys
from itertools import groupby

from myops.doctor.catalogue import CATALOGUE, Entry

_HEAD = """\
<!-- Written by python -m myops.doctor.document; change myops/doctor/catalogue instead. -->
# What myops doctor finds

```sh
myops doctor                              # the environment and the installed libraries
myops doctor model.onnx libmyops_ort.so   # a model, and another plugin than the installed one
myops doctor --provider CUDAExecutionProvider --threads 8 model.onnx
myops doctor --explain "undefined symbol: RegisterCustomOps"   # - reads the text
```

It works offline, without torch, onnx or a GPU; what cannot be examined for want of a package is
said. Libraries are read, not loaded; what passes is then loaded for trial in a process of its own
(`--no-load` leaves that out). Exit code 0: nothing found; 1: an error or a warning, or, with
`--explain`, a known text; 2: wrong usage. Notes do not count. `--json` prints the same with all
facts; the ids are stable.

With a model or a library, or where the text names a library that is on this machine, `--explain`
examines them and says which causes are confirmed and which ruled out.
"""

_TITLES = {
    "library": "Libraries",
    "environment": "Environment",
    "model": "Models",
    "session": "Running sessions (from error texts)",
}


def markdown() -> str:
    """The page."""
    parts = [_HEAD]
    for area, entries in groupby(CATALOGUE, key=lambda entry: entry.area):
        parts.append(f"\n## {_TITLES[area]}\n")
        parts += [_section(entry) for entry in entries]
    return "".join(parts)


def _section(entry: Entry) -> str:
    apart = f"\n\nTo tell it from look-alikes: {entry.apart}" if entry.apart else ""
    return f"\n### {entry.id}\n\n*{entry.severity}* {entry.sentence} {entry.fix}{apart}\n"


if __name__ == "__main__":
    sys.stdout.write(markdown())
