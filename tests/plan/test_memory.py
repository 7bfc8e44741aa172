"""The memory model: each term by hand, its monotonicity, and its error against measured capacities."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.memory_truth import CONTRACT, FITTED_ON, by_system, errors_of, fitted_runtime, measured_rows
from tests.support.specs import (
    GIB,
    deepseek_v3,
    gpt_oss_120b,
    hardware,
    llama,
    llama_8b,
    maverick,
    qwen3_moe,
    rehearsal,
    smollm2,
)
from trtllm_kit.plan.formats import Formats
from trtllm_kit.plan.memory import (
    REFERENCE_PIECE,
    Sizing,
    kept_tokens,
    kv_bytes_per_sequence,
    kv_bytes_per_token,
    memory_plan,
)
from trtllm_kit.plan.parallelism import Split
from trtllm_kit.plan.plan import MemoryPlan
from trtllm_kit.reference import model as reference_model
from trtllm_kit.spec.model import Attention, Dense, Layer, ModelSpec
from trtllm_kit.spec.profile import KvCache, Limits, Load
from trtllm_kit.spec.tensors import parameters
from trtllm_kit.upstream.memory import buffer_bytes


def sizing(model: ModelSpec, **changes: Any) -> Sizing:
    """Size a model on one 80 GiB GPU with the profile's defaults, unless changed."""
    base = Sizing(
        model=model,
        hardware=hardware(8),
        split=Split(),
        formats=Formats(),
        runtime="tensorrt_llm",
        limits=Limits(),
        kv_cache=KvCache(),
        load=Load(),
    )
    return replace(base, **changes)


def terms(plan: MemoryPlan) -> dict[str, int]:
    """Return bytes by term."""
    return {term.name: term.bytes for term in plan.terms}


def test_every_term_of_8b_on_one_gpu() -> None:
    """Terms and budget follow by hand from public dimensions and the table's coefficients."""
    plan = memory_plan(sizing(llama_8b()))
    wanted = {
        "weights in 16 bit": 2 * 8_030_261_248,
        "activations": 2 * 8192 * 4096 * 11,
        "logits": 32 * 1 * 128_256 * 4,
        "runtime": 3_758_096_384,
    }
    assert wanted == terms(plan)
    assert int((80 * GIB - sum(wanted.values())) * 0.9 * 0.985) == plan.kv_budget_bytes
    assert 2 * 32 * 8 * 128 * 2 == plan.kv_bytes_per_token == 131_072
    assert 2048 * 131_072 == plan.kv_bytes_per_sequence
    assert plan.kv_budget_bytes // plan.kv_bytes_per_sequence == plan.sequences == 215


def test_tensor_ranks_add_communication_buffers_and_share_kv_heads() -> None:
    """Two ranks hold four KV heads each."""
    plan = memory_plan(sizing(llama_8b(), split=Split(2)))
    assert 358_612_992 == terms(plan)["communication buffers"]
    assert 65_536 == plan.kv_bytes_per_token


def test_pipeline_stages_hand_over_through_nccl_too() -> None:
    """Communication buffers are those of all ranks: two stages of one rank have what two tensor ranks have."""
    assert 358_612_992 == terms(memory_plan(sizing(llama_8b(), split=Split(1, 2))))["communication buffers"]
    assert 411_041_792 == terms(memory_plan(sizing(llama_8b(), split=Split(2, 2))))["communication buffers"]


def test_experts_add_a_routing_workspace() -> None:
    """Tokens x hidden x experts x experts per token / 128 x 4 B, divided over expert ranks."""
    alone, shared = (memory_plan(sizing(qwen3_moe(2), split=Split(8, 1, expert))) for expert in (1, 8))
    assert 8192 * 4096 * 128 * 8 // 128 * 4 == terms(alone)["expert routing"]
    assert 8 * terms(shared)["expert routing"] == terms(alone)["expert routing"]


@pytest.mark.parametrize("tensor", [1, 2, 8])
def test_a_latent_token_is_as_large_on_every_rank(tensor: int) -> None:
    """61 layers x (512 + 64) elements x 2 B, whatever the tensor ranks: 70,272 bytes."""
    plan = memory_plan(sizing(deepseek_v3(), split=Split(tensor)))
    assert 61 * 576 * 2 == plan.kv_bytes_per_token == 70_272


def test_half_of_the_layers_of_gpt_oss_keep_their_window_alone() -> None:
    """Of 1,024 tokens 18 layers hold 128, 18 all; 8 KV heads of 64, keys and values, in 2 B."""
    model = gpt_oss_120b()
    assert 18 * (128 + 1024) * 2 * 8 * 64 * 2 == kv_bytes_per_sequence(model.layers, sizing(model), 1024)


def test_256_experts_of_which_eight_are_chosen_need_their_routing_workspace() -> None:
    """Tokens x hidden x 256 x 8 / 128 x 4 B over the expert ranks, and the coefficients of experts."""
    plan = memory_plan(sizing(deepseek_v3(4), split=Split(8, 1, 8)))
    assert 8192 * 7168 * 256 * 8 // 8 // 128 * 4 == terms(plan)["expert routing"]
    assert 2 * 8192 * 7168 * 10 == terms(plan)["activations"]


def test_the_reference_runtime_expands_latent_vectors_of_a_whole_sequence() -> None:
    """Keys of 192 and values of 128 elements for each of 128 heads, in float32, of one layer at a time."""
    alone = sizing(deepseek_v3(4), runtime="reference", hardware=rehearsal())
    found = terms(memory_plan(alone))
    assert 4 * 128 * (192 + 128) * alone.limits.max_seq_len == found["expanded keys and values"]
    assert "expanded keys and values" not in terms(memory_plan(replace(alone, model=smollm2())))


def test_parameters_of_an_even_split_are_the_models_own() -> None:
    """What a runtime holds twice is no parameter."""
    plan = memory_plan(sizing(deepseek_v3(4), split=Split(8)))
    assert round(parameters(deepseek_v3(4)) / 8) == plan.parameters_even_split < plan.parameters_held


def test_an_fp8_cache_halves_a_token() -> None:
    """One byte an element in place of two."""
    assert 65_536 == memory_plan(sizing(llama_8b(), formats=Formats("bf16", "fp8"))).kv_bytes_per_token


@pytest.mark.parametrize(("tokens", "blocks"), [(1, 1), (32, 1), (33, 2), (64, 2)])
def test_a_sequence_takes_whole_blocks(tokens: int, blocks: int) -> None:
    """The last block is paid for even when one token is in it."""
    model = llama_8b()
    assert blocks * 32 * 131_072 == kv_bytes_per_sequence(model.layers, sizing(model), tokens)


def test_a_sliding_layer_keeps_its_window_and_a_chunked_one_everything() -> None:
    """Memory is only promised where a release is known to free tokens."""
    sliding = Attention(kind="sliding", heads=8, kv_heads=8, head_dim=8, window=100)
    chunked = sliding.model_copy(update={"kind": "chunked"})
    full = sliding.model_copy(update={"kind": "full", "window": None})
    assert [100, 1000, 1000] == [kept_tokens(attention, 1000) for attention in (sliding, chunked, full)]
    assert 50 == kept_tokens(sliding, 50)


def test_layers_with_and_without_a_window_add_up() -> None:
    """Half the layers hold 64 of 1,024 tokens."""
    block = Dense(intermediate=64)
    windows = [Attention(kind="sliding", heads=8, kv_heads=8, head_dim=8, window=64), None]
    full = Attention(kind="full", heads=8, kv_heads=8, head_dim=8)
    layers = tuple(Layer(mixer=window or full, feed_forward=block) for window in windows)
    model = llama(2, 64, 8, 8, 64).model_copy(update={"layers": layers})
    assert (64 + 1024) * 2 * 64 * 2 == kv_bytes_per_sequence(layers, sizing(model), 1024)


def test_beams_multiply_answers_and_not_prompts() -> None:
    """Four beams of 32 tokens after a prompt of 64 hold 192 tokens."""
    wide = sizing(llama_8b(), load=Load(input_tokens=64, output_tokens=32), limits=Limits(max_beam_width=4))
    assert 192 * 131_072 == memory_plan(wide).kv_bytes_per_sequence


@pytest.mark.parametrize(
    ("prompt", "answer", "beams", "blocks"),
    [(64, 32, 1, 3), (64, 32, 4, 6), (70, 32, 4, 4 + 3 * 2), (31, 1, 4, 4), (96, 64, 2, 5 + 2)],
)
def test_beams_share_the_whole_blocks_of_a_prompt(prompt: int, answer: int, beams: int, blocks: int) -> None:
    """A block that the prompt fills in part is each beam's own."""
    load = Load(input_tokens=prompt, output_tokens=answer)
    wide = sizing(llama_8b(), load=load, limits=Limits(max_beam_width=beams))
    assert blocks * 32 * 131_072 == memory_plan(wide).kv_bytes_per_sequence


def test_every_beam_keeps_a_window_of_its_own() -> None:
    """A window of 64 tokens holds two blocks a beam, and one where the answer is one block."""
    window = Attention(kind="sliding", heads=8, kv_heads=8, head_dim=8, window=64)
    layers = (Layer(mixer=window, feed_forward=Dense(intermediate=64)),)
    model = llama(1, 64, 8, 8, 64).model_copy(update={"layers": layers})
    held = [
        memory_plan(
            sizing(model, load=Load(input_tokens=96, output_tokens=answer), limits=Limits(max_beam_width=4))
        ).kv_bytes_per_sequence
        for answer in (32, 640)
    ]
    assert [(2 + 3) * 32 * 256, (2 + 3 * 2) * 32 * 256] == held


def test_the_longest_request_has_all_its_beams() -> None:
    """Of 4,096 tokens 512 are the answer, which each of four beams holds: 4,096 + 3 x 512."""
    wide = sizing(llama_8b(), load=Load(input_tokens=64, output_tokens=512), limits=Limits(max_beam_width=4))
    assert (4096 + 3 * 512) * 131_072 == memory_plan(wide).kv_bytes_longest


def test_a_model_that_does_not_fit_has_a_negative_budget() -> None:
    """What is missing is shown as it is, not scaled by the fraction."""
    plan = memory_plan(sizing(llama_8b(), hardware=hardware(1, 16)))
    assert 16 * GIB - sum(terms(plan).values()) == plan.kv_budget_bytes < 0
    assert 0 == plan.sequences
    assert not plan.fits


def test_the_stage_that_holds_the_fewest_sequences_is_shown() -> None:
    """Of three layers in two stages the first has two."""
    plan = memory_plan(sizing(llama(3, 4096, 32, 8, 14336), split=Split(1, 2)))
    assert 2 * 2 * 8 * 128 * 2 == plan.kv_bytes_per_token


def two_stages(first: Attention, last: Attention) -> ModelSpec:
    """Make four layers whose first half has another attention than the second."""
    layers = [Layer(mixer=attention, feed_forward=Dense(intermediate=64)) for attention in (first, last)]
    return llama(4, 64, 8, 8, 64).model_copy(update={"layers": (*layers[:1] * 2, *layers[1:] * 2)})


def test_the_binding_stage_need_not_be_the_first() -> None:
    """A first stage of windows of 64 tokens has room; the second keeps all 2,048 tokens of a sequence."""
    window = Attention(kind="sliding", heads=8, kv_heads=8, head_dim=8, window=64)
    full = Attention(kind="full", heads=8, kv_heads=8, head_dim=8)
    plan = memory_plan(sizing(two_stages(window, full), split=Split(1, 2)))
    assert 2 * 2048 * 2 * 64 * 2 == plan.kv_bytes_per_sequence
    assert 2 * 4096 * 2 * 64 * 2 == plan.kv_bytes_longest


def test_a_stage_that_cannot_hold_the_longest_sequence_binds_before_one_with_fewer_sequences() -> None:
    """In 40 MiB the first stage holds forty asked sequences and no long one; the second holds five, of any length."""
    narrow = Attention(kind="full", heads=8, kv_heads=1, head_dim=64)
    wide = Attention(kind="sliding", heads=8, kv_heads=8, head_dim=64, window=4096)
    roomy = sizing(two_stages(narrow, wide), split=Split(1, 2), limits=Limits(max_seq_len=131_072))
    taken = sum(terms(memory_plan(roomy)).values())
    plan = memory_plan(replace(roomy, hardware=hardware(2, taken / GIB + 45 / 1024)))
    assert 131_072 * 2 * 2 * 64 * 2 == plan.kv_bytes_longest > plan.kv_budget_bytes
    assert 2048 * 2 * 2 * 64 * 2 == plan.kv_bytes_per_sequence
    assert (True, False, False) == (plan.holds_asked, plan.holds_longest, plan.fits)


@pytest.mark.parametrize("tokens", [4096, 20_000, 131_072])
def test_the_longest_sequence_is_the_longest_that_fits(tokens: int) -> None:
    """It is in whole blocks, fits, one block more does not, and it never exceeds max_seq_len."""
    small = sizing(llama_8b(), hardware=hardware(1, 24), limits=Limits(max_seq_len=tokens))
    plan = memory_plan(small)
    longest = plan.longest_sequence
    assert min(tokens, 35_136) == longest
    assert kv_bytes_per_sequence(llama_8b().layers, small, longest) <= plan.kv_budget_bytes
    assert (tokens <= 35_136) == plan.holds_longest == plan.fits
    assert longest == tokens or kv_bytes_per_sequence(llama_8b().layers, small, longest + 32) > plan.kv_budget_bytes


def test_the_reference_runtime_keeps_everything_as_float32() -> None:
    """Weights, keys and values take four bytes whatever the checkpoint's format; there is no CUDA runtime."""
    small = sizing(smollm2(), hardware=rehearsal(), runtime="reference", formats=Formats("fp8", "fp8"))
    plan = memory_plan(small)
    assert {"weights", "activations", "logits"} == set(terms(plan))
    assert 4 * 134_515_008 == terms(plan)["weights"]
    assert kv_bytes_per_token(smollm2().layers, 1, 4) == plan.kv_bytes_per_token == 2 * 30 * 3 * 64 * 4


def test_an_nvfp4_cache_takes_nine_sixteenths_of_an_fp8_one() -> None:
    """Half a byte an element, and a scale of one byte for sixteen: 36,864 bytes a token of 8B for 65,536."""
    fp8, nvfp4 = (memory_plan(sizing(llama_8b(), formats=Formats("fp8", kept))) for kept in ("fp8", "nvfp4"))
    assert (65_536, 36_864) == (fp8.kv_bytes_per_token, nvfp4.kv_bytes_per_token)
    assert 16 * nvfp4.kv_bytes_per_sequence == 9 * fp8.kv_bytes_per_sequence


def test_nvfp4_weights_are_a_term_of_their_own_with_their_scales() -> None:
    """The table shows the half bytes and, among the scales, those of the blocks."""
    plan = memory_plan(sizing(llama_8b(), formats=Formats("nvfp4", "fp8")))
    linear = 6_979_321_856
    assert linear // 2 == terms(plan)["weights in nvfp4"]
    assert linear // 16 + 4 * (2 * 7 + 2) * 32 == terms(plan)["scales"]
    assert "weights in fp8" not in terms(plan)
    how = {term.name: term.how for term in plan.terms}["scales"]
    assert "512 scales x 4 B + 436,207,616 scales x 1 B" == how


def test_the_simulated_runtime_loads_nothing_on_a_cpu() -> None:
    """A rehearsal without weights has no terms; on GPU hardware it takes that hardware's."""
    simulated = sizing(smollm2(), hardware=rehearsal(), runtime="simulated")
    assert () == memory_plan(simulated).terms
    on_gpu = memory_plan(replace(simulated, hardware=hardware()))
    assert terms(memory_plan(sizing(smollm2()))) == terms(on_gpu)


@settings(max_examples=40)
@given(
    tensor=st.sampled_from([1, 2, 4, 8]),
    tokens=st.integers(512, 16384),
    batch=st.integers(1, 512),
    fraction=st.floats(0.1, 0.95),
)
def test_more_of_anything_asked_never_leaves_more(tensor: int, tokens: int, batch: int, fraction: float) -> None:
    """Larger steps and batches shrink the budget; more ranks and a larger fraction grow it."""

    def budget(**changes: Any) -> int:
        return memory_plan(sizing(maverick(), hardware=hardware(8, 1000), **changes)).kv_budget_bytes

    limits, cache = Limits(max_num_tokens=tokens, max_batch_size=batch), KvCache(free_gpu_memory_fraction=fraction)
    base = budget(split=Split(tensor), limits=limits, kv_cache=cache)
    larger = Limits(max_num_tokens=2 * tokens, max_batch_size=2 * batch)
    assert budget(split=Split(tensor), limits=larger, kv_cache=cache) < base
    assert budget(split=Split(2 * tensor), limits=limits, kv_cache=cache) > base
    assert budget(split=Split(tensor), limits=limits, kv_cache=KvCache(free_gpu_memory_fraction=0.99)) > base


def test_the_reference_runtime_works_in_pieces_of_that_size() -> None:
    """The activation term and the runtime agree on how many tokens pass the layers at once."""
    assert reference_model._CHUNK == REFERENCE_PIECE


def test_the_model_predicts_measured_capacities(shared: Path) -> None:
    """72 measured servers: 1 % off on average on each GPU system, 2 % at worst, or one sequence."""
    systems = by_system(measured_rows(shared / "contract" / CONTRACT.name))
    found = {name: errors_of(rows, lambda row: row.plan.sequences) for name, rows in systems.items()}

    assert {"h100_sxm": 24, "gb300": 48} == {name: errors.rows for name, errors in found.items()}
    assert all(errors.mean <= 0.01 for errors in found.values()), found
    assert all(errors.worst_beyond_one <= 0.02 for errors in found.values()), found


def test_what_is_fitted_on_one_system_holds_on_the_other(shared: Path) -> None:
    """The runtime's bytes fitted on H100 alone are near the table's, and predict GB300 within 2 %."""
    systems = by_system(measured_rows(shared / "contract" / CONTRACT.name))
    fitted = fitted_runtime(systems[FITTED_ON])
    others = [row for name, rows in systems.items() if name != FITTED_ON for row in rows]
    apart = errors_of(others, lambda row: row.with_runtime(fitted))

    assert pytest.approx(fitted, rel=0.1) == buffer_bytes("runtime", 1)
    assert apart.mean <= 0.01
    assert apart.worst <= 0.02


def test_the_fit_finds_the_bytes_that_measurements_were_made_with(shared: Path) -> None:
    """Servers of a made-up runtime of 9 GiB, rounded down as real ones are, give 9 GiB back within 2 %."""
    rows = measured_rows(shared / "contract" / CONTRACT.name)
    made_up = [replace(row, sequences=row.with_runtime(9 * GIB)) for row in rows]

    assert pytest.approx(fitted_runtime(made_up), rel=0.02) == 9 * GIB
