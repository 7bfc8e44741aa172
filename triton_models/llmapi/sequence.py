"""One request inside the batcher: the sequence a runtime provides, and the job that carries it to its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ask import Ask
from runtime import Finish, Performance, Sink
from text import StopTexts


@dataclass(frozen=True)
class Token:
    """One generated token."""

    text: str
    """The text that is certain now; empty within a character."""
    logprob: float = 0.0
    last: bool = False
    """Whether the model ended its answer with this token, which is not part of it."""


class Sequence(Protocol):
    """One request as the generating side sees it."""

    prompt_tokens: int

    def read(self, tokens: int) -> None:
        """Take in that many more prompt tokens."""

    def write(self) -> Token:
        """Generate the next token."""

    def rest(self) -> str:
        """Return text still held back at the end of the answer."""


@dataclass(eq=False)
class Job:
    """A request from its arrival to its end."""

    sequence: Sequence
    ask: Ask
    sink: Sink
    blocks: int
    """KV blocks reserved from admission to the end."""
    stops: StopTexts
    performance: Performance
    withdraw: Callable[[Job], None]
    read: int = 0
    written: int = 0
    logprob: float = 0.0
    cancelled: bool = False

    @property
    def unread(self) -> int:
        """Prompt tokens that no step has read yet."""
        return self.sequence.prompt_tokens - self.read

    def cancel(self) -> None:
        """Stop generating and free the blocks at the next step."""
        self.withdraw(self)


def advance(job: Job, chunk: int) -> Finish | None:
    """Do a job's part of one step; return how its answer ended, if it did."""
    if chunk:
        job.sequence.read(chunk)
        job.read += chunk
        if job.unread:
            return None
    token = job.sequence.write()
    performance = job.performance
    performance.last_token_ns = time.monotonic_ns()
    performance.first_token_ns = performance.first_token_ns or performance.last_token_ns
    job.logprob += token.logprob
    job.written += 0 if token.last else 1
    piece = job.stops.push(token.text)
    over = token.last or job.written == job.ask.max_tokens
    if not over and job.stops.hit is None:
        if piece:
            job.sink.piece(piece)
        return None
    piece += job.stops.push(job.sequence.rest()) + job.stops.flush()
    return Finish(
        reason="stop" if token.last or job.stops.hit is not None else "length",
        stop_reason=job.stops.hit or "",
        text=piece,
        prompt_tokens=job.sequence.prompt_tokens,
        output_tokens=job.written,
        cumulative_logprob=job.logprob,
        performance=performance,
    )
