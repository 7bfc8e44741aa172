"""How many tokens a sequence gets in so many generation steps."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.estimate.replicas import drafting
from trtllm_kit.estimate.draft import accepted_tokens
from trtllm_kit.estimate.pace import Drawn, Expected, Pace, Paces, Single

chances = st.lists(st.floats(0, 1), min_size=1, max_size=6)


def is_first(pace: Pace, tokens: int) -> bool:
    """Whether a pace's step for so many tokens is the first that has them."""
    step = pace.steps_for(tokens)
    return pace.after(step) >= tokens and (step == 0 or pace.after(step - 1) < tokens)


@given(st.integers(0, 5000))
def test_one_token_a_step(tokens: int) -> None:
    """Without drafts a step brings a token."""
    assert is_first(Single(), tokens)


@given(chances, st.integers(0, 5000))
def test_the_mean_in_whole_tokens(acceptance: list[float], tokens: int) -> None:
    """At the mean the step for so many tokens is the first that has them, whatever the fraction."""
    assert is_first(Expected(1 + accepted_tokens(acceptance, len(acceptance))), tokens)


@given(chances, st.integers(1, 500), st.integers(0, 99))
def test_drawn_steps(acceptance: list[float], tokens: int, seed: int) -> None:
    """Drawn steps bring at least the model's own token and at most all drafts beside it, until the answer is there."""
    pace = Drawn(acceptance, len(acceptance), tokens, Random(seed))
    last = pace.steps_for(tokens)
    each = [pace.after(step + 1) - pace.after(step) for step in range(last)]
    assert is_first(pace, tokens)
    assert all(1 <= more <= 1 + len(acceptance) for more in each)


def test_drawn_as_often_as_said() -> None:
    """Over 40,000 tokens the drawn steps bring the mean, to 1 %."""
    acceptance = (0.8, 0.6, 0.5)
    steps = Drawn(acceptance, 3, 40_000, Random(1)).steps_for(40_000)
    assert pytest.approx(1 + accepted_tokens(acceptance, 3), rel=0.01) == 40_000 / steps


def test_an_answer_is_drawn_alike() -> None:
    """What an answer accepts follows from the seed and its number alone, not from what was drawn before."""
    first, second = Paces(drafting(0.7, 0.5), 3), Paces(drafting(0.7, 0.5), 3)
    first.of(1, 1, 100)
    same = [paces.of(2, 1, 100).steps_for(100) for paces in (first, second)]
    assert same[0] == same[1]


def test_rates() -> None:
    """The rate is 1 without drafts, the mean with them, and unknown before it is drawn."""
    drafts = drafting(0.5, 0.5)
    assert [1.0, 1.75, None] == [Paces(*one).rate for one in ((None, None), (drafts, None), (drafts, 1))]
