"""Three kinds of load that a healthy server has at once; each goes on until the drill is over."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Protocol

from trtllm_kit.errors import RequestFailed
from trtllm_kit.serve.client import Sampling, stream
from trtllm_kit.serve.process import Server


class Loaded(Protocol):
    """A server, and when its load is to end."""

    server: Server
    over: threading.Event


def long_answers(loaded: Loaded) -> None:
    """Ask for long answers without a pause, but for five idle seconds every half minute."""
    while not loaded.over.is_set():
        until = time.monotonic() + 25
        while time.monotonic() < until and not loaded.over.is_set():
            answer(loaded, 300)
        loaded.over.wait(5.0)


def short_answers(loaded: Loaded) -> None:
    """Ask for four short answers at once, now and then."""
    while not loaded.over.is_set():
        threads = [threading.Thread(target=answer, args=(loaded, 8), daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        loaded.over.wait(1.0)


def given_up(loaded: Loaded) -> None:
    """Go away in the middle of answers."""
    while not loaded.over.is_set():
        answer(loaded, 300, pieces=5)
        loaded.over.wait(0.5)


def answer(loaded: Loaded, tokens: int, pieces: int = 1 << 30) -> None:
    """Read one answer, or the first pieces of it, whatever becomes of it."""
    with suppress(RequestFailed, OSError):
        asked = stream(loaded.server.urls.http, "tensorrt_llm", "Tell me a story.", Sampling(max_tokens=tokens))
        for number, _ in enumerate(asked):
            if loaded.over.is_set() or number >= pieces:
                return
    loaded.over.wait(0.05)


def begin(loaded: Loaded) -> None:
    """Begin all of it in threads."""
    for ask in (long_answers, short_answers, given_up):
        threading.Thread(target=ask, args=(loaded,), daemon=True).start()
