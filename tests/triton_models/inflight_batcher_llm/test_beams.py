"""Beam search in the stand-in for the backend: which answers are found, in which order."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beams import Beam, Search

VOCABULARY = 4


@dataclass
class Table:
    """A model of four tokens: what may come next follows from what was written, by a seed."""

    seed: int
    states: list[tuple[list[int], list[int]]] = field(default_factory=list)
    """What the state of a beam was, and what the beam had written."""

    def log_probabilities(self, _row: Any, beam: Beam) -> Any:
        """Return those of the next token; the state is what was written."""
        beam.state = [*(beam.state or []), *beam.ids[-1:]]
        self.states.append((beam.state, beam.ids))
        return self.after(tuple(beam.ids))

    def after(self, ids: tuple[int, ...]) -> Any:
        """Return the logarithms of the probabilities after these tokens."""
        chances = np.random.default_rng([self.seed, *ids, len(ids)]).dirichlet(np.ones(VOCABULARY))
        return np.log(chances)


def row(beams: int, most: int, end: int = -1, **more: Any) -> Any:
    """Ask for so many beams."""
    return SimpleNamespace(**({"beams": beams, "most": most, "end": end, "stops": (), "len_penalty": 0.0} | more))


def found(model: Table, asked: Any) -> list[Beam]:
    """Search to the end."""
    search = Search(model, asked)  # type: ignore[arg-type]
    while not search.over:
        search.step()
    return search.beams


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), most=st.integers(1, 3))
def test_as_many_beams_as_answers_find_the_best_of_all(seed: int, most: int) -> None:
    """With every answer in the beam it is an exhaustive search: the same answers, in the same order."""
    model = Table(seed)
    every = {
        ids: sum(float(model.after(ids[:at])[one]) for at, one in enumerate(ids))
        for ids in itertools.product(range(VOCABULARY), repeat=most)
    }
    best = sorted(every, key=lambda ids: -every[ids])

    beams = found(model, row(VOCABULARY**most, most))

    assert best == [tuple(beam.ids) for beam in beams]
    assert pytest.approx([every[ids] for ids in best]) == [sum(beam.log_probs) for beam in beams]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), beams=st.integers(2, 4), end=st.integers(0, 3))
def test_scores_fall_and_an_answer_ends_with_its_end_token(seed: int, beams: int, end: int) -> None:
    """Best first; after the end token nothing more is in an answer, and none is longer than was asked."""
    answers = found(Table(seed), row(beams, 5, end))

    scores = [sum(one.log_probs) for one in answers]
    assert sorted(scores, reverse=True) == scores
    assert len({tuple(one.ids) for one in answers}) == len(answers)
    assert all(end not in one.ids[:-1] and len(one.ids) <= 5 for one in answers)
    assert all(len(one.ids) == 5 or one.ids[-1] == end for one in answers)


def test_every_answer_has_a_state_of_its_own() -> None:
    """The model reads for each beam what that beam wrote, whatever the others that began alike did."""
    model = Table(3)
    found(model, row(3, 4))

    assert all(state == written for state, written in model.states)
    assert {0, 1, 2, 3} == {len(written) for _, written in model.states}


def test_a_length_penalty_prefers_longer_answers() -> None:
    """Divided by its length, an answer of many likely tokens is before a short one."""
    long, short = Beam([1] * 4, [-0.5] * 4), Beam([2], [-1.0])

    assert [True, False] == [long.score(power) < short.score(power) for power in (0.0, 1.0)]


def test_a_stop_sequence_ends_an_answer() -> None:
    """As the end token does, for the answer that it is in."""
    model = Table(5)
    (first, *_) = found(model, row(2, 4))
    answers = found(model, row(2, 4, stops=(tuple(first.ids[:2]),)))

    assert tuple(first.ids[:2]) in {tuple(one.ids) for one in answers}
