"""Prompts that are held back for others."""

from __future__ import annotations

import pytest

from tests.estimate.replicas import Even, Straight, replica
from trtllm_kit.estimate.batching import simulate
from trtllm_kit.estimate.engine import Engine
from trtllm_kit.estimate.hold import EveryRank, FullStep
from trtllm_kit.estimate.workload import Request, closed_loop, fixed, within
from trtllm_kit.plan.parallelism import Split


def reading(engine: Engine, steps: int) -> list[int]:
    """Return the prompt tokens of the next steps."""
    runs = [engine.advance(most_steps=1) for _ in range(steps)]
    return [run.prompt_tokens for run in runs if run is not None]


def with_one_running(hold: FullStep | EveryRank, **changes: object) -> Engine:
    """Return an engine in which request 0 generates, and others came since."""
    engine = Engine(replica(**changes), Even(), hold=hold)
    engine.submit(0, Request(40, 200), 0.0)
    engine.advance(most_steps=1)
    return engine


def test_nothing_waits_in_an_idle_engine() -> None:
    """Where nothing generates a prompt goes at once, however small."""
    engine = Engine(replica(), Even(), hold=FullStep(0.9, 10))
    engine.submit(0, Request(40, 5), 0.0)
    assert [40] == reading(engine, 1)


def test_waits_for_a_full_step() -> None:
    """Beside a running answer a prompt waits until the step is full enough: here until the second has come."""
    engine = with_one_running(FullStep(0.5, 50), max_num_tokens=200)
    engine.submit(1, Request(60, 5), 0.5)
    first = reading(engine, 3)
    engine.submit(2, Request(60, 5), 3.5)
    assert ([0, 0, 0], [120]) == (first, reading(engine, 1))


def test_waits_no_longer_than_that() -> None:
    """After the given rounds a prompt goes although the step is not full, and the next one waits as long again."""
    engine = with_one_running(FullStep(0.5, 3), max_num_tokens=200)
    engine.submit(1, Request(60, 90), 0.5)
    first = reading(engine, 4)
    engine.submit(2, Request(60, 90), 4.5)
    assert ([0, 0, 0, 60], [0, 0, 0, 60]) == (first, reading(engine, 4))


def two_ranks(rule: EveryRank) -> Engine:
    """Return an engine of two ranks with a running answer on each."""
    engine = Engine(replica(attention_dp=True, split=Split(2)), Even(), hold=rule)
    for number in range(2):
        engine.submit(number, Request(40, 200), 0.0)
    engine.advance(most_steps=1)
    return engine


def test_ranks_wait_for_each_other() -> None:
    """With a prompt on one rank alone it waits until the other rank has one, and both go together."""
    engine = two_ranks(EveryRank(50, 0))
    engine.submit(2, Request(60, 5), 0.5)
    first = reading(engine, 3)
    engine.submit(3, Request(70, 5), 3.5)
    assert ([0, 0, 0], [130]) == (first, reading(engine, 1))


def test_ranks_stop_waiting() -> None:
    """After the given rounds a prompt goes although the other rank has none."""
    engine = two_ranks(EveryRank(4, 0))
    reading(engine, 3)
    engine.submit(2, Request(60, 5), 3.5)
    assert 60 in reading(engine, 4)


def test_ranks_wait_for_more() -> None:
    """When each rank has a prompt they wait so many rounds more for further ones."""
    engine = two_ranks(EveryRank(50, 2))
    for number in (2, 3):
        engine.submit(number, Request(60, 5), 0.5)
    assert [0, 0, 120] == reading(engine, 3)


def test_ranks_wait_for_more_each_time() -> None:
    """The rounds for further prompts count anew for the next ones."""
    engine = two_ranks(EveryRank(50, 2))
    for number in (2, 3):
        engine.submit(number, Request(60, 90), 0.5)
    first = reading(engine, 3)
    for number in (4, 5):
        engine.submit(number, Request(60, 90), 3.5)
    assert ([0, 0, 120], [0, 0, 120]) == (first, reading(engine, 3))


def test_ranks_without_answers_do_not_wait() -> None:
    """Where a rank generates nothing a prompt goes at once."""
    engine = Engine(replica(attention_dp=True), Even(), hold=EveryRank(50, 5))
    engine.submit(0, Request(60, 5), 0.0)
    assert [60] == reading(engine, 1)


def test_one_rank_waits_for_nobody() -> None:
    """Without attention data parallelism there is no other rank to wait for."""
    engine = with_one_running(EveryRank(50, 5))
    engine.submit(1, Request(60, 5), 0.5)
    assert [60] == reading(engine, 1)


@pytest.mark.parametrize("rule", [FullStep(0.4, 20), EveryRank(16, 4)])
def test_jumps_are_the_steps(rule: FullStep | EveryRank) -> None:
    """Prompts wait as many rounds when rounds are jumped over as when each is taken."""
    workload = closed_loop(within(0.5, 800), within(0.5, 300), 12, rounds=4)
    subject = replica(attention_dp=True, max_num_tokens=2048)
    jumped, stepped = (simulate(subject, Straight(), workload, hold=rule, exact=exact) for exact in (False, True))
    assert stepped.ttft.mean == pytest.approx(jumped.ttft.mean, rel=1e-3)
    assert stepped.tpot.mean == pytest.approx(jumped.tpot.mean, rel=1e-3)


def test_holding_back_trades_first_tokens_for_answers() -> None:
    """Prompts that wait for a full step give later first tokens, fewer steps with a prompt and quicker answers."""
    workload = closed_loop(fixed(500), within(0.5, 400), 32)
    plain, held = (simulate(replica(), Straight(), workload, hold=rule) for rule in (None, FullStep(0.4, 50)))
    assert held.ttft.mean > plain.ttft.mean
    assert held.prompt_steps.count < plain.prompt_steps.count / 2
    assert held.tpot.mean < plain.tpot.mean
