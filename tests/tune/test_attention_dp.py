"""Attention data parallelism among the choices: where it is tried, that its memory is a plan's, and what it wins."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.specs import deepseek_v3, hardware, llama_8b, profile, qwen3_moe
from trtllm_kit.estimate.step_time import StepClock
from trtllm_kit.findings import errors
from trtllm_kit.plan.decide import make_plan
from trtllm_kit.plan.remedies import with_changes
from trtllm_kit.spec.load import LoadedProfile, hardware_for, load_hardware, load_profile
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.tune.candidates import Candidate, Shape, attention_modes, shape_changes
from trtllm_kit.tune.decision import Decision, decide
from trtllm_kit.tune.question import Question
from trtllm_kit.tune.room import Asked, Room, room_of
from trtllm_kit.tune.run import estimate_of, estimate_plan
from trtllm_kit.tune.search import Search
from trtllm_kit.tune.written import profile_text

H200 = load_hardware("h200x8-700w")
QUESTION = Question(1024, 256)
BASE = "h200x8-offline"


def in_blocks() -> LoadedProfile:
    """Return the shipped profile of eight H200 for DeepSeek in its own format, one copy over all GPUs."""
    changes = {
        "quantization.weights": "fp8_block",
        "quantization.kv_cache": "fp8",
        "parallelism.tensor": 8,
        "parallelism.replicas": 1,
        "scheduler.policy": "guaranteed_no_evict",
    }
    return with_changes(load_profile(BASE), changes)


def on_eight(shared: bool) -> Shape:
    """Return eight ranks that split attention, or that have requests of their own."""
    return Shape("h200x8-700w", 8, 1, 8, "fp8_block", "fp8", attention_dp=shared)


@cache
def decided(concurrency: int) -> Decision:
    """Choose between the two for DeepSeek-V3 at a load."""
    model, question = deepseek_v3(), Question(1024, 256, concurrency=concurrency)
    asked = Asked(model, in_blocks(), {H200.name: H200}, question)
    search = Search(asked, StepClock, most_simulated=12, finalists=4)
    search.run([on_eight(False), on_eight(True)])
    return decide(search)


@pytest.mark.parametrize(
    ("model", "version", "layout", "tensor", "modes"),
    [
        (deepseek_v3(4), "1.2.1", "unified_hf", 8, (False, True)),
        (deepseek_v3(4), "1.2.1", "unified_hf", 1, (False,)),
        (deepseek_v3(4), "1.1.0", "tensorrt_llm", 8, (False,)),
        (llama_8b(), "1.2.1", "unified_hf", 8, (False,)),
        (qwen3_moe(4).model_copy(update={"architecture": "MixtralForCausalLM"}), "1.2.1", "unified_hf", 8, (False,)),
    ],
)
def test_it_is_tried_where_experts_are_shared_out_and_the_release_is_known_to(
    model: ModelSpec, version: str, layout: str, tensor: int, modes: tuple[bool, ...]
) -> None:
    """Not on one rank, in engines, of dense models, or of architectures that nobody is known to run so."""
    asked = profile({"trtllm_version": version}).profile
    assert modes == attention_modes(model, asked, layout, tensor)  # type: ignore[arg-type]


def test_it_is_tried_where_the_profile_asks_for_it() -> None:
    """An operator who runs an architecture so gets it compared."""
    model = qwen3_moe(4).model_copy(update={"architecture": "MixtralForCausalLM"})
    assert (False, True) == attention_modes(model, profile({"parallelism.attention_dp": True}).profile, "unified_hf", 8)


@settings(max_examples=25, deadline=None)
@given(batch=st.integers(1, 512), step=st.integers(1, 32768), percent=st.integers(10, 95))
def test_the_cache_is_that_of_a_plan_under_the_same_limits(batch: int, step: int, percent: int) -> None:
    """What is interpolated between three plans of such ranks is what planning those limits gives, to a millionth."""
    model, loaded, one = deepseek_v3(8), in_blocks(), on_eight(True)
    changes = shape_changes(one, loaded.profile, QUESTION) | {
        "limits.max_batch_size": batch,
        "limits.max_num_tokens": step,
        "kv_cache.free_gpu_memory_fraction": percent / 100,
    }
    plan = make_plan(model, with_changes(loaded, changes), H200)
    room = room_of(Asked(model, loaded, {H200.name: H200}, QUESTION), one)
    assert isinstance(room, Room)
    found = room.kv_budget(batch, step, percent / 100)
    assert plan.memory.kv_budget_bytes == pytest.approx(found, abs=plan.memory.capacity_bytes * 1e-6)


@pytest.mark.parametrize(("tokens", "held"), [(100, 16), (128, 16), (129, 8), (257, 0)])
def test_a_request_is_whole_on_one_rank(tokens: int, held: int) -> None:
    """Eight caches of 256 tokens hold two requests each up to 128 tokens, and none of 257."""
    one = Candidate(on_eight(True), 1, 8, 1024, True, 0.9, "guaranteed_no_evict", 8 * 256)
    assert held == one.holds(tokens)


def test_eight_requests_at_once_are_served_by_ranks_that_share_them() -> None:
    """At a low load each step reads all that is outside the experts, which the ranks share out."""
    winner = decided(8).winner
    assert winner is not None
    assert not winner.point.candidate.shape.attention_dp


def test_a_thousand_requests_at_once_are_served_by_ranks_with_requests_of_their_own() -> None:
    """Latent vectors are cached once and not eight times, and nothing of attention is reduced."""
    winner = decided(1024).winner
    assert winner is not None
    assert winner.point.candidate.shape.attention_dp


def test_the_winner_is_written_as_a_profile_and_the_estimate_is_of_exactly_that(tmp_path: Path) -> None:
    """The file is read by ``plan`` as what was decided, and its estimate is the one that was shown."""
    decision = decided(1024)
    winner = decision.winner
    assert winner is not None
    target = tmp_path / "tuned.yaml"
    base = load_profile(BASE)
    own = {"quantization.weights": "fp8_block", "quantization.kv_cache": "fp8"}
    target.write_text(profile_text(BASE, base.profile, {**own, **winner.changes}, target, ["found"]), encoding="utf-8")
    read = load_profile(str(target))
    assert read.profile.parallelism.attention_dp
    plan = make_plan(deepseek_v3(), read, hardware_for(read.profile))
    assert not errors(plan.findings)
    assert winner.plan.parallelism.split == plan.parallelism.split
    again = estimate_plan(plan, hardware_for(read.profile), decision.search.question, winner.point.concurrency)
    assert estimate_of(decision, winner).figures == again.figures


def test_settings_of_a_balance_are_left_out_where_nothing_waits() -> None:
    """A shape that shares requests does not keep what the profile asks of ranks that wait for each other."""
    asked = profile({"parallelism.attention_dp": True, "engine.attention_dp_balance": True}).profile
    machine = hardware(8)
    shape = Shape(machine.name, 8, 1, 8, "fp8", "fp8")
    assert False is shape_changes(shape, asked, QUESTION)["engine.attention_dp_balance"]
