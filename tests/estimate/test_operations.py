"""What a rank runs follows from the weights it holds."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.estimate.replicas import replica
from tests.support.specs import deepseek_v3, gemma3_27b, gpt_oss_120b, llama_70b, maverick, phi4_mini, qwen3_moe
from trtllm_kit.estimate.attention import pairs_within
from trtllm_kit.estimate.operations import LayerWork, Product, stages_of
from trtllm_kit.plan.communication import all_reduces
from trtllm_kit.plan.formats import Formats
from trtllm_kit.plan.parallelism import Split
from trtllm_kit.plan.weights import held_by_stage
from trtllm_kit.spec.model import ModelSpec
from trtllm_kit.spec.tensors import Role, TensorFact, layer_tensors, outer_tensors


def only_layer(model: ModelSpec, split: Split, formats: Formats | None = None, **changes: object) -> LayerWork:
    """Return the work of the first kind of layer on one rank."""
    subject = replica(model=model, split=split, formats=formats or Formats("bf16"), **changes)
    return stages_of(subject)[0].layers[0]


def shapes(layer: LayerWork) -> list[tuple[int, int]]:
    """Return outputs and inputs of a layer's products."""
    return [(product.outputs, product.inputs) for product in layer.products]


def test_products_of_a_dense_layer_on_eight_ranks() -> None:
    """Llama 70B over 8 ranks: query, key and value in one product, output, gate and up in one, down."""
    layer = only_layer(llama_70b(), Split(8))
    assert [((8192 + 2 * 1024) // 8, 8192), (8192, 1024), (2 * 28672 // 8, 8192), (8192, 28672 // 8)] == shapes(layer)
    assert 80 == layer.count


def test_weights_of_experts_are_those_of_one_and_its_count() -> None:
    """Qwen3 235B over 4 expert ranks: 32 whole experts on each, two products of each expert."""
    layer = only_layer(qwen3_moe(), Split(4, expert=4))
    grouped = [product for product in layer.products if product.experts]
    assert [(32, 2 * 1536, 4096), (32, 4096, 1536)] == [(one.experts, one.outputs, one.inputs) for one in grouped]
    assert 2 * 2 * 1536 * 4096 == grouped[0].weight_bytes


def test_attention_data_parallelism_leaves_all_but_routed_experts_whole() -> None:
    """With requests of its own, a rank computes all heads and still only its share of the experts."""
    layer = only_layer(qwen3_moe(), Split(4, expert=4), attention_dp=True)
    assert (64 * 128 + 2 * 4 * 128, 4096) == shapes(layer)[0]
    assert 0 == layer.reduces
    assert {32} == {product.experts for product in layer.products if product.experts}


@pytest.mark.parametrize("ranks", [1, 2, 8])
@pytest.mark.parametrize(
    "make", [llama_70b, qwen3_moe, gpt_oss_120b, maverick, gemma3_27b, phi4_mini], ids=lambda make: make.__name__
)
def test_products_read_every_matrix_that_a_rank_holds(make: object, ranks: int) -> None:
    """Embedding, norms and biases aside, the elements of all products are the elements in the memory table."""
    model: ModelSpec = make()  # type: ignore[operator]
    split = Split(ranks)
    stage = stages_of(replica(model=model, split=split, formats=Formats("bf16")))[0]
    read = sum(layer.count * sum(map(elements, layer.products)) for layer in stage.layers)
    assert stage.head is not None
    read += elements(stage.head)
    held = held_by_stage(model, split, Formats("bf16"), range(len(model.layers))).parameters
    outer = sum(fact.elements for fact in outer_tensors(model) if fact.role is not Role.HEAD)
    most_left = outer + sum(fact.elements for fact in small_tensors(model))
    assert held - most_left <= read <= held


def elements(product: Product) -> int:
    """Return the elements of all weights of a product."""
    return prod((product.outputs, product.inputs, max(1, product.experts)))


def small_tensors(model: ModelSpec) -> list[TensorFact]:
    """Return norms and biases."""
    facts = [fact for number in range(len(model.layers)) for fact in layer_tensors(model, number)]
    return [fact for fact in facts if fact.is_bias or len(fact.shape) == 1]


def test_latent_attention_works_on_latent_vectors_while_generating() -> None:
    """DeepSeek-V3: a pair costs 2 x (192 + 128) a head in a prompt, and 2 x (2 x 512 + 64) while generating."""
    attending = only_layer(deepseek_v3(), Split(8)).attending
    assert attending is not None
    assert 16 * 2 * (192 + 128) == attending.prompt_flops
    assert 16 * 2 * (2 * 512 + 64) == attending.generation_flops


def test_a_rank_reads_the_bytes_of_its_own_kv_heads() -> None:
    """Llama 70B in FP8 over 8 ranks: one KV head of 128 keys and 128 values, one byte each."""
    layer = only_layer(llama_70b(), Split(8), Formats("fp8", "fp8"))
    assert layer.attending is not None
    assert 256 == layer.attending.bytes_per_key


@pytest.mark.parametrize("ranks", [1, 4])
def test_all_reduces_are_those_of_the_plan(ranks: int) -> None:
    """Both count two a layer where tensor ranks share it, and none on one rank."""
    stage = stages_of(replica(split=Split(ranks)))[0]
    assert all_reduces(llama_70b(), ranks) == stage.reduces


def test_stages_share_out_layers_and_the_last_has_the_head() -> None:
    """Four stages run 20 layers each of 80."""
    stages = stages_of(replica(split=Split(2, 4)))
    assert [20, 20, 20, 20] == [sum(layer.count for layer in stage.layers) for stage in stages]
    assert [False, False, False, True] == [stage.head is not None for stage in stages]


def test_formats_of_a_product_are_those_of_its_weights() -> None:
    """FP8 takes half the bytes and an input that is quantised first; the head stays in 16 bit."""
    whole, eight = (only_layer(llama_70b(), Split(1), Formats(name)) for name in ("bf16", "fp8"))
    assert whole.products[0].weight_bytes == 2 * eight.products[0].weight_bytes
    assert 4 == eight.kernels - whole.kernels
    head = stages_of(replica())[0].head
    assert head is not None
    assert "bf16" == head.format


@given(st.integers(1, 60), st.integers(0, 60), st.none() | st.integers(1, 50))
def test_pairs_are_what_counting_gives(new: int, past: int, window: int | None) -> None:
    """Every new token looks at itself and all before it, at most a window."""
    counted = sum(min(past + number, window or 10**9) for number in range(1, new + 1))
    assert counted == pairs_within(new, past, window)


def test_work_is_kept_for_subjects_that_share_it() -> None:
    """Other limits change nothing of what a rank runs, so the same object is handed out."""
    assert stages_of(replica(max_batch_size=3)) is stages_of(replica(max_batch_size=9))
