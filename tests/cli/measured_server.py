"""A server that streams answers over Triton's generate extension, a token each 2 ms: enough to be measured."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Streams(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        """Answer with as many pieces as tokens are asked for."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        tokens = body["sampling_param_max_tokens"]
        for place in range(tokens):
            time.sleep(0.002)
            piece = {"text_output": "x", "finish_reason": "length" if place == tokens - 1 else ""}
            self.wfile.write(f"data: {json.dumps(piece)}\n\n".encode())
            self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def streaming_server() -> Iterator[str]:
    """Serve on a free port; give its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Streams)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
