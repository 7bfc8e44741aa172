"""Whole simulations: what must hold for every workload and every replica."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.estimate.replicas import Even, Straight, drafting, replica
from trtllm_kit.estimate import batching
from trtllm_kit.estimate.batching import simulate
from trtllm_kit.estimate.engine import Engine
from trtllm_kit.estimate.outcome import Outcome
from trtllm_kit.estimate.subject import Subject
from trtllm_kit.estimate.workload import (
    Burst,
    ClosedLoop,
    Poisson,
    Workload,
    closed_loop,
    first_to_nth,
    fixed,
    within,
)
from trtllm_kit.plan.parallelism import Split

SPLITS = (Split(4), Split(2, pipeline=2), Split(1, pipeline=4))
SPECULATIONS = (None, drafting(0.8, 0.6, 0.5), drafting(0.3))

workloads = st.builds(
    Workload,
    prompts=st.sampled_from((fixed(300), within(0.3, 900), within(0.9, 64))),
    answers=st.sampled_from((fixed(1), fixed(70), within(0.1, 200))),
    arrivals=st.sampled_from((ClosedLoop(1), ClosedLoop(9), ClosedLoop(5, 0.3), Poisson(8.0), Burst())),
    requests=st.integers(1, 24),
    seed=st.integers(0, 9),
    shared_prefix=st.sampled_from((0, 100)),
    turns=st.sampled_from((1, 3)),
    draws=st.booleans(),
)
replicas = st.builds(
    replica,
    max_batch_size=st.sampled_from((1, 3, 16)),
    max_num_tokens=st.sampled_from((128, 1024)),
    kv_tokens=st.sampled_from((3200, 6400, 400_000)),
    max_seq_len=st.just(4096),
    block_reuse=st.booleans(),
    scheduler_policy=st.sampled_from(("GUARANTEED_NO_EVICT", "MAX_UTILIZATION")),
    overlap_scheduler=st.booleans(),
    speculation=st.sampled_from(SPECULATIONS),
    split=st.sampled_from(SPLITS),
    attention_dp=st.booleans(),
)
quick = settings(max_examples=100, deadline=None)


def figures(outcome: Outcome) -> list[tuple[Any, ...]]:
    """Return what was found of every request, by number."""
    return sorted((one.number, one.scheduled, one.first, one.last, one.pauses) for one in outcome.served)


@quick
@given(replicas, workloads)
def test_no_request_is_lost(subject: Subject, workload: Workload) -> None:
    """Every request is answered or refused, once."""
    outcome = simulate(subject, Straight(), workload)
    refused = sum(count for _, count in outcome.refused)
    assert len({one.number for one in outcome.served}) == len(outcome.served)
    assert len(outcome.served) + refused == workload.requests or (workload.turns > 1 and refused)


@quick
@given(replicas, workloads)
def test_tokens_that_go_out(subject: Subject, workload: Workload) -> None:
    """The tokens of all steps are the tokens of all answers."""
    outcome = simulate(subject, Straight(), workload)
    assert sum(one.answer for one in outcome.served) == outcome.output_tokens


@quick
@given(replicas, workloads)
def test_tokens_that_come_in(subject: Subject, workload: Workload) -> None:
    """The prompt tokens of all steps are those of all prompts, less what was reused; pauses alone add to it."""
    outcome = simulate(subject, Straight(), workload)
    read = sum(one.prompt - one.reused for one in outcome.served)
    computed = outcome.prompt_steps.count * outcome.prompt_steps.prompt_tokens
    assert (round(computed) >= read) if outcome.pauses else (read == round(computed))


@quick
@given(replicas, workloads)
def test_blocks_come_back(subject: Subject, workload: Workload) -> None:
    """When the last request is gone no block is held any more, and never were more held than there are."""
    engines: list[Engine] = []

    class Kept(Engine):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            engines.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batching, "Engine", Kept)
        outcome = simulate(subject, Straight(), workload)
    engines[0].advance()
    assert 0 == engines[0].state().kv_held
    assert 1 >= outcome.most_held


@quick
@given(replicas, workloads)
def test_order_of_events(subject: Subject, workload: Workload) -> None:
    """A request is sent, then taken in, then has its first token, then its last."""
    for one in simulate(subject, Straight(), workload).served:
        assert one.arrival <= one.scheduled < one.first <= one.last


@quick
@given(replicas, workloads)
def test_jumps_are_the_steps(subject: Subject, workload: Workload) -> None:
    """Jumping over equal steps gives what taking every step gives, to a thousandth of the time and to each pause."""
    jumped = figures(simulate(subject, Straight(), workload))
    stepped = figures(simulate(subject, Straight(), workload, exact=True))
    assert [(one[0], one[4]) for one in stepped] == [(one[0], one[4]) for one in jumped]
    for one, other in zip(stepped, jumped, strict=True):
        assert one[1:4] == pytest.approx(other[1:4], rel=1e-3)


@quick
@given(replicas, workloads)
def test_same_seed_same_outcome(subject: Subject, workload: Workload) -> None:
    """The same workload gives the same outcome, drawn drafts included."""
    first, second = (simulate(subject, Straight(), workload) for _ in range(2))
    assert first == second


@quick
@given(workloads, st.sampled_from(("GUARANTEED_NO_EVICT", "MAX_UTILIZATION")))
def test_gaps_are_the_time(workload: Workload, policy: str) -> None:
    """The gaps of all answers add up to the time from their first tokens to their last."""
    subject = replica(kv_tokens=3200, max_batch_size=16, max_num_tokens=1024, scheduler_policy=policy)
    outcome = simulate(subject, Straight(), workload)
    spoken = sum(one.last - one.first for one in outcome.served)
    assert pytest.approx(spoken, rel=1e-3, abs=1e-9) == outcome.gap.mean * outcome.gap.count


@given(st.sampled_from((1, 2, 4, 8, 16, 32)))
def test_more_users_are_slower(users: int) -> None:
    """Twice the users of a closed loop get no more tokens a second each, and the replica gives no fewer in all."""
    few, many = (
        simulate(replica(), Straight(), replace(closed_loop(fixed(500), fixed(300), count), cooldown=count))
        for count in (users, 2 * users)
    )
    assert many.tpot.mean >= few.tpot.mean
    assert many.output_tokens_per_second >= few.output_tokens_per_second


@given(st.floats(1.0, 20.0), st.integers(0, 20))
def test_more_load_waits_longer(rate: float, seed: int) -> None:
    """Where arrivals come closer together the mean queue is no shorter, in a replica that serves one at a time."""
    subject = replica(max_batch_size=1)
    queues = [
        simulate(subject, Straight(), Workload(fixed(200), fixed(20), Poisson(one), 40, seed)).queue.mean
        for one in (rate, 1.5 * rate)
    ]
    assert queues[0] <= queues[1] + 1e-9


def test_more_blocks_queue_less() -> None:
    """A larger cache admits more at once: the queue of 64 users gets shorter until all fit."""
    workload = closed_loop(within(0.8, 1000), within(0.8, 500), 64, rounds=4)
    means = [simulate(replica(kv_tokens=size), Straight(), workload).mean_queued for size in (20_000, 50_000, 200_000)]
    assert sorted(means, reverse=True) == means
    assert means[-1] < 2


def test_pauses_trade_gaps_for_first_tokens() -> None:
    """Over a cache that is too small pauses bring first tokens sooner and make the worst gaps longer."""
    workload = closed_loop(within(0.8, 1000), within(0.8, 1000), 64, rounds=4)
    reserve, pause = (
        simulate(replica(kv_tokens=40_000, scheduler_policy=policy), Straight(), workload)
        for policy in ("GUARANTEED_NO_EVICT", "MAX_UTILIZATION")
    )
    assert pause.ttft.p50 < reserve.ttft.p50
    assert pause.tpot.p99 > 1.5 * reserve.tpot.p99


def test_chunks_bound_the_gaps() -> None:
    """Smaller steps bound how long a prompt holds up running answers: the worst gap shrinks with max_num_tokens."""
    workload = closed_loop(fixed(8000), within(0.5, 300), 8)
    worst = [simulate(replica(max_num_tokens=tokens), Straight(), workload).gap.most for tokens in (512, 2048, 8192)]
    assert sorted(worst) == worst
    assert worst[2] > 5 * worst[0]


def test_reuse_shortens_first_tokens() -> None:
    """A common beginning of 3,000 of 3,200 tokens is computed once: the mean time to first token is a third or less."""
    workload = Workload(fixed(3200), fixed(50), ClosedLoop(4), 80, shared_prefix=3000, warmup=4)
    without, with_reuse = (simulate(replica(block_reuse=one), Straight(), workload) for one in (False, True))
    assert with_reuse.ttft.mean < without.ttft.mean / 3
    assert pytest.approx(2976 / 3200) == with_reuse.reused_share


def test_a_small_cache_forgets() -> None:
    """Conversations reuse less where others' text evicts theirs before their next turn."""
    workload = Workload(fixed(400), fixed(100), ClosedLoop(8), 160, turns=5)
    small, large = (
        simulate(replica(block_reuse=True, kv_tokens=size, max_batch_size=2), Straight(), workload)
        for size in (6400, 400_000)
    )
    assert (True, 0) == (small.evicted_blocks > 0, large.evicted_blocks)
    assert small.reused_share < 0.8 * large.reused_share


def test_first_to_nth_speed() -> None:
    """A single user's speed from first to 512th token is the inverse of the mean decode step."""
    outcome = simulate(replica(), Straight(), first_to_nth(fixed(1000), requests=3))
    step = Straight.STEP + Straight.SEQUENCE + Straight.CACHED * (1000 + 255)
    assert pytest.approx(1 / step) == outcome.user_tokens_per_second


class Hosted(Straight):
    """A clock that knows how long a request takes beside its steps."""

    request_seconds = 0.004
    reply_seconds = 0.020


def test_the_host_counts_to_the_first_token() -> None:
    """What a request takes beside its steps counts once to the first token and to the last, and to no gap."""
    workload = closed_loop(fixed(500), fixed(100), 1)
    plain, hosted = (simulate(replica(), clock, workload) for clock in (Straight(), Hosted()))
    assert pytest.approx(plain.ttft.mean + 0.024) == hosted.ttft.mean
    assert pytest.approx(plain.e2e.mean + 0.024) == hosted.e2e.mean
    assert pytest.approx(plain.tpot.mean) == hosted.tpot.mean


def test_the_host_does_not_idle_the_engine() -> None:
    """A user's next request is not put off by it: the engine is as busy as without."""
    workload = closed_loop(fixed(500), fixed(100), 4)
    plain, hosted = (simulate(replica(), clock, workload) for clock in (Straight(), Hosted()))
    assert plain.seconds == hosted.seconds


def test_warm_up_is_not_counted() -> None:
    """Requests of the warm-up are in no figure."""
    outcome = simulate(replica(), Straight(), replace(closed_loop(fixed(50), fixed(20), 4), warmup=7))
    assert list(range(7, 40)) == sorted(one.number for one in outcome.served)


def test_cool_down_is_not_counted() -> None:
    """Requests of the cool-down are in no latency, and what they do after the last counted answer is not simulated."""
    workload = replace(closed_loop(fixed(50), fixed(20), 4), cooldown=12)
    outcome = simulate(replica(), Straight(), workload)
    assert list(range(4, 28)) == sorted(one.number for one in outcome.served)
    assert max(one.last for one in outcome.served) == max(one.arrival for one in outcome.served[:1]) + outcome.seconds


def test_figures_of_a_full_load_do_not_depend_on_how_many_are_counted() -> None:
    """With a cool-down a load is as full for the last counted request as for the first: one round says what ten say."""
    short, long = (
        simulate(
            replica(), Straight(), Workload(within(0.8, 400), within(0.8, 300), ClosedLoop(64), requests, 0, 64, 96)
        )
        for requests in (64 + 64 + 96, 64 + 640 + 96)
    )
    assert long.tpot.mean == pytest.approx(short.tpot.mean, rel=0.01)
    assert long.mean_active == pytest.approx(short.mean_active, rel=0.01)


def test_refusals_are_counted_by_reason() -> None:
    """What can never run is refused with the limit, and the users go on with their next request."""
    workload = Workload(within(0.5, 6000), fixed(10), ClosedLoop(2), 40)
    outcome = simulate(replica(chunked_prefill=False, max_num_tokens=4000), Straight(), workload)
    too_long = sum(1 for prompt, _ in workload.lengths if prompt > 4000)
    assert too_long == sum(count for _, count in outcome.refused) == 40 - len(outcome.served)
    assert all("above max_num_tokens 4000" in why for why, _ in outcome.refused)


def test_balanced_stages_carry_more() -> None:
    """Many requests on 4 stages of a quarter's work each come near the speed of one stage of a quarter's work."""

    class Stages(Even):
        def stage_seconds(self, work: object) -> tuple[float, ...]:
            return (0.25,) * 4

    workload = replace(closed_loop(fixed(10), fixed(100), 64), cooldown=64)
    outcome = simulate(replica(split=Split(1, pipeline=4)), Stages(), workload)
    assert 64 * 0.97 < outcome.output_tokens_per_second <= 64
