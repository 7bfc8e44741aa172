"""Several cells: micro-batches of a pipeline, and ranks with requests of their own."""

from __future__ import annotations

from typing import Any

import pytest

from tests.estimate.replicas import Even, Straight, engine_with, steps
from trtllm_kit.estimate.fits import NeverFits
from trtllm_kit.estimate.work import StepWork
from trtllm_kit.estimate.workload import Request
from trtllm_kit.plan.parallelism import Split


class Staged(Straight):
    """A clock of two stages that are busy for 3 ms and 7 ms."""

    def stage_seconds(self, work: StepWork) -> tuple[float, ...]:
        """Return the seconds of each stage."""
        return 3e-3, 7e-3


def test_micro_batches_share_the_stages() -> None:
    """With two stages a round of two micro-batches takes twice the busier stage, when that is more than one's way."""
    engine = engine_with(*[Request(10, 40)] * 2, clock=Staged(), split=Split(1, pipeline=2))
    steps(engine, 2)
    run = engine.advance(most_steps=1)
    assert run is not None
    assert pytest.approx(2 * 7e-3) == run.seconds


def test_one_micro_batch_leaves_a_bubble() -> None:
    """A single request of two stages goes through both before its next step begins: the stages wait in turn."""
    engine = engine_with(Request(10, 40), clock=Staged(), split=Split(1, pipeline=2))
    steps(engine, 1)
    run = engine.advance(most_steps=1)
    assert run is not None
    assert pytest.approx(10e-3 + 1e-4 + 2e-8 * 10) == run.seconds


def test_ranks_have_requests_of_their_own() -> None:
    """With attention data parallelism of 4 a step counts as the fullest rank's four times: 5 requests as 8."""
    seen: list[int] = []

    class Listening(Even):
        def seconds(self, work: StepWork) -> float:
            seen.append(work.sequences)
            return 1.0

    steps(engine_with(*[Request(10, 3)] * 5, clock=Listening(), attention_dp=True))
    assert 8 == max(seen)


def test_ranks_have_blocks_of_their_own() -> None:
    """With attention data parallelism of 4 a request must fit a quarter of the cache."""
    with pytest.raises(NeverFits, match="5 KV blocks, above the 4"):
        engine_with(Request(120, 10), attention_dp=True, kv_tokens=4 * 128)


@pytest.mark.parametrize(
    ("changes", "slots"),
    [({"attention_dp": True}, 32), ({"split": Split(1, pipeline=4)}, 32), ({"split": Split(2, pipeline=2)}, 16)],
)
def test_each_micro_batch_and_each_rank_has_slots_of_its_own(changes: dict[str, Any], slots: int) -> None:
    """8 slots a step are as many of each rank with requests of its own, and of each micro-batch: the rest waits."""
    engine = engine_with(*[Request(10, 5)] * 40, max_batch_size=8, **changes)
    steps(engine, 1)
    assert (slots, 40 - slots) == (engine.state().active, engine.state().queued)
    assert slots == engine.subject.slots
