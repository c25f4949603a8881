# SPDX-License-Identifier: Apache-2.0
"""examples/serve.py: right numbers for many clients at once, plain words for wrong requests."""

from __future__ import annotations

import io
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import myops.ort
import numpy as np
import pytest
from myops.pack import make_bundle

from .support import AS_ON_A_TARGET, network, save

SERVE = Path(__file__).parents[3] / "examples" / "serve.py"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("serve")
    return make_bundle(save(network(), folder / "net.onnx"), folder / "bundle").path


@pytest.fixture(scope="module")
def address(bundle: Path) -> Iterator[str]:
    command = [sys.executable, "-c", AS_ON_A_TARGET, str(SERVE), str(bundle), "--port", "0"]
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd="/"
    )
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip()
    finally:
        server.terminate()
        server.wait(20)
        server.stdout.close()


def post(address: str, body: bytes) -> bytes:
    with urllib.request.urlopen(address, data=body, timeout=60) as answer:
        return bytes(answer.read())


def npz(**arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def test_healthy(address: str) -> None:
    with urllib.request.urlopen(f"{address}/healthy", timeout=60) as answer:
        assert answer.read() == b"ready\n"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{address}/elsewhere", timeout=60)


def test_many_clients_get_their_own_numbers(address: str, bundle: Path) -> None:
    session = myops.ort.session(bundle / "model.onnx")

    def ask(seed: int) -> bool:
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((1 + seed % 5, 8)).astype(np.float32)
        with np.load(io.BytesIO(post(address, npz(x=x)))) as received:
            return np.array_equal(received["y"], session.run(["y"], {"x": x})[0])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(64)))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"no arrays", ""),
        (npz(z=np.zeros((1, 8), np.float32)), "inputs should be named x"),
        (npz(x=np.zeros((1, 8))), "float32"),
        (npz(x=np.zeros((1, 9), np.float32)), "[1, 9]"),
    ],
    ids=["bytes", "name", "dtype", "shape"],
)
def test_wrong_requests_are_answered(address: str, body: bytes, words: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as raised:
        post(address, body)
    assert raised.value.code == 400
    assert words in raised.value.read().decode()
    with np.load(io.BytesIO(post(address, npz(x=np.ones((1, 8), np.float32))))) as received:
        assert received["y"].shape == (1, 4)  # it serves on


def test_nothing_is_written_into_the_bundle(address: str, bundle: Path) -> None:
    assert not list(bundle.rglob("__pycache__"))
