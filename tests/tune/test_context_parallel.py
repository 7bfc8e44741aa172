"""Context parallelism among the choices: where it is tried, that its memory is a plan's, and what it wins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.specs import llama_8b, llama_405b, profile, qwen3_moe
from trtllm_kit.errors import UsageError
from trtllm_kit.estimate.step_time import StepClock
from trtllm_kit.findings import errors
from trtllm_kit.plan.decide import make_plan
from trtllm_kit.plan.remedies import with_changes
from trtllm_kit.spec.load import LoadedProfile, hardware_for, load_hardware, load_profile
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.tune.aic import split_of
from trtllm_kit.tune.candidates import Shape, context_counts, shape_changes, shapes
from trtllm_kit.tune.decision import Decision, decide
from trtllm_kit.tune.question import Question
from trtllm_kit.tune.room import Asked, Room, room_of
from trtllm_kit.tune.search import Search
from trtllm_kit.tune.written import profile_text

BASE = "gh200-nvl32-llama3.1-405b-fp8"
RACK = load_hardware("gh200-nvl32")
LONG = llama_405b().model_copy(update={"max_position": 1 << 21})
"""405B that was trained at two million tokens."""
ENGINES = {"toolchain": "trtllm-build", "trtllm_version": "1.1.0"}
PLAIN = {"engine.allreduce_strategy": "auto", "environment": {}}


def on_the_rack() -> LoadedProfile:
    """Return the shipped profile of a rack of 32, with engines."""
    return with_changes(load_profile(BASE), ENGINES | PLAIN)


def shape(tensor: int, context: int = 1, pipeline: int = 1) -> Shape:
    """Return a shape in FP8."""
    return Shape("gh200-nvl32", tensor, pipeline, 1, "fp8", "fp8", context=context)


def decided(question: Question, *asked: Shape) -> Decision:
    """Choose between shapes for 405B on a rack."""
    search = Search(Asked(LONG, on_the_rack(), {RACK.name: RACK}, question), StepClock, most_simulated=9, finalists=3)
    search.run(list(asked))
    return decide(search)


@pytest.mark.parametrize(
    ("model", "changes", "layout", "counts"),
    [
        (llama_8b(), ENGINES, "tensorrt_llm", (2, 4)),
        (llama_8b(), {"trtllm_version": "1.2.1"}, "unified_hf", ()),
        (llama_8b(), {"trtllm_version": "0.16.0"}, "tensorrt_llm", ()),
        (qwen3_moe(4), ENGINES, "tensorrt_llm", ()),
        (qwen3_moe(4), ENGINES | {"parallelism.context": 2}, "tensorrt_llm", (2, 4)),
    ],
)
def test_it_is_tried_in_engines_that_are_known_to_take_it(
    model: ModelSpec, changes: dict[str, Any], layout: str, counts: tuple[int, ...]
) -> None:
    """Or where the profile asks for it; powers of two, up to the ranks there is room for."""
    assert counts == context_counts(model, profile(changes).profile, layout, 7)  # type: ignore[arg-type]


def test_shapes_fill_no_more_gpus_than_there_are() -> None:
    """Of 32, whatever splits them."""
    found = shapes(llama_405b(), on_the_rack().profile, "tensorrt_llm", [RACK], Question(1024, 64))
    assert {1, 2, 4, 8, 16, 32} == {one.context for one in found}
    assert 32 == max(one.ranks for one in found)


@settings(max_examples=20, deadline=None)
@given(batch=st.integers(1, 64), step=st.integers(1, 16384), percent=st.integers(10, 95))
def test_the_cache_is_that_of_a_plan_under_the_same_limits(batch: int, step: int, percent: int) -> None:
    """What is interpolated between three plans of such ranks is what planning those limits gives, to a millionth."""
    model, loaded, one, question = llama_405b(), on_the_rack(), shape(8, 4), Question(4096, 64)
    changes = shape_changes(one, loaded.profile, question) | {
        "limits.max_batch_size": batch,
        "limits.max_num_tokens": step,
        "kv_cache.free_gpu_memory_fraction": percent / 100,
    }
    plan = make_plan(model, with_changes(loaded, changes), RACK)
    room = room_of(Asked(model, loaded, {RACK.name: RACK}, question), one)
    assert isinstance(room, Room)
    found = room.kv_budget(batch, step, percent / 100)
    assert plan.memory.kv_budget_bytes == pytest.approx(found, abs=plan.memory.capacity_bytes * 1e-6)


def test_a_prompt_of_a_million_tokens_gets_its_first_token_soonest_in_parts(tmp_path: Path) -> None:
    """For the least time of an answer eight tensor ranks take four context ranks, and the written profile asks so."""
    question = Question(1 << 20, 16, concurrency=1, objective="latency", least_share=1.0)
    decision = decided(question, shape(8), shape(8, 4), shape(8, pipeline=4))
    winner = decision.winner
    assert winner is not None
    assert 4 == winner.point.candidate.shape.context
    target = tmp_path / "tuned.yaml"
    changes = {**ENGINES, **PLAIN, **winner.changes}
    target.write_text(profile_text(BASE, load_profile(BASE).profile, changes, target, ["found"]), encoding="utf-8")
    read = load_profile(str(target))
    assert 4 == read.profile.parallelism.context
    plan = make_plan(LONG, read, hardware_for(read.profile))
    assert not errors(plan.findings)
    assert winner.plan.parallelism.split == plan.parallelism.split


def test_the_other_step_times_have_no_word_for_it() -> None:
    """They are refused with the ranks named, and not asked about another split."""
    room = room_of(Asked(llama_405b(), on_the_rack(), {RACK.name: RACK}, Question(4096, 64)), shape(8, 4))
    assert isinstance(room, Room)
    with pytest.raises(UsageError, match="context parallelism"):
        split_of(room.subject)
