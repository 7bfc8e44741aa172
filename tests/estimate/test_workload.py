"""The traffic of a simulation."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtllm_kit.errors import UsageError
from trtllm_kit.estimate.workload import (
    Burst,
    ClosedLoop,
    Poisson,
    Ramp,
    Segment,
    Trace,
    Traffic,
    Workload,
    closed_loop,
    first_to_nth,
    fixed,
    listed,
    within,
)


def many(arrivals: object, requests: int = 2000) -> list[float]:
    """Return the times at which requests come."""
    workload = Workload(fixed(8), fixed(8), arrivals, requests)  # type: ignore[arg-type]
    return [time for time, _ in workload.opening()]


@given(st.integers(0, 100), st.integers(1, 50))
def test_same_seed_same_lengths(seed: int, requests: int) -> None:
    """Lengths follow from the seed and the request's number alone, however many requests there are."""
    short, long = (Workload(within(0.5, 100), within(0.5, 100), Burst(), n, seed) for n in (requests, 60))
    assert short.lengths == long.lengths[:requests]


def test_other_seed_other_lengths() -> None:
    """Another seed draws other lengths."""
    first, second = (Workload(within(0.5, 1000), fixed(1), Burst(), 20, seed) for seed in (1, 2))
    assert first.lengths != second.lengths


@given(st.floats(0.01, 1.0), st.integers(1, 5000), st.integers(0, 99))
def test_lengths_within(share: float, tokens: int, seed: int) -> None:
    """Drawn lengths lie between the share of the nominal one and the nominal one, and have at least a token."""
    lengths = [prompt for prompt, _ in Workload(within(share, tokens), fixed(1), Burst(), 30, seed).lengths]
    assert max(1, round(share * tokens)) <= min(lengths)
    assert tokens >= max(lengths)


def test_listed_lengths_in_turn() -> None:
    """Recorded lengths are taken in turn, from the start again after the last."""
    assert [3, 5, 9, 3, 5] == [prompt for prompt, _ in Workload(listed((3, 5, 9)), fixed(1), Burst(), 5).lengths]


@pytest.mark.parametrize("make", [lambda: fixed(0), lambda: listed((4, 0)), lambda: closed_loop(fixed(1), fixed(1), 0)])
def test_nothing_is_no_length(make: object) -> None:
    """A length or a number of users of 0 is refused."""
    with pytest.raises(UsageError, match="0 in a workload"):
        make()  # type: ignore[operator]


def test_poisson_rate() -> None:
    """2,000 Poisson arrivals at 4 a second take 500 s, give or take four standard errors of 11 s."""
    assert 500 == pytest.approx(many(Poisson(4.0))[-1], abs=45)


def test_poisson_is_irregular() -> None:
    """The gaps of Poisson arrivals vary as much as their mean is long."""
    gaps = [after - before for before, after in pairwise(many(Poisson(4.0)))]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx((sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5, rel=0.1)


def test_burst() -> None:
    """A burst comes at time 0."""
    assert [0.0] * 5 == many(Burst(), 5)


def test_ramp() -> None:
    """The rate of a ramp goes from one figure to the other: the first gap is 1 s, the last but one near 1/9 s."""
    gaps = [after - before for before, after in pairwise(many(Ramp(1.0, 9.0), 101))]
    assert (1.0, pytest.approx(1 / 8.92)) == (gaps[0], gaps[-1])


def test_trace() -> None:
    """A trace is taken as it is, as far as there are requests."""
    assert [0.5, 0.75] == many(Trace((0.5, 0.75, 9.0)), 2)


def test_users_begin_together() -> None:
    """A closed loop begins with a request of each user, and no more than there are requests."""
    assert [4, 3] == [len(many(ClosedLoop(4), requests)) for requests in (10, 3)]


def test_users_go_on_when_answered() -> None:
    """In a closed loop the next request comes when one has ended and its user has thought."""
    traffic = Traffic(Workload(fixed(1), fixed(1), ClosedLoop(2, think_seconds=3.0), 3))
    assert [(0.0, 0), (0.0, 1)] == list(traffic.due(0.0))
    traffic.end(1, 10.0)
    assert [(13.0, 2)] == list(traffic.due(13.0))
    traffic.end(0, 20.0)
    assert inf == traffic.next_time


def test_open_loops_do_not_wait() -> None:
    """Where arrivals come by a rate an answer brings no other request."""
    traffic = Traffic(Workload(fixed(1), fixed(1), Burst(), 2))
    list(traffic.due(0.0))
    traffic.end(0, 1.0)
    assert inf == traffic.next_time


def test_shared_beginning() -> None:
    """With two system prompts in turn, requests 0 and 2 share a beginning, and 0 and 1 do not."""
    requests = Workload(fixed(100), fixed(1), Burst(), 3, shared_prefix=40, prefixes=2).request
    assert (Segment(1, 40),) == requests(0).shared == requests(2).shared
    assert (Segment(2, 40),) == requests(1).shared


def test_shared_beginning_is_part_of_the_prompt() -> None:
    """A common beginning longer than the prompt is cut to it: the prompt's length stays as drawn."""
    request = Workload(fixed(30), fixed(1), Burst(), 1, shared_prefix=40).request(0)
    assert (30, (Segment(1, 30),)) == (request.prompt, request.shared)


def test_conversations_repeat_themselves() -> None:
    """A later turn's prompt begins with the prompt and the answer of the turn before."""
    workload = Workload(within(0.5, 64), within(0.5, 32), ClosedLoop(1), 6, turns=3, shared_prefix=10)
    for before, after in ((0, 1), (1, 2), (3, 4)):
        earlier, later = workload.request(before), workload.request(after)
        spoken = Segment(earlier.answer_key, earlier.answer)
        assert (*earlier.shared, spoken) == later.shared[: len(earlier.shared) + 1]


def test_prompts_of_conversations_are_whole() -> None:
    """The segments of a conversation's prompt add up to its length."""
    workload = Workload(within(0.5, 64), within(0.5, 32), ClosedLoop(1), 6, turns=3, shared_prefix=10)
    requests = [workload.request(number) for number in range(6)]
    assert [one.prompt for one in requests] == [sum(part.tokens for part in one.shared) for one in requests]


def test_no_segment_is_empty() -> None:
    """Where the common beginning is the whole first prompt, no empty text stands behind it."""
    workload = Workload(fixed(10), fixed(4), ClosedLoop(1), 2, turns=2, shared_prefix=10)
    assert [[10], [10, 4, 10]] == [[part.tokens for part in workload.request(n).shared] for n in range(2)]


def test_turns_follow_at_once() -> None:
    """After a turn the next one of the same conversation comes; after the last, another conversation."""
    workload = Workload(fixed(8), fixed(8), ClosedLoop(1), 6, turns=3)
    assert [(5.0, 1), (5.0, 2), (5.0, 3), None] == [
        workload.following(n, 5.0, o) for n, o in ((0, 1), (1, 1), (2, 1), (5, 2))
    ]


def test_first_to_nth() -> None:
    """The published method has 200 prompts and answers of exactly 512 tokens, with no warm-up."""
    workload = first_to_nth(fixed(700))
    assert (200, {(700, 512)}, 0) == (workload.requests, set(workload.lengths), workload.warmup)


def test_closed_loop_warms_up() -> None:
    """The first round of a closed loop is not counted, unless it is the only one."""
    assert [8, 0] == [closed_loop(fixed(1), fixed(1), 8, rounds=rounds).warmup for rounds in (3, 1)]


@given(st.integers(1, 4000), st.integers(1, 4000), st.integers(0, 99))
def test_longer_prompts_change_nothing_else(one: int, other: int, seed: int) -> None:
    """With longer bounds each prompt of a seed is at least as long, and every answer stays as it was."""
    short, long = (
        Workload(within(0.8, tokens), within(0.8, 300), Burst(), 30, seed).lengths for tokens in sorted((one, other))
    )
    assert [answer for _, answer in short] == [answer for _, answer in long]
    assert all(less <= more for (less, _), (more, _) in zip(short, long, strict=True))
