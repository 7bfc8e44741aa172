"""Pages, snapshots and stub servers for these tests."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from trtllm_kit.health.load import shipped_rules
from trtllm_kit.health.snapshot import Outcome, Snapshot, Target
from trtllm_kit.health.sources.prometheus_text import parse

PAGES = Path(__file__).with_name("pages")
TARGET = Target("http://127.0.0.1:8002/metrics")
SEEDS = tuple(r for r in shipped_rules() if r.name in ("kv-cache-usage", "gpu-utilization", "queue-depth"))
"""The three rules that need nothing but a page of trtkit's own model, and GPUs."""
NOW = 1_795_993_500.0


def page(name: str) -> str:
    """Read a page of the corpus."""
    return (PAGES / f"{name}.prom").read_text("utf-8")


def page_files() -> list[Path]:
    """List every page of the corpus."""
    return sorted(PAGES.glob("*.prom"))


def engine_page(model: str = "tensorrt_llm", **values: float | str | None) -> str:
    """Write a small page of one model, healthy and idle but for ``values``; None leaves a series out."""
    numbers: dict[str, float | str | None] = {
        "active": 0, "max": 64, "scheduled": 0, "queued": 0,
        "blocks": 1000, "used": 120, "free": 880, "fraction": 0.12,
        "iteration": 100, "timestamp": None, "heartbeat": None, "paused": 0, "gpu": None,
        "succeeded": None, "BACKEND": None, "OTHER": None, "REJECTED": None, "CANCELED": None,
    }  # fmt: skip
    assert not values.keys() - numbers.keys()
    numbers |= values
    lines = []
    for name, (family, label, kind) in _SERIES.items():
        if numbers[name] is not None:
            lines.append(f'{family}{{{label}="{kind}",model="{model}",version="1"}} {numbers[name]}')
    for reason in ("BACKEND", "OTHER", "REJECTED", "CANCELED"):
        if numbers[reason] is not None:
            labels = f'model="{model}",reason="{reason}",version="1"'
            lines.append(f"nv_inference_request_failure{{{labels}}} {numbers[reason]}")
    if numbers["succeeded"] is not None:
        lines.append(f'nv_inference_request_success{{model="{model}",version="1"}} {numbers["succeeded"]}')
    if numbers["gpu"] is not None:
        lines.append(f'nv_gpu_utilization{{gpu_uuid="GPU-0"}} {numbers["gpu"]}')
    return "".join(line + "\n" for line in lines)


_SERIES = {
    "active": ("nv_trt_llm_request_metrics", "request_type", "active"),
    "max": ("nv_trt_llm_request_metrics", "request_type", "max"),
    "scheduled": ("nv_trt_llm_request_metrics", "request_type", "scheduled"),
    "queued": ("nv_trt_llm_request_metrics", "request_type", "queued"),
    "blocks": ("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", "max"),
    "used": ("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", "used"),
    "free": ("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", "free"),
    "fraction": ("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", "fraction"),
    "iteration": ("nv_trt_llm_general_metrics", "general_type", "iteration_counter"),
    "timestamp": ("nv_trt_llm_general_metrics", "general_type", "timestamp"),
    "heartbeat": ("nv_trt_llm_general_metrics", "general_type", "heartbeat"),
    "paused": ("nv_trt_llm_inflight_batcher_metrics", "inflight_batcher_specific_metric", "paused_requests"),
}


def snapshot(text: str, second: float = 0.0) -> Snapshot:
    """Make the snapshot of a page read at ``second`` after NOW."""
    taken = parse(text)
    assert not taken.problem
    return Snapshot(Outcome.OK, "", NOW + second, second, 0.002, 200, series=taken.series, timestamps=taken.timestamps)


def snapshots(*texts: str) -> tuple[Snapshot, ...]:
    """Make snapshots of pages read one second apart."""
    return tuple(snapshot(text, float(second)) for second, text in enumerate(texts))


def failure(outcome: Outcome, status: int | None = None, second: float = 0.0) -> Snapshot:
    """Make the snapshot of a scrape that failed."""
    return Snapshot(outcome, f"it was {outcome}", NOW + second, second, 0.1, status)


Serve = Callable[[socket.socket], None]


@contextlib.contextmanager
def stub_server(serve: Serve, seen: list[bytes] | None = None) -> Iterator[str]:
    """Run a raw server on loopback that hands each connection to ``serve``; yields the URL of its metrics page.

    ``seen`` collects the requests.
    """
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=handle, args=(connection,), daemon=True).start()

    def handle(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(10)
            request = connection.recv(65536)
            if seen is not None:
                seen.append(request)
            serve(connection)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


def answers(*bodies: str, status: str = "200 OK", head: str = "") -> Serve:
    """Answer each request with the next body (the last one for ever)."""
    turn = iter(bodies)
    last = [bodies[-1]]

    def serve(connection: socket.socket) -> None:
        body = next(turn, last[0]).encode()
        start = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        connection.sendall(f"{start}{head}\r\n".encode() + body)

    return serve


def sends(data: bytes) -> Serve:
    """Send these bytes and close."""
    return lambda connection: connection.sendall(data)


def drips(data: bytes, pause: float = 0.05) -> Serve:
    """Send these bytes, then one byte every ``pause`` seconds for ever."""

    def serve(connection: socket.socket) -> None:
        connection.sendall(data)
        while True:
            connection.sendall(b"x")
            time.sleep(pause)

    return serve


def floods(data: bytes, piece: bytes) -> Serve:
    """Send these bytes, then the piece as fast as possible for ever."""

    def serve(connection: socket.socket) -> None:
        connection.sendall(data)
        while True:
            connection.sendall(piece)

    return serve


def free_port() -> int:
    """Find a port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
