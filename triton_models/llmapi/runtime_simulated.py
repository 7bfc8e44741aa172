"""The simulated runtime: no weights, words at the pace of a clock, in an engine that batches in flight.

One word of the prompt is one token. Every generated token is one word; which word follows from the prompt and the
position alone, so the same request always gets the same answer.
"""

from __future__ import annotations

import os
import zlib

from ask import Ask, Refused
from faults import BadFaults, faults_of
from pacer import Pacer
from runtime import Sink, Statistics, Ticket
from sequence import Token, begin
from settings import BadSettings, Settings
from timing import NoPlan, plan_beside, simulated_engine

_WORDS = (
    "amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron", "islet", "juniper", "kelp", "lagoon",
    "meadow", "nectar", "ochre", "pebble", "quartz", "reed", "slate", "thyme", "umber", "vale", "willow", "yarrow",
)  # fmt: skip


def word(prompt: str, position: int) -> str:
    """Return the word at a position (from 0) of the answer to a prompt."""
    return _WORDS[(zlib.crc32(prompt.encode()) + 7 * position) % len(_WORDS)]


class SimulatedRuntime:
    """Paces words through the engine of ``trtllm_kit.estimate``."""

    def __init__(self, settings: Settings) -> None:
        """Make the engine that the plan beside the models describes, on its clock."""
        try:
            self._faults = faults_of(os.environ)
            self._faults.start_slowly()
            plan = plan_beside(settings.repository)
            engine = simulated_engine(settings.limits, settings.step_seconds, plan)
        except (BadFaults, NoPlan) as error:
            raise BadSettings(str(error)) from None
        self._limits = settings.limits
        self._pacer = Pacer(engine, settings.limits.max_queue_size, self._faults)
        self._pacer.start()

    def submit(self, ask: Ask, sink: Sink) -> Ticket:
        """Begin an answer."""
        if ask.best_of > 1 or ask.lora is not None:
            raise Refused("the simulated runtime has neither sampling_param_best_of above 1 nor LoRA adapters")
        return begin(self._pacer, self._limits, _Words(ask.prompt), ask, sink, self._faults)

    def statistics(self) -> Statistics | None:
        """Report the engine's state."""
        return self._pacer.statistics()

    def close(self) -> None:
        """Stop the engine."""
        self._pacer.close()


class _Words:
    """The sequence of one request."""

    def __init__(self, prompt: str) -> None:
        self.prompt = tuple(prompt.split())
        self._text = prompt
        self._position = 0

    def write(self) -> Token:
        """Return the next word with a space before it."""
        token = Token(" " + word(self._text, self._position))
        self._position += 1
        return token

    def rest(self) -> str:
        """Return nothing: words are whole."""
        return ""
