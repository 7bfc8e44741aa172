"""Memory of thousands of limits from three plans, and shapes that the rules stop."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.specs import hardware, llama_70b
from tests.tune.searches import asked
from trtllm_kit.plan.decide import make_plan
from trtllm_kit.plan.remedies import with_changes
from trtllm_kit.tune.candidates import Shape, shape_changes
from trtllm_kit.tune.question import Question
from trtllm_kit.tune.room import Refusal, Room, room_of

QUESTION = Question(256, 64)


def shape(**changes: Any) -> Shape:
    """Make a shape on the test machine."""
    one: dict[str, Any] = {"machine": "test", "tensor": 1, "pipeline": 1, "expert": 1, "weights": "fp8"}
    return Shape(**(one | {"kv_cache": "fp8"} | changes))


def room(**changes: Any) -> Room:
    """Return the room of a shape that fits."""
    found = room_of(asked(QUESTION), shape(**changes))
    assert isinstance(found, Room)
    return found


@settings(max_examples=25, deadline=None)
@given(
    batch=st.integers(1, 4096),
    step=st.integers(1, 65536),
    percent=st.integers(10, 95),
    ranks=st.sampled_from([(1, 1), (2, 1), (1, 2)]),
)
def test_the_cache_is_that_of_a_plan_under_the_same_limits(
    batch: int, step: int, percent: int, ranks: tuple[int, int]
) -> None:
    """What is interpolated between three plans is what planning those limits gives, to a millionth of the memory."""
    what, one = asked(QUESTION), shape(tensor=ranks[0], pipeline=ranks[1])
    changes = shape_changes(one, what.loaded.profile, QUESTION) | {
        "limits.max_batch_size": batch,
        "limits.max_num_tokens": step,
        "kv_cache.free_gpu_memory_fraction": percent / 100,
    }
    plan = make_plan(what.model, with_changes(what.loaded, changes), what.machines["test"])
    found = room(tensor=ranks[0], pipeline=ranks[1]).kv_budget(batch, step, percent / 100)
    assert plan.memory.kv_budget_bytes == pytest.approx(found, abs=plan.memory.capacity_bytes * 1e-6)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"tensor": 3}, "PF1"),
        ({"expert": 2}, "PF28"),
        ({"weights": "nvfp4"}, "PF7"),
        ({"kv_cache": "nvfp4"}, "PF8"),
    ],
)
def test_a_shape_that_a_rule_refuses_is_out_with_its_rule(changes: dict[str, Any], rule: str) -> None:
    """Heads, experts and formats that do not go together are stopped by the rules that a plan has for them."""
    found = room_of(asked(QUESTION), shape(**changes))
    assert isinstance(found, Refusal)
    assert rule == found.constraint


def test_a_model_that_does_not_fit_says_what_it_needs() -> None:
    """70B in 16 bit is 131 GiB of weights, and the GPU has 80."""
    what = asked(QUESTION)
    small = type(what)(llama_70b(), what.loaded, what.machines, QUESTION)
    found = room_of(small, shape(weights="bf16", kv_cache="bf16"))
    assert isinstance(found, Refusal)
    assert ("memory", True) == (found.constraint, "80.00 GiB on a GPU" in found.compared)


def test_a_longest_sequence_that_does_not_fit_is_named() -> None:
    """Weights fit, and the KV cache does not hold one sequence of max_seq_len."""
    what = asked(QUESTION, {"limits.max_seq_len": 131072}, hardware(1, memory_gib=16))
    found = room_of(what, shape())
    assert isinstance(found, Refusal)
    assert ("kv_cache", True) == (found.constraint, "131072" in found.message.replace(",", ""))


def test_a_shape_with_drafts_is_timed_with_them() -> None:
    """Acceptance of the question reaches the subject, cut to the tokens that are drafted."""
    question = Question(256, 64, acceptance=(0.8, 0.7, 0.6))
    found = room_of(asked(question), shape(kind="ngram", draft_tokens=2))
    assert isinstance(found, Room)
    assert found.subject.speculation is not None
    assert (2, (0.8, 0.7)) == (found.subject.speculation.draft_tokens, found.subject.speculation.acceptance)
