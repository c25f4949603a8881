# SPDX-License-Identifier: Apache-2.0
"""Serves a bundle of `myops pack` over HTTP. Needs numpy and onnxruntime.

    python serve.py bundle/ --port 8000

POST an .npz of the model's inputs to /, and an .npz of its outputs comes back. GET /healthy answers
once the session stands. For a machine of your own: no encryption, no users, no limits of rate.
"""

from __future__ import annotations

import argparse
import io
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

LARGEST_REQUEST = 256 << 20


def make_handler(bundle: Any) -> type[BaseHTTPRequestHandler]:
    """One session for all threads: ``InferenceSession.run`` may be called from each at once, and
    every request's thread computes for itself, so the session needs no pool of its own."""
    session = bundle.session(threads=1)
    names = [value.name for value in session.get_outputs()]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self, code: int, body: bytes, kind: str = "text/plain") -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            if self.path == "/healthy":
                self.answer(200, b"ready\n")
            else:
                self.answer(404, b"POST inputs to /, or GET /healthy\n")

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            if not 0 < length <= LARGEST_REQUEST:
                self.close_connection = True
                self.answer(413 if length else 411, b"send Content-Length, 256 MiB at most\n")
                return
            body = self.rfile.read(length)
            try:
                with np.load(io.BytesIO(body), allow_pickle=False) as archive:
                    inputs = {name: archive[name] for name in archive.files}
                bundle.check_inputs(inputs)
            except Exception as error:  # the client's fault, whatever numpy or zipfile calls it
                self.answer(400, f"{error}\n".encode())
                return
            try:
                outputs = dict(zip(names, session.run(names, inputs)))  # noqa: B905
            except Exception as error:
                self.answer(500, f"{error}\n".encode())
                return
            result = io.BytesIO()
            np.savez(result, **outputs)
            self.answer(200, result.getvalue(), "application/octet-stream")

    return Handler


def main() -> None:
    parser = argparse.ArgumentParser(description="Serves a bundle over HTTP.")
    parser.add_argument("bundle", help="folder that myops pack wrote")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    arguments = parser.parse_args()
    sys.dont_write_bytecode = True  # the bundle stays as it is
    sys.path.insert(0, arguments.bundle)
    import run  # the bundle's run.py

    server = ThreadingHTTPServer((arguments.host, arguments.port), make_handler(run))
    print(f"http://{arguments.host}:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
