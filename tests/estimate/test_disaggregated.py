"""Prompts on some servers and answers on others."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.estimate.replicas import Even, Straight, replica
from trtllm_kit.estimate.batching import simulate
from trtllm_kit.estimate.disaggregated import Side, Transfer, simulate_disaggregated
from trtllm_kit.estimate.outcome import Outcome
from trtllm_kit.estimate.workload import Burst, ClosedLoop, Poisson, Workload, closed_loop, fixed, within

LINK = Transfer(bytes_per_token=160e3, bytes_per_second=50e9, latency_seconds=2e-3)


def both(workload: Workload, prompts: int = 1, answers: int = 1, link: Transfer = LINK) -> Outcome:
    """Serve a workload on so many servers of each kind."""
    sides = (Side(replica(), Straight(), prompts), Side(replica(), Straight(), answers))
    return simulate_disaggregated(*sides, link, workload)


def test_first_token_by_hand() -> None:
    """Alone, the first token comes after the prompt's step and the transfer of its keys and values."""
    (one,) = both(Workload(fixed(1000), fixed(3), Burst(), 1)).served
    prompt = 10e-3 + 1000 * 3e-5 + 1e-9 * 1000 * 500
    sent = 2e-3 + 1000 * 160e3 / 50e9
    assert pytest.approx(prompt + sent) == one.ttft


def test_answers_by_hand() -> None:
    """The tokens after the first take a step each on the answering server, with the prompt in its cache."""
    (one,) = both(Workload(fixed(1000), fixed(3), Burst(), 1)).served
    decode = [10e-3 + 1e-4 + 2e-8 * context for context in (1000, 1001)]
    assert pytest.approx(sum(decode) / 2) == one.tpot


def test_answer_of_one_token() -> None:
    """An answer of one token ends on the prompt server: nothing is sent."""
    (one,) = both(Workload(fixed(1000), fixed(1), Burst(), 1)).served
    assert pytest.approx(10e-3 + 1000 * 3e-5 + 1e-9 * 1000 * 500) == one.e2e


def test_transfers_wait_for_each_other() -> None:
    """A prompt server sends one request after the other: of two of 0.75 s each the second joins a step later."""
    slow = Transfer(bytes_per_token=0.75, bytes_per_second=100.0)
    sides = (Side(replica(), Even()), Side(replica(), Even()))
    outcome = simulate_disaggregated(*sides, slow, Workload(fixed(100), fixed(5), Burst(), 2))
    assert [1.75, 2.75] == sorted(one.first for one in outcome.served)


def test_prompts_do_not_hold_up_answers() -> None:
    """Long prompts make gaps in answers of one server, and none where they are read elsewhere."""
    workload = closed_loop(within(0.8, 8000), within(0.5, 300), 8)
    together, apart = simulate(replica(), Straight(), workload), both(workload)
    assert together.gap.most > 10 * apart.gap.most


def test_more_prompt_servers_shorten_first_tokens() -> None:
    """Where prompts bind, two servers for them give first tokens sooner."""
    workload = Workload(fixed(4000), fixed(20), Poisson(5.0), 60)
    assert both(workload, prompts=2).ttft.mean < 0.8 * both(workload).ttft.mean


def test_what_an_answering_server_cannot_hold() -> None:
    """A request that only the prompt server could hold is refused at the start."""
    small = Side(replica(max_seq_len=1010), Straight())
    workload = Workload(fixed(1000), fixed(50), ClosedLoop(1), 3)
    outcome = simulate_disaggregated(Side(replica(), Straight()), small, LINK, workload)
    assert ((), (("1000 + 50 tokens, above max_seq_len 1010", 3),)) == (outcome.served, outcome.refused)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from((ClosedLoop(1), ClosedLoop(7), Poisson(6.0), Burst())),
    st.integers(1, 20),
    st.integers(1, 2),
    st.integers(1, 2),
    st.integers(0, 5),
)
def test_no_request_is_lost(arrivals: object, requests: int, prompts: int, answers: int, seed: int) -> None:
    """Every request is answered once, in order of events, and its tokens are those that go out."""
    workload = Workload(within(0.1, 900), within(0.02, 100), arrivals, requests, seed)  # type: ignore[arg-type]
    outcome = both(workload, prompts, answers)
    assert list(range(requests)) == sorted(one.number for one in outcome.served)
    assert all(one.arrival <= one.scheduled < one.first <= one.last for one in outcome.served)
    many = sum(one.answer for one in outcome.served if one.answer > 1)
    assert many == outcome.output_tokens
