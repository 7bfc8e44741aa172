"""The sampler: greedy, filters, seeds and penalties."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtllm_kit.errors import UsageError
from trtllm_kit.reference.sampling import Sampler

LOGITS = np.log(np.array([0.1, 0.5, 0.15, 0.25], dtype=np.float32))


def picks(count: int, **settings: float) -> list[int]:
    """Pick from the same logits many times."""
    sampler = Sampler(**settings)
    return [sampler.pick(LOGITS) for _ in range(count)]


def test_temperature_zero_takes_the_most_likely() -> None:
    """Greedy decoding needs no random number."""
    assert [1, 1, 1] == picks(3)


def test_shares_of_many_draws_are_the_probabilities() -> None:
    """At temperature one 20,000 draws lie within a point of the distribution."""
    drawn = Counter(picks(20_000, temperature=1.0, seed=4))
    for token, share in enumerate([0.1, 0.5, 0.15, 0.25]):
        assert drawn[token] / 20_000 == pytest.approx(share, abs=0.01)


def test_a_low_temperature_sharpens() -> None:
    """At temperature 0.25 the odds of tokens 1 and 3 grow from 2:1 to 16:1."""
    drawn = Counter(picks(20_000, temperature=0.25, seed=4))
    assert drawn[1] / drawn[3] == pytest.approx(16, rel=0.1)


def test_top_k_keeps_the_k_most_likely() -> None:
    """With top_k 2 only tokens 1 and 3 remain."""
    assert {1, 3} == set(picks(300, temperature=1.0, top_k=2))


@pytest.mark.parametrize(("top_p", "kept"), [(0.4, {1}), (0.6, {1, 3}), (0.8, {1, 3, 2}), (1.0, {0, 1, 2, 3})])
def test_top_p_keeps_the_smallest_set_that_reaches_it(top_p: float, kept: set[int]) -> None:
    """Tokens of 0.5, 0.25 and 0.15 reach 0.5, 0.75 and 0.9."""
    assert kept == set(picks(400, temperature=1.0, top_p=top_p))


@given(seed=st.integers(0, 2**31), temperature=st.floats(0.1, 3.0))
def test_the_same_seed_gives_the_same_tokens(seed: int, temperature: float) -> None:
    """Two samplers with one seed agree."""
    assert picks(20, temperature=temperature, seed=seed) == picks(20, temperature=temperature, seed=seed)


def test_frequency_penalty_grows_with_each_pick() -> None:
    """Token 1 leads token 3 by ln 2, so one pick at penalty 0.5 is not enough, and two are."""
    assert [1, 1, 3] == picks(3, frequency_penalty=0.5)


def test_presence_penalty_counts_once() -> None:
    """After each of 1 and 3 was picked both lost the same, and 1 leads again."""
    assert [1, 3, 1, 1] == picks(4, presence_penalty=0.7)


def test_logits_are_left_as_they_were() -> None:
    """Penalties work on a copy."""
    before = LOGITS.copy()
    picks(4, frequency_penalty=1.0, presence_penalty=1.0)
    np.testing.assert_array_equal(before, LOGITS)


@pytest.mark.parametrize("bad", [{"temperature": -1.0}, {"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.1}])
def test_a_setting_outside_its_range_is_refused(bad: dict[str, float]) -> None:
    """The message names the field and its value."""
    with pytest.raises(UsageError, match=next(iter(bad))):
        Sampler(**bad)


def test_a_nan_setting_is_refused() -> None:
    """NaN is inside no range."""
    with pytest.raises(UsageError):
        Sampler(temperature=float("nan"))
