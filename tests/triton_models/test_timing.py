"""The engine of a rehearsal: reuse of prompts, drafts, and the clock of the estimate."""

from __future__ import annotations

from typing import Any

import pytest

from faults import Faults
from pacer import Pacer
from sequence import begin
from tests.support.rehearsal import plan_of
from tests.support.specs import llama_8b, profile
from tests.support.tiny_model import write_tiny_model
from timing import Even, Limits, NoPlan, computing_engine, plan_beside, read_plan, request_of, simulated_engine
from trtllm_kit.checkpoint.plan_file import plan_text
from trtllm_kit.estimate.step_time import StepClock
from trtllm_kit.estimate.subject import subject_of
from trtllm_kit.estimate.work import StepWork
from trtllm_kit.plan.settle import settle
from trtllm_kit.spec.load import load_hardware

from .test_pacer import LIMITS, Box, Counting, Run, ask, run, until

__all__ = ["run"]  # the fixture

LARGE = Limits(64, 8192, 4096, True, 32, 4096, 1024)


def plan_for(machine: str, changes: dict[str, Any] | None = None) -> Any:
    """Plan Llama 3.1 8B on a machine of the catalogue, to be served without it."""
    return settle(
        llama_8b(), profile({"hardware": machine, "runtime": "simulated", **(changes or {})}), load_hardware(machine)
    )


def test_a_prompt_that_begins_alike_reuses_blocks(run: Run) -> None:
    """Whole blocks of the same words; a prompt that is no longer than them computes its last one again."""
    pacer = run(kv_blocks=40)
    costs = []
    for words in (10, 14, 8):
        box = Box()
        pacer.submit(Counting(words, said="the same"), ask(2), box)
        costs.append(box.wait().performance)

    assert [0, 2, 1] == [cost.kv_reused_blocks for cost in costs]
    assert [0.0, 0.5, 0.5] == [cost.kv_hit_rate for cost in costs]
    assert 3 == pacer.statistics().kv_reused_blocks


def test_kept_blocks_make_room_for_others(run: Run) -> None:
    """They count as free, and a prompt unlike them takes their place; afterwards nothing is left to reuse."""
    pacer = run()
    costs = []
    for said, words in (("one", 8), ("other", 37), ("one", 8)):
        box = Box()
        pacer.submit(Counting(words, said=said), ask(3), box)
        costs.append(box.wait().performance)

    assert [0, 0, 0] == [cost.kv_reused_blocks for cost in costs]
    assert 10 == pacer.statistics().kv_free_blocks


def test_what_a_runtime_computes_is_not_reused() -> None:
    """The reference forward pass keeps no prompt of another request."""
    assert not computing_engine(LIMITS).subject.block_reuse


def test_requests_are_known_block_by_block() -> None:
    """The same beginning has the same keys, and a difference in one block changes the keys of all after it."""
    one = request_of(list("aaaabbbbcc"), 5, 4)
    other = request_of(list("aaaabxbbcc"), 5, 4)

    assert (10, 5, [4, 4]) == (one.prompt, one.answer, [segment.tokens for segment in one.shared])
    assert one.shared[0] == other.shared[0]
    assert one.shared[1] != other.shared[1]


def test_a_plan_of_real_hardware_gives_its_clock() -> None:
    """Steps last as long as the estimate says for that machine, and not as long as a rehearsal's."""
    plan = plan_for("h200x1")
    engine = simulated_engine(LARGE, 0.02, plan)
    clock = StepClock(engine.subject)

    engine.submit(0, request_of(list(range(1000)), 8, 32), 0.0)
    first, second = engine.advance(most_steps=1), engine.advance(most_steps=1)

    assert LARGE.kv_blocks * 32 == engine.subject.kv_tokens
    assert pytest.approx(clock.seconds(StepWork(sequences=1, context=second.state.kv_tokens))) == pytest.approx(
        second.seconds, rel=0.01
    )
    assert first.seconds > second.seconds
    assert subject_of(plan, load_hardware("h200x1")).model == engine.subject.model


def test_the_cpu_keeps_the_pace_of_the_profile(tmp_path: Any) -> None:
    """Every step of a rehearsal on the stand-in for hardware lasts as long as the profile says."""
    plan = plan_of(write_tiny_model(tmp_path / "model"))
    engine = simulated_engine(LARGE, 0.02, plan)
    engine.submit(0, request_of(list(range(10)), 3, 32), 0.0)

    assert [0.02] * 3 == [round(engine.advance(most_steps=1).seconds, 9) for _ in range(3)]
    assert 0.06 == pytest.approx(Even(0.02).decode_run(4, 100, 3))


def test_an_idle_engine_holds_no_block(tmp_path: Any) -> None:
    """Also where the steps overlap, in which the blocks of an answer are free one step later."""
    plan = plan_of(write_tiny_model(tmp_path / "model"), {"engine.overlap_scheduler": True})
    engine = simulated_engine(LARGE, 0.0, plan)
    pacer, box = Pacer(engine, 8), Box()
    pacer.start()
    begin(pacer, LARGE, Counting(40), ask(3), box, Faults(None))
    box.wait()
    state = pacer.statistics()
    pacer.close()

    assert engine.subject.overlap_scheduler
    assert state is not None
    assert (0, 0, LARGE.kv_blocks) == (state.active, state.kv_used_blocks, state.kv_free_blocks)


def test_drafts_bring_several_tokens_a_step() -> None:
    """A plan that speculates drafts as many tokens as it says, accepts some, and its cost says how many."""
    plan = plan_for("h200x1", {"speculation": {"kind": "ngram", "draft_tokens": 3}})
    engine = simulated_engine(LARGE, 0.0, plan)
    pacer = Pacer(engine, 8)

    class Taker:
        """Counts the tokens of every step."""

        def __init__(self) -> None:
            self.steps: list[int] = []
            self.over = False

        def tokens(self, count: int) -> bool:
            """Note them."""
            self.steps.append(count)
            return False

        def end(self) -> None:
            """Note the end."""
            self.over = True

        def fail(self, refused: Any) -> None:
            """Fail the test."""
            raise AssertionError(refused)

    taker = Taker()
    pacer.start()
    entry = pacer.submit(request_of(list(range(40)), 60, 32), taker)
    until(lambda: taker.over)
    state = pacer.statistics()
    pacer.close()

    assert (60, 1) == (sum(taker.steps), taker.steps[0])
    assert max(taker.steps) > 1
    assert 4 >= max(taker.steps)
    cost = entry.performance
    assert cost.draft_tokens == 3 * (len(taker.steps) - 1)
    assert 0.3 < cost.acceptance_rate < 1.0
    assert state is not None
    assert (cost.draft_tokens, cost.accepted_draft_tokens) == (state.drafted_tokens, state.accepted_tokens)


def test_a_repository_without_a_plan_is_told_or_passed_over(tmp_path: Any) -> None:
    """What needs one names the file; the pace of a rehearsal needs none."""
    assert plan_beside(tmp_path) is None
    with pytest.raises(NoPlan, match=r"trtkit-plan\.json"):
        read_plan(tmp_path)
    (tmp_path / "trtkit-plan.json").write_text(plan_text(plan_for("h200x1")))
    assert "h200x1" == plan_beside(tmp_path).hardware
