"""What of a plan its time depends on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.specs import deepseek_v3, gemma3_27b, llama_8b, profile
from trtllm_kit.estimate.subject import UNBOUNDED_TOKENS, kv_tokens, subject_of
from trtllm_kit.plan.decide import make_plan
from trtllm_kit.plan.plan import Plan
from trtllm_kit.spec.load import load_hardware
from trtllm_kit.spec.model import ModelSpec

H200 = load_hardware("h200x8-700w")
DRAFTED = {"kind": "pard", "draft_tokens": 5, "draft_checkpoint": "x"}


def plan(model: ModelSpec, changes: dict[str, object] | None = None) -> Plan:
    """Return a plan on eight H200."""
    return make_plan(model, profile(changes), H200)


def test_a_subject_has_what_the_plan_decided() -> None:
    """Split, formats, limits and settings are the plan's."""
    made = plan(llama_8b(), {"parallelism.tensor": 2, "limits.max_batch_size": 17})
    found = subject_of(made, H200)
    assert (2, 1, 17) == (found.split.tensor, found.split.pipeline, found.max_batch_size)
    assert made.quantization.formats == found.formats
    assert (made.release.value, made.limits.max_num_tokens.value) == (found.release, found.max_num_tokens)
    assert "pytorch" == found.backend
    assert found.served


def test_the_cache_holds_whole_blocks_of_the_budget() -> None:
    """The tokens are the budget over the bytes of a token, down to whole blocks."""
    made = plan(llama_8b())
    found = subject_of(made, H200)
    whole = made.memory.kv_budget_bytes // made.memory.kv_bytes_per_token
    assert whole // found.tokens_per_block * found.tokens_per_block == found.kv_tokens


def test_windows_make_room_at_the_asked_length() -> None:
    """Layers that keep a window of a long sequence leave room for more tokens of it."""
    made = plan(gemma3_27b(), {"load.input_tokens": 30_000, "load.output_tokens": 1000})
    every, asked = subject_of(made, H200), subject_of(made, H200, sequence_tokens=31_000)
    assert asked.kv_tokens > 2 * every.kv_tokens


def test_a_model_without_a_cache_is_not_bound_by_it() -> None:
    """No bytes a token hold any number of tokens, and a budget that is overdrawn holds none."""
    assert UNBOUNDED_TOKENS == kv_tokens(10**9, 0, 0, 32, None)
    assert 0 == kv_tokens(-5, 100, 100, 32, None)


def test_requests_under_way_are_those_of_every_micro_batch() -> None:
    """Two stages have two micro-batches of 17 requests, so 34 are under way."""
    made = plan(llama_8b(), {"parallelism.pipeline": 2, "limits.max_batch_size": 17})
    assert 34 == subject_of(made, H200).slots


def test_ranks_with_requests_of_their_own_have_caches_that_add_up() -> None:
    """Of eight ranks the limits are each one's, the cache is that of all, and they hold heads whole."""
    asked = {"parallelism.tensor": 8, "parallelism.expert": 8, "parallelism.attention_dp": True}
    made = plan(deepseek_v3(8), asked)
    found = subject_of(made, H200)
    each = made.memory.kv_budget_bytes // made.memory.kv_bytes_per_token // 32 * 32
    assert (True, 1, 8 * each) == (found.attention_dp, found.split.dense, found.kv_tokens)
    assert 8 * found.max_batch_size == found.slots


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, (50, 10)),
        ({"engine.attention_dp_timeout_iters": 7}, (7, 10)),
        ({"engine.attention_dp_wait_iters": 0}, (50, 0)),
    ],
)
def test_ranks_wait_for_each_other_as_long_as_asked(asked: dict[str, Any], expected: tuple[int, int]) -> None:
    """Times that are not asked are the defaults of the release's own table."""
    on = {"parallelism.tensor": 8, "parallelism.attention_dp": True, "engine.attention_dp_balance": True}
    balance = subject_of(plan(deepseek_v3(8), on | asked), H200).balance
    assert balance is not None
    assert expected == (balance.rounds, balance.batching)


def test_ranks_that_share_requests_do_not_wait_for_each_other() -> None:
    """A balance that is asked without attention data parallelism changes nothing."""
    asked: dict[str, object] = {"parallelism.tensor": 8, "engine.attention_dp_balance": True}
    assert None is subject_of(plan(deepseek_v3(8), asked), H200).balance


def test_a_parallel_draft_model_is_read_once_for_all_its_tokens() -> None:
    """Five tokens of PARD cost one pass over the draft's weights, those of another draft model a pass each."""
    asked: dict[str, object] = {"speculation": DRAFTED, "trtllm_version": "main"}
    made = plan(llama_8b(), asked)
    drafts = {term.name: term.bytes for term in made.memory.terms}["draft weights"]
    other = plan(llama_8b(), asked | {"speculation": DRAFTED | {"kind": "draft_target"}})
    read = [subject_of(one, H200).speculation for one in (made, other)]
    assert [-(-drafts // 5), drafts] == [one.draft_bytes for one in read if one is not None]
