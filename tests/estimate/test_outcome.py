"""What the figures of a simulation mean, each on numbers that can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.estimate.replicas import Even, Straight, replica
from trtllm_kit.checkpoint import measures
from trtllm_kit.estimate.batching import simulate
from trtllm_kit.estimate.gaps import Longest
from trtllm_kit.estimate.outcome import Served, Slo
from trtllm_kit.estimate.recorder import MOST_MOMENTS
from trtllm_kit.estimate.spread import NOTHING, percentile, spread, spread_of
from trtllm_kit.estimate.workload import Burst, Trace, Workload, closed_loop, fixed, within

ONE = Served(
    number=0,
    arrival=1.0,
    scheduled=1.5,
    first=2.0,
    last=6.0,
    prompt=100,
    answer=5,
    reused=0,
    pauses=0,
    longest_gap=1.5,
)


def test_time_to_first_token() -> None:
    """TTFT is from the client's request to the first token, with queue and prompt: 2.0 - 1.0."""
    assert 1.0 == ONE.ttft


def test_time_per_output_token() -> None:
    """TPOT leaves out the first token: 4 s over the 4 tokens after it."""
    assert 1.0 == ONE.tpot


def test_end_to_end() -> None:
    """End to end is from the client's request to the last token."""
    assert 5.0 == ONE.e2e


def test_queue() -> None:
    """The queue ends when a step takes the request in."""
    assert 0.5 == ONE.queue


def test_answer_of_one_token_has_no_tpot() -> None:
    """An answer of one token has no time per further token, and no speed."""
    one = replace(ONE, answer=1, last=2.0)
    assert (0.0, 0.0) == (one.tpot, one.tokens_per_second)


def test_limits_are_kept_when_equal() -> None:
    """A figure exactly at its limit keeps it; above it is broken, and named."""
    assert () == Slo(ttft=1.0, tpot=1.0, gap=1.5, e2e=5.0).broken_by(ONE)
    assert ("tpot", "gap") == Slo(ttft=1.0, tpot=0.9, gap=1.4).broken_by(ONE)


def test_goodput() -> None:
    """Goodput counts only answers that kept every limit, in the same time: of 4 over 2 slots the first 2."""
    workload = Workload(fixed(10), fixed(10), Burst(), 4)
    outcome = simulate(replica(max_batch_size=2), Even(), workload)
    slo = Slo(ttft=2.0)
    assert (4 / 20, 2 / 20, 0.5) == (outcome.requests_per_second, outcome.goodput(slo), outcome.kept_share(slo))


def test_refused_requests_break_every_promise() -> None:
    """A refused request counts as one that kept nothing."""
    workload = Workload(within(0.01, 9000), fixed(10), Burst(), 20)
    outcome = simulate(replica(chunked_prefill=False, max_num_tokens=4000), Even(), workload)
    assert len(outcome.served) / 20 == outcome.kept_share(Slo())


def test_output_rate_counts_the_end() -> None:
    """Tokens a second over the whole time include the emptying of the engine at the end."""
    outcome = simulate(replica(), Even(), Workload(fixed(10), fixed(10), Trace((0.0, 4.5)), 2))
    assert (pytest.approx(20 / 15), 15) == (outcome.output_tokens_per_second, outcome.seconds)


def test_a_wait_that_grows_lags() -> None:
    """Requests of 11 steps on one slot, one every 5 s: each waits 6 s longer than the one before, 1.2 s a second."""
    workload = Workload(fixed(10), fixed(11), Trace(tuple(5.0 * number for number in range(30))), 30)
    assert pytest.approx(6 / 5) == simulate(replica(max_batch_size=1), Even(), workload).lag
    assert 0.01 > simulate(replica(max_batch_size=64), Even(), workload).lag


def test_steps_by_kind() -> None:
    """Steps with a prompt in them are counted apart from those that only generate, with mean sizes."""
    outcome = simulate(replica(), Even(), Workload(fixed(100), fixed(11), Burst(), 4))
    assert (1, 400, 0) == (
        outcome.prompt_steps.count,
        outcome.prompt_steps.prompt_tokens,
        outcome.prompt_steps.sequences,
    )
    assert (10, 4, 10.0) == (
        outcome.generation_steps.count,
        outcome.generation_steps.sequences,
        outcome.generation_steps.seconds,
    )


def test_timeline_is_bounded() -> None:
    """A timeline has a bounded number of points in order, however long the run."""
    outcome = simulate(replica(), Straight(), closed_loop(within(0.5, 100), within(0.5, 100), 16, rounds=60))
    times = [moment.time for moment in outcome.timeline]
    assert sorted(times) == times
    assert MOST_MOMENTS // 2 - 1 <= len(times) <= MOST_MOMENTS


def test_timeline_shows_the_prompts_of_a_step() -> None:
    """A point of the timeline says how many prompt tokens the step before it read."""
    outcome = simulate(replica(), Even(), Workload(fixed(100), fixed(11), Burst(), 4))
    assert [(1.0, 400), (11.0, 0)] == [(moment.time, moment.prompt_tokens) for moment in outcome.timeline]


def test_shares_over_time() -> None:
    """Two requests that reserve 2 of 8 blocks each hold half of the cache for as long as they run."""
    workload = Workload(fixed(32), fixed(32), Burst(), 2)
    outcome = simulate(replica(kv_tokens=256), Even(), workload)
    assert (0.5, pytest.approx(0.5)) == (outcome.most_held, outcome.mean_held)


values = st.lists(st.floats(0, 1e6), min_size=1, max_size=50)


@given(values, st.floats(0, 1))
def test_one_percentile(numbers: list[float], share: float) -> None:
    """The percentile is the one the quality report has: nearest rank."""
    expected = measures.percentile(np.array(numbers), share)
    assert expected == percentile(((number, 1) for number in numbers), share)


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(1, 5)), min_size=1, max_size=20), st.floats(0, 1))
def test_counts_stand_for_copies(pairs: list[tuple[float, int]], share: float) -> None:
    """A value with a count is as many values."""
    copies = [(value, 1) for value, count in pairs for _ in range(count)]
    assert percentile(copies, share) == percentile(pairs, share)


def test_spread() -> None:
    """Of 1 to 100 the percentiles are 50, 90, 95 and 99, the mean 50.5, the most 100."""
    found = spread_of(float(number) for number in range(100, 0, -1))
    assert (100, 50.5, 50, 90, 95, 99, 100) == (
        found.count,
        found.mean,
        found.p50,
        found.p90,
        found.p95,
        found.p99,
        found.most,
    )


def test_spread_of_nothing() -> None:
    """The spread of no values counts none, and a value without a count is none."""
    assert NOTHING == spread([]) == spread([(3.0, 0)])


def test_percentile_of_nothing() -> None:
    """There is no percentile of nothing."""
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


@given(st.lists(st.floats(0, 100), max_size=30), st.integers(0, 30))
def test_longest_since(gaps: list[float], since: int) -> None:
    """The longest gap since a moment is the largest of those added after it."""
    longest = Longest()
    for gap in gaps:
        longest.add(gap)
    assert max(gaps[since:], default=0.0) == longest.since(since)
