"""Many streams for a minute: nothing is lost, doubled or out of order, nothing leaks, what is cancelled is freed."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import pytest

from runtime_simulated import word
from tests.support.rehearsal import make_repository, running, series, until
from trtllm_kit.serve.client import events
from trtllm_kit.serve.process import Server

pytestmark = [pytest.mark.triton, pytest.mark.slow]
STREAMS, SECONDS, TOKENS = 64, 60.0, 100
KV, REQUESTS = "nv_trt_llm_kv_cache_block_metrics", "nv_trt_llm_request_metrics"


@dataclass(frozen=True)
class Way:
    """One way into a server that is asked for streams."""

    server: Server
    model: str
    most: str
    """Name of the input with the most tokens."""
    streams: str
    """Name of the input that asks for a stream."""


@pytest.fixture(scope="module", params=["llmapi", "bls"])
def way(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Way]:
    """A server at a pace that its stubs can keep up with: one send of theirs takes a third of a millisecond."""
    changes = {
        "llmapi": {"serve.token_seconds": 0.025},
        "bls": {"serve.token_seconds": 0.05, "toolchain": "mock", "trtllm_version": "0.18.2"},
    }[request.param]
    limits = {"limits.max_batch_size": STREAMS, "load.min_concurrency": 1}
    repository, plan = make_repository(tmp_path_factory.mktemp(request.param), changes | limits, kv_blocks=512)
    with running(repository, plan.serve) as server:
        if request.param == "llmapi":
            yield Way(server, "tensorrt_llm", "sampling_param_max_tokens", "streaming")
        else:
            yield Way(server, "tensorrt_llm_bls", "max_tokens", "stream")


def stream(way: Way, prompt: str, leave_after: int | None = None) -> list[str]:
    """Return the pieces of a stream; leave it after so many bytes of the answer's events."""
    address = urlsplit(way.server.urls.http)
    body = json.dumps({"text_input": prompt, way.most: TOKENS, way.streams: True}).encode()
    head = f"POST /v2/models/{way.model}/generate_stream HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=60) as connection:
        connection.sendall(head.encode() + b"Connection: close\r\n\r\n" + body)
        received = b""
        while piece := connection.recv(65536):
            received += piece
            if leave_after is not None and len(received) >= leave_after:
                return []
    lines = (line + b"\n" for line in received.split(b"\r\n\r\n", 1)[1].replace(b"\r\n", b"\n").split(b"\n"))
    return [json.loads(data)["text_output"] for data in events(line for line in lines if line[:5] in (b"data:", b"\n"))]


def resident(server: Server) -> int:
    """Return the memory of the server's processes, bytes."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if server.command.shm_prefix.encode() in (folder / "environ").read_bytes():
                total += int((folder / "statm").read_text().split()[1]) * 4096
        except OSError:
            continue
    return total


def text_of(way: Way, prompt: str, direct: dict[str, str]) -> str:
    """Return what the answer to a prompt must be."""
    if way.model == "tensorrt_llm":
        return "".join(f" {word(prompt, position)}" for position in range(TOKENS))
    return direct[prompt]


def test_a_minute_of_streams(way: Way) -> None:
    """64 at once: every answer is exactly its own, as long as asked for, and memory stays where it was."""
    prompts = [f"question {number} of many" for number in range(STREAMS)]
    direct = {prompt: "".join(stream(way, prompt)) for prompt in prompts[:4]} if way.model != "tensorrt_llm" else {}
    asked = prompts if way.model == "tensorrt_llm" else prompts[:4] * (STREAMS // 4)
    end, memory, rounds = time.monotonic() + SECONDS, [], 0
    with ThreadPoolExecutor(STREAMS) as pool:
        while time.monotonic() < end:
            answers = list(pool.map(lambda prompt: stream(way, prompt), asked))
            assert [text_of(way, prompt, direct) for prompt in asked] == ["".join(pieces) for pieces in answers]
            rounds += 1
            memory.append(resident(way.server))

    assert rounds >= 3
    assert memory[-1] - memory[1] < 16 << 20, memory
    until(lambda: series(way.server)[KV]["used"] == 0)


def test_half_of_the_streams_are_left(way: Way) -> None:
    """At random places; the others are whole, and all blocks come back."""
    random = Random(7)
    prompts = [f"question {number} of many" for number in range(STREAMS)]
    leaves = [random.randrange(300, 6000) if number % 2 else None for number in range(STREAMS)]
    with ThreadPoolExecutor(STREAMS) as pool:
        answers = list(pool.map(lambda one: stream(way, *one), zip(prompts, leaves, strict=True)))

    stayed = [(prompt, pieces) for prompt, pieces, leave in zip(prompts, answers, leaves, strict=True) if leave is None]
    direct = {} if way.model == "tensorrt_llm" else {prompt: "".join(stream(way, prompt)) for prompt, _ in stayed}
    assert [text_of(way, prompt, direct) for prompt, _ in stayed] == ["".join(pieces) for _, pieces in stayed]
    until(lambda: series(way.server)[REQUESTS]["active"] == 0, 10)
    until(lambda: series(way.server)[KV]["used"] == 0, 10)
