"""What an estimate says of a run: the terms of its steps, which bind, and what is left out."""

from __future__ import annotations

import pytest

from tests.estimate.replicas import Straight, replica
from trtllm_kit.estimate.answer import mean_work
from trtllm_kit.estimate.batching import simulate
from trtllm_kit.estimate.step_time import StepClock
from trtllm_kit.estimate.workload import ClosedLoop, Workload, fixed


def test_parts_of_a_prompt_count_what_they_look_back_at() -> None:
    """Three pieces of 100 tokens each look back at 0, 100 and 200: at 100 in the mean, one prompt a step."""
    workload = Workload(fixed(300), fixed(5), ClosedLoop(1), 4)
    steps = simulate(replica(max_num_tokens=100, tokens_per_block=10), Straight(), workload).prompt_steps
    assert (12, 100, 1, 100) == (steps.count, steps.prompt_tokens, steps.prompts, steps.past)


@pytest.mark.parametrize(("prompt", "users"), [(120_000, 1), (2_000, 1), (500, 16)])
def test_the_mean_step_takes_as_long_as_the_steps_did(prompt: int, users: int) -> None:
    """What a run is explained by adds up to its time, for prompts in many pieces and for many prompts in one step."""
    subject = replica(max_seq_len=131_072)
    clock = StepClock(subject)
    outcome = simulate(subject, clock, Workload(fixed(prompt), fixed(20), ClosedLoop(users), 3 * users))
    steps = outcome.prompt_steps
    assert steps.seconds == pytest.approx(steps.count * clock.seconds(mean_work(clock, steps, chunked=True)), rel=0.02)
