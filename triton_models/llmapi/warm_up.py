"""Requests of the model's own, answered before it is ready: the first client waits for nothing that comes once."""

from __future__ import annotations

import threading

from ask import INVALID, Ask, Refused
from runtime import Finish, Runtime
from settings import BadSettings

_PROMPT = "Warm up."
_MOST_TOKENS = 8


class _Answer:
    """Waits for the end of one answer; it is a ``Sink``."""

    def __init__(self) -> None:
        self.refused: Refused | None = None
        self._over = threading.Event()

    def piece(self, _text: str) -> None:
        """Take the next piece, which nobody reads."""

    def finish(self, _finish: Finish) -> None:
        """Take the end."""
        self._over.set()

    def fail(self, refused: Refused) -> None:
        """Take the reason why there is none."""
        self.refused = refused
        self._over.set()

    def wait(self) -> None:
        """Wait for the end; raises ``Refused`` where it is none."""
        self._over.wait()
        if self.refused is not None:
            raise self.refused


def warm_up(runtime: Runtime, count: int, max_seq_len: int) -> None:
    """Answer so many requests, one after the other; a runtime that cannot is closed, and ``BadSettings`` raised.

    They are greedy and short, and in no histogram; ``max_seq_len`` is the most tokens of a prompt with its answer.
    Where the limits of a request leave no room for them there are none, for clients of such a model ask for less.
    """
    for number in range(count):
        answer = _Answer()
        try:
            runtime.submit(Ask(_PROMPT, max_tokens=max(1, min(_MOST_TOKENS, max_seq_len // 2))), answer)
            answer.wait()
        except Refused as refused:
            if refused.status == INVALID:
                return
            runtime.close()
            raise BadSettings(f"warm-up request {number + 1} of {count} failed: {refused}") from None
