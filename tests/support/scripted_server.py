"""A deployment that says what a test wants: Triton's llmapi or ensemble tensors, or OpenAI's completions."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

INPUTS = {
    "tensorrt_llm": ("text_input", "sampling_param_max_tokens"),
    "ensemble": ("text_input", "max_tokens"),
}


@dataclass(frozen=True)
class Fault:
    """Something else than an answer: a status with an error, or silence for so many seconds."""

    status: int = 0
    seconds: float = 0.0


@dataclass
class Script:
    """What a deployment says to a prompt that it is asked for the ``n``-th time, from 1."""

    says: Callable[[str, int], str | Fault]
    kind: str = "tensorrt_llm"
    """Its model in Triton, or ``openai``."""
    decoupled: bool = True
    streams: Callable[[str], str | Fault] | None = None
    """What it says in pieces, where that is something else."""
    grows: bool = False
    """Whether pieces of OpenAI's streams have one letter, then two, and so on."""
    page: str = ""
    """What its metrics page says."""
    pages: int = 0
    """How often it was read."""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    heads: list[dict[str, str]] = field(default_factory=list)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    script: Script

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Tell of the model."""
        kind, name = self.script.kind, self.path.split("/")[-2]
        if self.path == "/metrics":
            self.script.pages += 1
            self.text(200, "text/plain; version=0.0.4", self.script.page.encode())
        elif kind == "openai" and self.path == "/v1/models":
            self.whole(200, {"data": [{"id": "served"}]})
        elif name == kind and self.path.endswith("/config"):
            inputs = [{"name": one} for one in INPUTS[kind]]
            self.whole(200, {"input": inputs, "model_transaction_policy": {"decoupled": self.script.decoupled}})
        else:
            self.whole(404, {"error": "unknown"})

    def do_POST(self) -> None:
        """Answer."""
        script = self.script
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        script.bodies.append(body)
        script.heads.append(dict(self.headers))
        prompt = body.get("text_input") or body.get("prompt")
        pieces = body.get("streaming", body.get("stream", False))
        if pieces and not script.decoupled:
            self.whole(400, {"error": "stream is only supported in decoupled mode"})
            return
        times = sum(one.get("text_input", one.get("prompt")) == prompt for one in script.bodies)
        said = script.streams(prompt) if pieces and script.streams else script.says(prompt, times)
        if isinstance(said, Fault):
            time.sleep(said.seconds)
            self.whole(said.status or 500, {"error": "it was told to fail"})
            return
        self.events(self.openai(said) if script.kind == "openai" else self.triton(said, pieces))

    def triton(self, text: str, pieces: bool) -> Iterator[str]:
        """Yield the events of Triton's generate extension: a character a piece, or all in one."""
        cut = list(text) if pieces else [text]
        for number, one in enumerate(cut or [""]):
            yield json.dumps({"text_output": one, "finish_reason": "stop" if number >= len(cut) - 1 else ""})

    def openai(self, text: str) -> Iterator[str]:
        """Yield the events of completions."""
        size, place = 1, 0
        while place < len(text):
            yield json.dumps({"choices": [{"text": text[place : place + size], "finish_reason": None}]})
            place, size = place + size, size + self.script.grows
        yield json.dumps({"choices": [{"text": "", "finish_reason": "stop"}]})
        yield json.dumps({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": len(text)}})
        yield "[DONE]"

    def events(self, found: Iterator[str]) -> None:
        """Write a stream of events."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in found:
            data = f"data: {event}\n\n".encode()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def whole(self, status: int, document: object) -> None:
        """Write a document."""
        self.text(status, "application/json", json.dumps(document).encode())

    def text(self, status: int, kind: str, data: bytes) -> None:
        """Write bytes."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that go."""


@contextmanager
def scripted(script: Script, secure: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve a script in threads; gives the URL."""
    server = _Quiet(("127.0.0.1", 0), type("Scripted", (_Handler,), {"script": script}))
    if secure is not None:
        server.socket = secure.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"{'https' if secure else 'http'}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
