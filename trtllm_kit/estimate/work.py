"""One forward step of the engine, and what tells how long it takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Chunk:
    """Prompt tokens of one request that a step computes."""

    new: int
    """Tokens this step computes."""
    past: int = 0
    """Tokens of the same request whose keys and values are cached already."""


@dataclass(frozen=True, slots=True)
class StepWork:
    """What one forward step computes, over all ranks of a replica."""

    chunks: tuple[Chunk, ...] = ()
    """The requests whose prompt, or a part of it, is in the step."""
    sequences: int = 0
    """Requests that generate."""
    context: int = 0
    """Sum of the tokens that the generating requests have cached."""
    width: int = 1
    """Tokens a generating request brings: 1, and what was drafted for it."""

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens that the step computes."""
        return sum(chunk.new for chunk in self.chunks)

    @property
    def rows(self) -> int:
        """Tokens that go through the layers."""
        return self.prompt_tokens + self.sequences * self.width


class Clock(Protocol):
    """What knows how long steps take; the batching simulation asks no more of it."""

    def seconds(self, work: StepWork) -> float:
        """Return the seconds between the start of this step and that of the next."""
        ...

    def decode_run(self, sequences: int, context: int, steps: int) -> float:
        """Return the seconds of ``steps`` steps in which ``sequences`` requests generate one token each.

        ``context`` is the sum of their cached tokens in the first of the steps; it grows by ``sequences`` a step.
        """
        ...
