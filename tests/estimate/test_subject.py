"""What of a plan its time depends on."""

from __future__ import annotations

from tests.estimate.replicas import replica
from tests.support.specs import gemma3_27b, llama_8b, profile
from trtllm_kit.estimate.subject import UNBOUNDED_TOKENS, kv_tokens, subject_of
from trtllm_kit.plan.decide import make_plan
from trtllm_kit.plan.plan import Plan
from trtllm_kit.spec.load import load_hardware
from trtllm_kit.spec.model import ModelSpec

H200 = load_hardware("h200x8-700w")


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


def test_ranks_that_attend_for_their_own_requests_share_no_heads() -> None:
    """With attention data parallelism the heads of a request are on one rank."""
    assert (4, 1) == (replica().attention_ranks, replica(attention_dp=True).attention_ranks)
