"""Which tensors the output holds, in which format and file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.checkpoint.plans import plan_for
from tests.support.specs import gemma3_27b, phi4_mini
from tests.support.tiny_model import write_tiny_model
from trtllm_kit.checkpoint.convert import conversion_steps
from trtllm_kit.checkpoint.layout import (
    in_files,
    quantised_modules,
    unquantised_modules,
    writes_kv_scales,
)
from trtllm_kit.checkpoint.names import scale_name
from trtllm_kit.checkpoint.step import TensorStep

LLAMA_LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def test_bf16_passes_every_tensor_through(tmp_path: Path) -> None:
    """Nothing is added, renamed or reordered."""
    source = write_tiny_model(tmp_path)
    steps = conversion_steps(source, plan_for(source))
    assert {("plain", "weight", "BF16")} == {(step.format, step.part, step.dtype) for step in steps}
    assert [step.origin for step in steps] == [step.name for step in steps]
    assert 21 == len(steps)


def test_fp8_adds_two_scales_to_each_linear_and_two_to_each_cache(tmp_path: Path) -> None:
    """14 linears have 28 scales, two layers have four KV scales; ends and norms stay BF16."""
    source = write_tiny_model(tmp_path)
    steps = {step.name: step for step in conversion_steps(source, plan_for(source, "fp8", "fp8"))}
    assert 21 + 28 + 4 == len(steps)
    assert ("F8_E4M3", (64, 128)) == (
        steps["model.layers.1.mlp.down_proj.weight"].dtype,
        steps["model.layers.1.mlp.down_proj.weight"].shape,
    )
    for name in ("mlp.down_proj.weight_scale", "mlp.down_proj.input_scale", "self_attn.k_proj.k_scale"):
        assert ("F32", ()) == (steps[f"model.layers.1.{name}"].dtype, steps[f"model.layers.1.{name}"].shape)
    for name in ("model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"):
        assert ("plain", "BF16") == (steps[name].format, steps[name].dtype)


def test_fp8_weights_with_a_16_bit_cache_have_no_kv_scales(tmp_path: Path) -> None:
    """A scale nobody uses is not written."""
    source = write_tiny_model(tmp_path)
    steps = conversion_steps(source, plan_for(source, "fp8", "bf16"))
    assert not [step.name for step in steps if step.name.endswith(("k_scale", "v_scale"))]


def test_16_bit_weights_with_an_fp8_cache_have_no_kv_scales(tmp_path: Path) -> None:
    """TensorRT-LLM reads KV scales of quantised checkpoints alone."""
    source = write_tiny_model(tmp_path)
    plan = plan_for(source, "bf16", "fp8")
    assert not writes_kv_scales(plan.quantization)
    assert {"plain"} == {step.format for step in conversion_steps(source, plan)}


def test_an_excluded_projection_keeps_the_ones_it_is_fused_with(tmp_path: Path) -> None:
    """Excluding layer 0's k_proj keeps q and v in 16 bit, and nothing else."""
    source = write_tiny_model(tmp_path)
    plan = plan_for(source, "fp8", exclude=("model.layers.0.self_attn.k_proj",))
    quantised = quantised_modules(plan.model, plan.quantization)
    kept = {f"model.layers.0.self_attn.{name}" for name in ("q_proj", "k_proj", "v_proj")}
    assert 11 == len(quantised)
    assert not kept & quantised
    assert kept <= set(unquantised_modules(plan.model, quantised))


def test_a_pattern_excludes_all_it_matches(tmp_path: Path) -> None:
    """* stands for anything, as in the runtime."""
    source = write_tiny_model(tmp_path)
    plan = plan_for(source, "fp8", exclude=("*.mlp.*",))
    quantised = quantised_modules(plan.model, plan.quantization)
    assert {"q_proj", "k_proj", "v_proj", "o_proj"} == {name.rpartition(".")[2] for name in quantised}


@pytest.mark.parametrize(
    ("family", "router", "experts"),
    [
        ("qwen3_moe", "model.layers.1.mlp.gate", "model.layers.1.mlp.experts"),
        ("mixtral", "model.layers.1.block_sparse_moe.gate", "model.layers.1.block_sparse_moe.experts"),
    ],
)
def test_routers_stay_and_experts_are_excluded_as_one(tmp_path: Path, family: str, router: str, experts: str) -> None:
    """Excluding one expert keeps all of its layer, and names the fused module the runtime looks for."""
    source = write_tiny_model(tmp_path, family)
    everything = plan_for(source, "fp8")
    assert router in unquantised_modules(everything.model, quantised_modules(everything.model, everything.quantization))
    plan = plan_for(source, "fp8", exclude=(f"{experts}.2.*",))
    quantised = quantised_modules(plan.model, plan.quantization)
    assert not [module for module in quantised if module.startswith(experts)]
    assert experts in unquantised_modules(plan.model, quantised)


def test_gate_and_up_of_an_expert_share_their_weight_scale(tmp_path: Path) -> None:
    """The runtime has one scale for both; a dense block's projections keep their own."""
    source = write_tiny_model(tmp_path, "mixtral")
    steps = {step.name: step for step in conversion_steps(source, plan_for(source, "fp8"))}
    base = "model.layers.0.block_sparse_moe.experts.1."
    assert [f"{base}w3.weight"] == [str(other) for other in steps[f"{base}w1.weight_scale"].scaled_with]
    assert [f"{base}w1.weight"] == [str(other) for other in steps[f"{base}w3.weight"].scaled_with]
    assert () == steps[f"{base}w2.weight"].scaled_with
    assert () == steps["model.layers.0.self_attn.q_proj.weight"].scaled_with


def test_fused_experts_have_scales_with_an_underscore(tmp_path: Path) -> None:
    """Llama 4's tensors are named like modules, and so are their scales."""
    source = write_tiny_model(tmp_path, "llama4")
    names = {step.name for step in conversion_steps(source, plan_for(source, "fp8"))}
    base = "language_model.model.layers.1.feed_forward."
    assert {f"{base}experts.down_proj", f"{base}experts.down_proj_weight_scale"} <= names
    assert {f"{base}experts.gate_up_proj_input_scale", f"{base}shared_expert.up_proj.input_scale"} <= names


def test_parts_outside_the_text_model_of_gemma3_are_named_and_its_scaled_embedding_is_not() -> None:
    """ModelOpt names no embedding that multiplies; the runtime would look for scales of the vision part."""
    names = unquantised_modules(gemma3_27b(), frozenset())
    assert {"vision_tower*", "multi_modal_projector*", "language_model.lm_head"} <= set(names)
    assert "language_model.model.embed_tokens" not in names
    assert "model.embed_tokens" in unquantised_modules(phi4_mini(), frozenset())


def test_kv_scales_of_a_fused_projection_have_the_names_of_its_parts(tmp_path: Path) -> None:
    """qkv_proj is one module, and its cache scales are k_proj's and v_proj's all the same."""
    source = write_tiny_model(tmp_path, "phi3")
    names = {step.name for step in conversion_steps(source, plan_for(source, "fp8", "fp8"))}
    base = "model.layers.0.self_attn."
    assert {f"{base}qkv_proj.input_scale", f"{base}k_proj.k_scale", f"{base}v_proj.v_scale"} <= names
    assert f"{base}k_proj.input_scale" not in names


def test_scale_names() -> None:
    """A module's tensor has a dot, a fused tensor an underscore."""
    assert "a.q_proj.weight_scale" == scale_name("a.q_proj.weight", "weight_scale")
    assert "a.experts.down_proj_input_scale" == scale_name("a.experts.down_proj", "input_scale")


def test_float32_is_rounded_to_bfloat16(tmp_path: Path) -> None:
    """No runtime serves float32 weights."""
    source = write_tiny_model(tmp_path, dtype="float32")
    steps = conversion_steps(source, plan_for(source))
    assert {("BF16", "plain")} == {(step.dtype, step.format) for step in steps}


@given(
    sizes=st.lists(st.tuples(st.sampled_from(["BF16", "F32", "F8_E4M3"]), st.integers(1, 40)), min_size=1, max_size=30),
    most=st.integers(1, 200),
)
def test_shards_keep_the_limit_the_order_and_the_alignment(sizes: list[tuple[str, int]], most: int) -> None:
    """No shard is larger than the limit unless one tensor is; every tensor lies on a multiple of its element."""
    steps = [TensorStep(str(at), dtype, (count,)) for at, (dtype, count) in enumerate(sizes)]
    filed = in_files(steps, most)
    assert sorted(step.name for step in steps) == sorted(step.name for step in filed)
    files = sorted({step.file for step in filed})
    width = {"BF16": 2, "F32": 4, "F8_E4M3": 1}
    for number, file in enumerate(files, start=1):
        inside = [step for step in filed if step.file == file]
        assert len(files) == 1 or file == f"model-{number:05d}-of-{len(files):05d}.safetensors"
        assert sum(step.nbytes for step in inside) <= most or len(inside) == 1
        at = 0
        for step in inside:
            assert at % width[step.dtype] == 0
            at += step.nbytes
