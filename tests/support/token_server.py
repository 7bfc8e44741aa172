"""A server that streams tokens at exactly known times, and fails on request.

Every piece of its answers is the reading of the machine's monotonic clock at which it was written, so what a client
measured can be held against what was sent. ``python tests/support/token_server.py FIRST GAP`` serves as a program of
its own: it prints its port, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import ClassVar

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
BUSY = (
    b'HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: 17\r\n\r\n{"error": "busy"}'
)


class TokenServer(asyncio.Protocol):
    """One connection."""

    first, gap = 0.0, 0.0
    fault, every = "", 1
    """What goes wrong, in how many requests: each ``every``-th one."""
    asked: ClassVar[list[dict]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self.transport, self.data, self.served = transport, b"", 0

    def data_received(self, data: bytes) -> None:
        """Read a request, and answer it."""
        self.data += data
        head, found, body = self.data.partition(b"\r\n\r\n")
        length = next(
            (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
        )
        if found and len(body) >= length:
            self.data = b""
            self.served += 1
            if self.fault == "drop" and self.served > 1:  # as a server does whose idle connections end
                self.transport.abort()
                return
            asked = json.loads(body[:length])
            self.asked.append(asked | {"head": head.decode()})
            failing = self.fault and len(self.asked) % self.every == 0
            self.task = asyncio.ensure_future(self.answer(asked, self.fault if failing else ""))

    def connection_lost(self, error: Exception | None) -> None:
        """Stop writing."""
        with suppress(AttributeError):
            self.task.cancel()

    async def answer(self, asked: dict, fault: str) -> None:
        """Write the tokens, each when it is due."""
        if fault == "busy":
            self.transport.write(BUSY)
            return
        openai = "model" in asked
        tokens = asked.get("sampling_param_max_tokens") or asked["max_tokens"]
        begun = time.monotonic()
        self.transport.write(HEAD)
        for number in range(tokens):
            due = begun + self.first + number * self.gap
            await asyncio.sleep(max(due - time.monotonic(), 0))
            if number == tokens // 2 and await self.failed(fault):
                return
            self.event(piece(openai, last=number == tokens - 1, chat="messages" in asked))
        if openai:
            self.event(json.dumps({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": tokens}}))
            self.event("[DONE]")
        self.transport.write(b"0\r\n\r\n")

    async def failed(self, fault: str) -> bool:
        """Do what goes wrong in the middle of an answer."""
        if fault == "disconnect":
            self.transport.abort()
        elif fault == "stall":
            await asyncio.sleep(3600)
        elif fault == "malformed":
            self.event('{"text_output": ')
            self.transport.write(b"0\r\n\r\n")
        elif fault == "error":
            self.event('{"error": "the engine died"}')
            self.transport.write(b"0\r\n\r\n")
        elif fault == "garbage":
            self.transport.write(b"this is no chunk\r\n")
        return fault not in ("", "drop")

    def event(self, data: str) -> None:
        """Write an event as a chunk."""
        raw = f"data: {data}\n\n".encode()
        self.transport.write(f"{len(raw):x}\r\n".encode() + raw + b"\r\n")


def piece(openai: bool, *, last: bool, chat: bool) -> str:
    """Return a token as the interface spells it."""
    text, finish = f"{time.monotonic():.7f} ", "length" if last else None
    if not openai:
        return json.dumps({"text_output": text, "finish_reason": finish or ""})
    said = {"delta": {"content": text}} if chat else {"text": text}
    return json.dumps({"choices": [said | {"finish_reason": finish}]})


def serving(first: float, gap: float, fault: str = "", every: int = 1) -> type[TokenServer]:
    """Return a server with its own record of what was asked."""
    return type("Serving", (TokenServer,), {"first": first, "gap": gap, "fault": fault, "every": every, "asked": []})


@contextmanager
def token_server(
    first: float = 0.005,
    gap: float = 0.002,
    fault: str = "",
    every: int = 1,
    port: int = 0,
    secure: ssl.SSLContext | None = None,
) -> Iterator[tuple[str, list[dict]]]:
    """Serve in a thread; give the address, and the requests as they come."""
    kind, loop, ready = serving(first, gap, fault, every), asyncio.new_event_loop(), threading.Event()
    found: list[int] = []

    async def serve() -> None:
        server = await loop.create_server(kind, "127.0.0.1", port, ssl=secure)
        found.append(server.sockets[0].getsockname()[1])
        ready.set()

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(serve())
        loop.run_forever()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(5)
    try:
        yield f"{'https' if secure else 'http'}://127.0.0.1:{found[0]}", kind.asked
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)


async def _program(first: float, gap: float) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(serving(first, gap), "127.0.0.1", 0, backlog=1024)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_program(float(sys.argv[1]), float(sys.argv[2])))
