"""A server that streams answers as Triton or OpenAI's completions do, a token each 2 ms: enough to be measured."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_INPUTS = {"tensorrt_llm": "sampling_param_max_tokens", "ensemble": "max_tokens"}
"""By the model of each kind of repository, the tensor that says how many tokens are wanted."""


class _Streams(BaseHTTPRequestHandler):
    kind = ""

    def do_GET(self) -> None:
        """Say what is served."""
        told: dict[str, object] | None = None
        if self.kind == "openai" and self.path == "/v1/models":
            told = {"data": [{"id": "served"}]}
        elif self.path == f"/v2/models/{self.kind}/config":
            told = {"input": [{"name": "text_input"}, {"name": _INPUTS[self.kind]}]}
        body = json.dumps(told).encode()
        self.send_response(404 if told is None else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        """Answer with as many pieces as tokens are asked for."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        tokens = body[_INPUTS.get(self.kind, "max_tokens")]
        for place in range(tokens):
            time.sleep(0.002)
            end = "length" if place == tokens - 1 else None
            piece: dict[str, object] = {"text_output": "x", "finish_reason": end or ""}
            if self.kind == "openai":
                piece = {"choices": [{"text": "x", "finish_reason": end}]}
            self.wfile.write(f"data: {json.dumps(piece)}\n\n".encode())
            self.wfile.flush()
        if self.kind == "openai":
            self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def streaming_server(kind: str = "tensorrt_llm") -> Iterator[str]:
    """Serve a model of Triton, or ``openai``, on a free port; give its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("_Kind", (_Streams,), {"kind": kind}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
