"""The figures of a comparison, against values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from trtllm_kit.checkpoint.measures import (
    cosines,
    divergences,
    log_softmax,
    mean,
    percentile,
    perplexity,
    relative_errors,
)

LOGITS = arrays(np.float32, (3, 5), elements=st.floats(-50, 50, width=32))


def test_rows_of_zeros_have_a_cosine() -> None:
    """Equal ones count as equal, an answer that was lost counts as lost; 0/0 would be null in the manifest."""
    rows = np.array([[3.0, 4.0], [0.0, 0.0], [1.0, 0.0], [0.0, 0.0]], np.float32)
    other = np.array([[4.0, 3.0], [0.0, 0.0], [0.0, 0.0], [2.0, 0.0]], np.float32)
    assert pytest.approx([0.96, 1.0, 0.0, 0.0]) == cosines(rows, other).tolist()


@given(scale=st.sampled_from([1e-25, 1e-3, 1.0, 1e4, 1e25]), seed=st.integers(0, 99))
def test_the_cosine_of_a_whole_vocabulary_with_itself_is_one(scale: float, seed: int) -> None:
    """Equal logits lose nothing, however many and however large: a limit of cosine=100% holds for a plain copy."""
    rows = (np.random.default_rng(seed).normal(2.0, 1.0, (2, 20_011)) * scale).astype(np.float32)
    assert [1.0, 1.0] == cosines(rows, rows.copy()).tolist()


def test_relative_error_is_the_length_of_the_difference_by_that_of_the_first() -> None:
    """(3, 4) has length 5 and lies 1 from (3, 5); out of nothing all is error."""
    a = np.array([[3.0, 4.0], [3.0, 4.0], [0.0, 0.0], [0.0, 0.0]], np.float32)
    b = np.array([[3.0, 5.0], [0.0, 0.0], [0.0, 0.0], [1.0, 2.0]], np.float32)
    assert pytest.approx([0.2, 1.0, 0.0, 1.0]) == relative_errors(a, b).tolist()


def test_log_probabilities_of_two_tokens() -> None:
    """Logits log 3 and 0 are odds of three to one, however far both are moved."""
    rows = np.array([[math.log(3), 0.0], [math.log(3) + 80.0, 80.0], [-200.0, -200.0]], np.float32)
    expected = np.log([[0.75, 0.25], [0.75, 0.25], [0.5, 0.5]])
    np.testing.assert_allclose(expected, log_softmax(rows), atol=1e-5)


def test_divergence_of_two_coins() -> None:
    """KL((3/4, 1/4) || (1/2, 1/2)) = 3/4 log 3/2 + 1/4 log 1/2 = 0.1308 nats; the other way round 0.1438."""
    odd, even = np.log([[0.75, 0.25]]), np.log([[0.5, 0.5]])
    assert pytest.approx([0.130812], abs=1e-6) == divergences(odd, even).tolist()
    assert pytest.approx([0.143841], abs=1e-6) == divergences(even, odd).tolist()


def test_a_token_that_never_comes_costs_nothing() -> None:
    """0 log 0 is 0: it has no part in the divergence, whatever the other side gives it."""
    never = np.array([[0.0, -np.inf]])
    assert [math.log(2)] == divergences(never, np.log([[0.5, 0.5]])).tolist()


@given(a=LOGITS, b=LOGITS)
def test_divergence_is_never_below_zero_and_zero_of_the_same(a: np.ndarray, b: np.ndarray) -> None:
    """Gibbs' inequality, for any two rows of logits; equal rows give exactly zero."""
    log_a, log_b = log_softmax(a), log_softmax(b)
    assert (divergences(log_a, log_b) >= 0).all()
    assert [0.0, 0.0, 0.0] == divergences(log_a, log_a).tolist()


def test_perplexity_of_even_odds_is_the_number_of_tokens() -> None:
    """A model that knows nothing of 32 tokens is as unsure as among 32; a sure one has perplexity 1."""
    assert pytest.approx(32.0) == perplexity([math.log(32)] * 7)
    assert 1.0 == perplexity([0.0, 0.0])
    assert pytest.approx(4.0) == perplexity([math.log(2), math.log(8)])
    assert math.inf == perplexity([1000.0])


@pytest.mark.parametrize(("share", "expected"), [(0.99, 99.0), (0.5, 50.0), (1.0, 100.0), (0.0, 1.0), (0.991, 100.0)])
def test_percentile_is_a_value_that_was_measured(share: float, expected: float) -> None:
    """Of 1 to 100, the 99th percentile is 99: nearest rank, nothing in between."""
    assert expected == percentile(np.arange(100.0, 0.0, -1.0), share)


@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), order=st.randoms())
def test_a_mean_does_not_depend_on_the_order(values: list[float], order: object) -> None:
    """Exactly: what is the same report has the same bytes."""
    mixed = list(values)
    order.shuffle(mixed)  # type: ignore[attr-defined]
    assert mean(values) == mean(mixed)


def test_a_mean_of_what_is_not_finite_is_not_finite() -> None:
    """It must not be lost in a sum."""
    assert math.isnan(mean([1.0, math.nan]))
    assert math.inf == mean([1.0, math.inf])
    assert math.isnan(mean([]))
