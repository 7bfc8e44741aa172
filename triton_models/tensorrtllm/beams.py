"""Beam search: the most probable answers side by side, and the turn of a request that asks for them.

Every step each answer that goes on offers its likeliest tokens, and the best of all offers go on; an answer that has
ended keeps its place as long as it is among the best. The score is the sum of log probabilities over the length to
the power of ``len_penalty``. The cache of the pacer is counted for one sequence.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine_tensors import Row
from runtime import Finish
from turns import Source, Turn


@dataclass
class Beam:
    """One answer, from the prompt on."""

    ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    over: bool = False
    state: Any = None
    """What the model keeps of it; None before the prompt was read."""

    def score(self, penalty: float) -> float:
        """Return what it is compared by."""
        return sum(self.log_probs) / max(1, len(self.ids)) ** penalty


class Search:
    """The answers to one row."""

    def __init__(self, model: Source, row: Row) -> None:
        """Begin with the prompt alone."""
        self._model, self._row = model, row
        self.beams = [Beam()]
        """Best first."""

    @property
    def over(self) -> bool:
        """Whether every answer has ended."""
        return all(beam.over for beam in self.beams)

    def step(self) -> None:
        """Let every answer that goes on have one more token."""
        offers = [(beam.score(self._row.len_penalty), beam, -1, 0.0) for beam in self.beams if beam.over]
        for beam in self.beams:
            offers += [] if beam.over else self._offers(beam)
        offers.sort(key=lambda offer: -offer[0])
        self.beams = [self._taken(*offer[1:]) for offer in offers[: self._row.beams]]

    def _offers(self, beam: Beam) -> list[tuple[float, Beam, int, float]]:
        found = self._model.log_probabilities(self._row, beam)
        best = np.argsort(-found, kind="stable")[: self._row.beams]
        length = (len(beam.ids) + 1) ** self._row.len_penalty
        before = sum(beam.log_probs)
        return [((before + float(found[one])) / length, beam, int(one), float(found[one])) for one in best]

    def _taken(self, beam: Beam, token: int, log_prob: float) -> Beam:
        if token < 0:
            return beam
        ids = [*beam.ids, token]
        ended = token == self._row.end or any(tuple(ids[-len(one) :]) == one for one in self._row.stops)
        over = ended or len(ids) >= self._row.most
        return Beam(ids, [*beam.log_probs, log_prob], over, None if over else copy.deepcopy(beam.state))


class BeamTurn(Turn):
    """A row that is answered by several beams, in one response at the end."""

    def _begin(self, source: Source) -> None:
        self._search = Search(source, self.row)

    def tokens(self, count: int) -> bool:
        """Make so many steps; whether every answer ended with them."""
        for _ in range(count):
            if not self._search.over:
                self._search.step()
        self._faults.wrote(count)
        return self._search.over

    def end(self) -> None:
        """Send all answers, best first."""
        beams, cost = self._search.beams, self.entry.performance
        before = [] if self.row.exclude_input else list(self.row.prompt)
        written = max(len(beam.ids) for beam in beams)
        self.finish = Finish(
            reason="length" if written >= self.row.most else "stop",
            prompt_tokens=len(self.row.prompt),
            output_tokens=sum(len(beam.ids) for beam in beams),
            performance=cost,
        )
        ids = [[*before, *beam.ids] for beam in beams]
        self._close(self._replies.last(self.row, ids, [beam.log_probs for beam in beams], written, cost))
