"""What a rank holds of the weights."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.specs import (
    deepseek_v3,
    gemma3_27b,
    gpt_oss_120b,
    llama,
    llama_8b,
    llama_405b,
    maverick,
    phi4_mini,
    qwen3_moe,
    smollm2,
)
from trtllm_kit.plan.formats import FORMATS, Formats
from trtllm_kit.plan.parallelism import Split, stages
from trtllm_kit.plan.weights import Held, held_by_layer, held_by_stage
from trtllm_kit.spec.model import Dense, Layer, ModelSpec
from trtllm_kit.spec.profile_formats import PartFormat, WeightFormat
from trtllm_kit.spec.tensors import parameters


def held(model: ModelSpec, split: Split = Split(), formats: Formats = Formats()) -> list[Held]:  # noqa: B008
    """Return what a rank of each stage holds."""
    return [held_by_stage(model, split, formats, stage) for stage in stages(model, split.pipeline)]


@pytest.mark.parametrize(
    "model",
    [llama_8b(), smollm2(), qwen3_moe(3), maverick(), phi4_mini(), gemma3_27b()],
    ids=lambda m: m.family,
)
def test_one_rank_holds_every_parameter(model: ModelSpec) -> None:
    """Nothing is lost and nothing counted twice without a split."""
    assert [parameters(model)] == [whole.parameters for whole in held(model)]


def test_one_rank_holds_the_keys_of_latent_attention_twice() -> None:
    """DeepSeek: 128 heads x 128 x 512 elements a layer, transposed, beside every parameter of the model."""
    model = deepseek_v3(5)
    assert parameters(model) + 5 * 128 * 128 * 512 == held(model)[0].parameters


def test_ranks_split_latent_attention_by_heads_and_squeeze_alike() -> None:
    """Eight ranks: the two squeezing projections and the norms whole, q_b, kv_b (and its keys again), o in eighths."""
    attention = held_of_attention(deepseek_v3(1), Split(8))
    whole = (1536 + 512 + 64) * 7168 + 1536 + 512
    split = 128 * 192 * 1536 + 128 * (256 + 128) * 512 + 7168 * 128 * 128
    assert whole + split // 8 == attention


def held_of_attention(model: ModelSpec, split: Split) -> int:
    """Return what a rank holds of the first layer without its feed-forward block, its two norms and the ends."""
    ends = 2 * -(-model.vocab // split.tensor) * model.hidden + model.hidden
    block = model.layers[0].feed_forward
    return (
        held(model, split)[0].parameters
        - ends
        - 2 * model.hidden
        - 3 * block.intermediate * model.hidden // split.tensor
    )


@pytest.mark.parametrize(("expert", "whole"), [(1, 128), (8, 16)])
def test_biases_of_experts_follow_their_experts(expert: int, whole: int) -> None:
    """gpt-oss: gate and up biases are split like their rows, those after the second product are whole."""
    model = gpt_oss_120b(1)
    without = model.layers[0].feed_forward
    rank = held(model, Split(8, 1, expert))[0].parameters
    attention = 2880 * 64 * 64 * 2 // 8 + 2 * 2880 * 64 + 64 * 64 // 8 + 2 * 64 + 64 // 8 + 2880
    ends, norms, router = 2 * (201088 // 8) * 2880 + 2880, 2 * 2880, 128 * 2880 + 128
    weights = 128 * 3 * 2880 * without.intermediate // 8
    biases = 128 * 2 * 2880 // 8 + whole * 2880
    assert attention + ends + norms + router + weights + biases == rank


def test_a_latent_cache_has_no_scales() -> None:
    """TensorRT-LLM reads none for it, so an FP8 cache adds nothing to a DeepSeek checkpoint."""
    with_cache, without = (held(deepseek_v3(4), formats=Formats("fp8", kv))[0].scales[4] for kv in ("fp8", "bf16"))
    assert 0 == with_cache - without


def test_405b_over_32_ranks_holds_its_kv_heads_four_times() -> None:
    """12.68B by even split, 13.08B held: KV projections are copied four times, norms 32 times."""
    assert 13_083_295_744 == held(llama_405b(), Split(32))[0].parameters


def test_8b_in_fp8_keeps_embedding_head_and_norms_in_16_bit() -> None:
    """6.98B linear weights in one byte; two vocabulary matrices and 65 norms in two."""
    whole = held(llama_8b(), formats=Formats("fp8", "bf16"))[0]
    assert 6_979_321_856 == whole.bytes_in("fp8")
    assert 2 * (2 * 128256 * 4096 + 65 * 4096) == whole.bytes_in("bf16")
    assert 4 * 2 * 7 * 32 == whole.scale_bytes


def test_an_fp8_cache_adds_two_scales_a_layer_to_quantised_weights_only() -> None:
    """A 16-bit checkpoint carries no KV scales."""
    with_cache, without = (held(llama_8b(), formats=Formats("fp8", kv))[0].scales[4] for kv in ("fp8", "bf16"))
    assert 2 * 32 == with_cache - without
    assert 0 == held(llama_8b(), formats=Formats("bf16", "fp8"))[0].scale_bytes


def test_an_excluded_layer_stays_in_16_bit() -> None:
    """A pattern may single out one of many layers that are otherwise alike."""
    one_layer = 218_103_808  # 4 attention and 3 feed-forward matrices of 8B
    formats = Formats("fp8", "bf16", ("model.layers.5.*",))
    assert 6_979_321_856 - one_layer == held(llama_8b(), formats=formats)[0].elements.get("fp8", 0)


def test_stages_hold_the_ends_of_the_model() -> None:
    """The first stage has the embedding, the last the norm and the head; a tied model's last stage a copy."""
    first, last = held(llama(4, 64, 4, 4, 64, vocab=1000), Split(pipeline=2))
    layers = 2 * (4 * 64 * 64 + 3 * 64 * 64 + 2 * 64)
    assert (layers + 64000, layers + 64000 + 64) == (first.parameters, last.parameters)
    tied = held(llama(4, 64, 4, 4, 64, vocab=1000, tied_embeddings=True), Split(pipeline=2))
    assert [layers + 64000, layers + 64000 + 64] == [stage.parameters for stage in tied]


def test_a_middle_stage_holds_layers_alone() -> None:
    """Of three stages only the ends hold the vocabulary, also when head and embedding are tied."""
    layer = 4 * 64 * 64 + 3 * 64 * 64 + 2 * 64
    for tied in (False, True):
        stages_of_three = held(llama(3, 64, 4, 4, 64, vocab=1000, tied_embeddings=tied), Split(pipeline=3))
        assert [layer + 64_000, layer, layer + 64_064] == [stage.parameters for stage in stages_of_three]


@pytest.mark.parametrize(("expert", "experts_held"), [(1, 128), (2, 64), (8, 16)])
def test_a_rank_holds_the_scales_of_its_own_experts(expert: int, experts_held: int) -> None:
    """Two scales for each of four attention matrices, and for three matrices of every expert on the rank."""
    whole = held(qwen3_moe(1), Split(8, 1, expert), Formats("fp8", "bf16"))[0]
    assert 2 * (4 + 3 * experts_held) == whole.scales[4]


@pytest.mark.parametrize(
    ("pattern", "layers"), [("model.layers.?.*", 10), ("model.layers.[12]?.*", 20), ("model.layers.*", 32)]
)
def test_a_pattern_keeps_the_layers_it_names_and_no_others(pattern: str, layers: int) -> None:
    """A question mark or a bracket tells layers apart as a digit does; a star names them all."""
    one_layer = 218_103_808
    formats = Formats("fp8", "bf16", (pattern,))
    assert (32 - layers) * one_layer == held(llama_8b(), formats=formats)[0].elements.get("fp8", 0)


def test_the_vocabulary_is_padded_for_the_ranks() -> None:
    """1,001 words over 4 ranks take 251 rows a rank, twice."""
    whole, quarter = (held(llama(1, 64, 4, 4, 64, vocab=1001), Split(ranks))[0] for ranks in (1, 4))
    layer, norms = 7 * 64 * 64, 3 * 64
    assert 2 * 1001 * 64 + layer + norms == whole.parameters
    assert 2 * 251 * 64 + layer // 4 + norms == quarter.parameters


def test_biases_before_a_split_are_split_and_those_after_it_are_copied() -> None:
    """Four ranks: q, k, v, gate and up biases in quarters, o and down biases whole."""
    model = llama(1, 64, 4, 4, 128, vocab=64)
    layer = model.layers[0]
    biased = Layer(
        mixer=layer.attention.model_copy(update={"qkv_bias": True, "out_bias": True}),
        feed_forward=Dense(intermediate=128, bias=True),
    )
    with_bias = model.model_copy(update={"layers": (biased,)})
    whole, quarter = (
        held(with_bias, Split(ranks))[0].parameters - held(model, Split(ranks))[0].parameters for ranks in (1, 4)
    )
    assert 3 * 64 + 2 * 128 + 64 + 64 == whole
    assert (3 * 64 + 2 * 128) // 4 + 64 + 64 == quarter


@pytest.mark.parametrize("expert", [1, 2, 8])
def test_experts_are_shared_out_or_split_with_the_same_bytes(expert: int) -> None:
    """Eight ranks hold an eighth of the experts' weights either way; routers are copied."""
    assert 29_479_808_512 == held(qwen3_moe(), Split(8, 1, expert))[0].parameters


@given(
    heads=st.sampled_from([4, 8, 16]),
    kv_heads=st.sampled_from([1, 2, 4]),
    tensor=st.sampled_from([1, 2, 4]),
    pipeline=st.integers(1, 3),
    vocab=st.integers(10, 1000),
)
def test_all_ranks_together_hold_at_least_the_model(
    heads: int, kv_heads: int, tensor: int, pipeline: int, vocab: int
) -> None:
    """Splitting copies and pads, and never loses a parameter."""
    model = llama(3, 8 * heads, heads, kv_heads, 64, vocab=vocab)
    assert parameters(model) <= tensor * sum(stage.parameters for stage in held(model, Split(tensor, pipeline)))


def test_8b_in_nvfp4_takes_four_and_a_half_bits_an_element() -> None:
    """Half a byte an element, one byte of scale for sixteen, and two float32 scales a module."""
    whole = held(llama_8b(), formats=Formats("nvfp4", "bf16"))[0]
    linear = 6_979_321_856
    assert (linear, linear // 2) == (whole.elements["nvfp4"], whole.bytes_in("nvfp4"))
    assert linear // 16 + 4 * 2 * 7 * 32 == whole.scale_bytes
    assert 2 * (2 * 128256 * 4096 + 65 * 4096) == whole.bytes_in("bf16")


@pytest.mark.parametrize("model", [llama_8b(), qwen3_moe(3), maverick()], ids=lambda m: m.family)
def test_a_format_changes_bytes_and_no_count(model: ModelSpec) -> None:
    """The same tensors leave 16 bit for FP8 and for NVFP4, and NVFP4 takes 9/16 of FP8's bytes there."""
    fp8, nvfp4 = (held(model, formats=Formats(chosen, "bf16"))[0] for chosen in ("fp8", "nvfp4"))
    assert fp8.parameters == nvfp4.parameters
    assert fp8.elements["fp8"] == nvfp4.elements["nvfp4"]
    assert 16 * (nvfp4.bytes_in("nvfp4") + nvfp4.scales[1]) == 9 * fp8.bytes_in("fp8")


@given(tensor=st.sampled_from([1, 2, 4, 8, 24]), weights=st.sampled_from(["bf16", "fp8"]))
def test_a_fused_tensor_is_shared_out_like_its_parts(tensor: int, weights: WeightFormat) -> None:
    """With 24 ranks for 8 KV heads too, a rank holds of qkv_proj what it would hold of q, k and v apart."""
    fused = phi4_mini()
    shape = {"mixer": {"fused_qkv": False}, "feed_forward": {"fused_gate_up": False}}
    parts = {name: getattr(fused.layers[0], name).model_copy(update=change) for name, change in shape.items()}
    apart = fused.model_copy(update={"layers": (fused.layers[0].model_copy(update=parts),)})
    split = Split(tensor)
    one, other = (held_by_layer(model, 0, split, Formats(weights, "bf16")) for model in (fused, apart))
    assert other.parameters == one.parameters
    assert other.elements == one.elements
    assert other.scales.get(4, 0) - one.scales.get(4, 0) == (2 * 3 if weights == "fp8" else 0)


@given(count=st.integers(0, 10**12))
def test_nvfp4_bytes_are_whole_and_never_too_few(count: int) -> None:
    """Odd elements round up to a byte."""
    whole = Held({"nvfp4": count})
    assert -(-count // 2) == whole.bytes_in("nvfp4") == whole.bytes


@pytest.mark.parametrize(
    ("chosen", "scale_bytes"),
    [
        ("fp8", 8 * 7 * 32),
        ("fp8_rowwise", 4 * 32 * (4096 + 2 * 1024 + 4096 + 2 * 14336 + 4096)),
        ("int8_wo", 4 * 32 * (4096 + 2 * 1024 + 4096 + 2 * 14336 + 4096)),
        ("fp8_block", 6_979_321_856 // 128 // 128 * 4),
        ("int4_wo", 6_979_321_856 // 128 * 4 + 2 * 32 * (6 * 4096 + 14336)),
        ("mxfp8", 6_979_321_856 // 32),
        ("int4_awq", 6_979_321_856 // 128 * 4 + 2 * 32 * (6 * 4096 + 14336)),
    ],
)
def test_each_format_carries_the_scales_of_its_kind(chosen: WeightFormat, scale_bytes: int) -> None:
    """8B's seven linears a layer: float32 a tensor, a row, a block of 128 x 128 or a group, one byte for 32."""
    assert scale_bytes == held(llama_8b(), formats=Formats(chosen, "bf16"))[0].scale_bytes


def test_smaller_groups_have_twice_the_scales() -> None:
    """Groups of 64 instead of 128 input elements; the factors of the input, two bytes each, stay as many."""
    wide, narrow = (held(llama_8b(), formats=Formats("int4_wo", group_size=size))[0] for size in (128, 64))
    assert 2 * wide.scales[4] == narrow.scales[4]
    assert wide.scales[2] == narrow.scales[2] == 32 * (6 * 4096 + 14336)
    assert wide.elements == narrow.elements


def test_mixed_weights_are_counted_by_their_parts() -> None:
    """Attention in FP8, experts in NVFP4: each part's elements stand under its own format."""
    mixed = Formats("mixed", groups={"attention": "fp8", "feed_forward": "bf16", "experts": "nvfp4"})
    whole = held(qwen3_moe(2), formats=mixed)[0]
    fp8, nvfp4 = (held(qwen3_moe(2), formats=Formats(chosen))[0].elements[chosen] for chosen in ("fp8", "nvfp4"))
    assert fp8 == nvfp4 == whole.elements["fp8"] + whole.elements["nvfp4"]
    assert 2 * 128 * 3 * 1536 * 4096 == whole.elements["nvfp4"]


@given(
    chosen=st.sampled_from([name for name in FORMATS if name != "bf16"]),
    rows=st.integers(1, 300),
    columns=st.integers(1, 300),
)
def test_every_element_has_a_scale_of_each_kind(chosen: PartFormat, rows: int, columns: int) -> None:
    """Scales cover the matrix: no kind has fewer than its rows and columns ask for, nor one for no element."""
    for scale in FORMATS[chosen].scales:
        found = scale.count(rows, columns)
        assert found * (scale.rows or rows) * (scale.columns or columns) >= rows * columns
        assert 1 <= found <= rows * columns
