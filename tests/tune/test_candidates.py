"""What there is to choose from."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.specs import deepseek_v3, hardware, llama_8b, profile, qwen3_moe
from trtllm_kit.spec.load import load_hardware
from trtllm_kit.tune.candidates import Taken, drafts, format_pairs, rank_counts, shape_changes, shapes, splits
from trtllm_kit.tune.question import Question

QUESTION = Question(256, 64)


def formats(machine: str, changes: dict[str, Any] | None = None, **asked: Any) -> set[tuple[str | None, str | None]]:
    """Return the pairs for 8B."""
    taken = Taken.by(load_hardware(machine), "1.2.1", "unified_hf")
    return set(format_pairs(llama_8b(), profile(changes).profile, taken, Question(256, 64, **asked)))


def test_rank_counts_are_divisors_and_powers_of_two() -> None:
    """On 72 GPUs 9 leaves none idle, and 64 splits heads that are powers of two."""
    assert (1, 2, 3, 4, 6, 8, 9, 12, 16, 18, 24, 32, 36, 64, 72) == rank_counts(72)


def test_experts_are_shared_out_only_where_there_are_any() -> None:
    """A dense model has one expert rank in every split, a model with experts every divisor of its tensor ranks."""
    assert {1} == {expert for _, _, expert in splits(llama_8b(), hardware(8))}
    assert {1, 2, 4, 8} == {expert for tensor, _, expert in splits(qwen3_moe(2), hardware(8)) if tensor == 8}


def test_formats_are_those_of_the_gpu() -> None:
    """Hopper is offered FP8 and no NVFP4, Blackwell both, Ampere neither."""
    assert {"bf16", "fp8"} == {weights for weights, _ in formats("h200x1")}
    assert {"bf16", "fp8", "nvfp4"} == {weights for weights, _ in formats("dgx-b200")}
    assert {"bf16"} == {weights for weights, _ in formats("a100x8")}


def test_a_cache_of_eight_bit_stands_beside_quantised_weights_alone() -> None:
    """Plain weights carry no scales of the cache, so FP8 is offered only where weights are quantised, or as asked."""
    assert {("bf16", "bf16"), ("fp8", "bf16"), ("fp8", "fp8")} == formats("h200x1")
    assert ("bf16", "fp8") in formats("h200x1", {"quantization.kv_cache": "fp8"})


def test_quantization_limits_the_formats() -> None:
    """What is named on the command line is tried, and nothing else; the rules then say whether it runs."""
    assert {("bf16", "bf16")} == formats("h200x1", weights=("bf16",))
    assert {"int4_awq"} == {weights for weights, _ in formats("h200x1", weights=("int4_awq",))}


def test_drafts_need_to_know_how_often_they_are_taken() -> None:
    """Without an acceptance nothing is drafted; with three positions lengths 0 to 3 are tried."""
    plain, own = llama_8b(), deepseek_v3(4)
    assert ((None, 0),) == drafts(plain, profile().profile, QUESTION)
    asked = Question(256, 64, acceptance=(0.8, 0.7, 0.6))
    assert ((None, 0), ("ngram", 1), ("ngram", 2), ("ngram", 3)) == drafts(plain, profile().profile, asked)
    with_layers = own.model_copy(update={"prediction_layers": 1})
    assert "mtp" == drafts(with_layers, profile().profile, asked)[1][0]


def test_another_machine_takes_the_profiles_memory_of_a_gpu_away() -> None:
    """``gpu_memory`` belongs to the profile's own machine; its power variants are the same machine."""
    loaded = profile({"hardware": "h200x8-700w", "gpu_memory": "100 GiB"}).profile
    found = shapes(llama_8b(), loaded, "unified_hf", [load_hardware("h100x2")], QUESTION)
    changes = shape_changes(found[0], loaded, QUESTION)
    assert ("h100x2", None) == (changes["hardware"], changes["gpu_memory"])


@pytest.mark.parametrize(("weights", "cleared"), [("fp8", True), ("mixed", False)])
def test_other_weights_take_the_groups_of_mixed_ones_away(weights: str, cleared: bool) -> None:
    """Groups mean nothing beside another format, and stay beside the profile's own."""
    loaded = profile(
        {"hardware": "h200x1", "quantization.weights": "mixed", "quantization.groups": {"attention": "fp8"}}
    ).profile
    found = shapes(llama_8b(), loaded, "unified_hf", [load_hardware("h200x1")], QUESTION)
    shape = next(one for one in found if one.weights == weights)
    assert cleared == ("quantization.groups" in shape_changes(shape, loaded, QUESTION))
