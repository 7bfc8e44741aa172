"""The simulated runtime: no weights, words at the pace of a clock, in the same in-flight batcher.

One word of the prompt is one token. Every generated token is one word; which word follows from the prompt and the
position alone, so the same request always gets the same answer.
"""

from __future__ import annotations

import zlib

from ask import Ask, Refused
from batcher import Batcher
from runtime import Sink, Statistics, Ticket
from sequence import Token
from settings import Settings

_WORDS = (
    "amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron", "islet", "juniper", "kelp", "lagoon",
    "meadow", "nectar", "ochre", "pebble", "quartz", "reed", "slate", "thyme", "umber", "vale", "willow", "yarrow",
)  # fmt: skip


def word(prompt: str, position: int) -> str:
    """Return the word at a position (from 0) of the answer to a prompt."""
    return _WORDS[(zlib.crc32(prompt.encode()) + 7 * position) % len(_WORDS)]


class SimulatedRuntime:
    """Paces words through the batcher."""

    def __init__(self, settings: Settings) -> None:
        self._batcher = Batcher(settings.limits, settings.step_seconds)
        self._batcher.start()

    def submit(self, ask: Ask, sink: Sink) -> Ticket:
        """Begin an answer."""
        if ask.best_of > 1 or ask.lora is not None:
            raise Refused("the simulated runtime has neither sampling_param_best_of above 1 nor LoRA adapters")
        return self._batcher.submit(_Words(ask.prompt), ask, sink)

    def statistics(self) -> Statistics | None:
        """Report the batcher's state."""
        return self._batcher.statistics()

    def close(self) -> None:
        """Stop the batcher."""
        self._batcher.close()


class _Words:
    """The sequence of one request."""

    def __init__(self, prompt: str) -> None:
        self.prompt_tokens = len(prompt.split())
        self._prompt = prompt
        self._position = 0

    def read(self, tokens: int) -> None:
        """Read nothing: the words depend on the prompt's text alone."""

    def write(self) -> Token:
        """Return the next word with a space before it."""
        token = Token(" " + word(self._prompt, self._position))
        self._position += 1
        return token

    def rest(self) -> str:
        """Return nothing: words are whole."""
        return ""
