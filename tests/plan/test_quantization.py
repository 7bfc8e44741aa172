"""Which tensors leave 16 bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.specs import deepseek_v3, gemma3_27b, gpt_oss_120b, llama_8b, maverick, phi4_mini, qwen3_moe
from trtllm_kit.plan.formats import Formats
from trtllm_kit.plan.quantization import (
    fused_groups,
    idle_patterns,
    is_excluded,
    module_of,
    plain_weights_advice,
    tensor_formats,
)
from trtllm_kit.spec.model import ModelSpec, StoredFormats
from trtllm_kit.spec.tensors import Role, TensorFact


def quantised_tensors(model: ModelSpec, number: int, exclude: tuple[str, ...]) -> frozenset[str]:
    """Return what leaves 16 bit for FP8."""
    return frozenset(tensor_formats(model, number, Formats("fp8", exclude=exclude)))


def suffixes(names: frozenset[str]) -> set[str]:
    """Cut what every tensor of a layer begins with."""
    return {name.partition(".layers.0.")[2] for name in names}


def test_the_seven_linears_of_a_dense_layer_are_quantised() -> None:
    """Norms are not."""
    wanted = {f"self_attn.{name}_proj.weight" for name in "qkvo"}
    wanted |= {f"mlp.{name}_proj.weight" for name in ("gate", "up", "down")}
    assert wanted == suffixes(quantised_tensors(llama_8b(), 0, ("lm_head",)))


def test_what_is_fused_with_an_excluded_tensor_stays_with_it() -> None:
    """The runtime fuses q, k and v: excluding one keeps all three in 16 bit."""
    found = suffixes(quantised_tensors(llama_8b(), 0, ("*.q_proj",)))
    assert {"self_attn.o_proj.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"} == found


def test_routers_stay_in_16_bit_and_experts_do_not() -> None:
    """A router decides with small differences; its experts are plain linears."""
    found = suffixes(quantised_tensors(qwen3_moe(1), 0, ()))
    assert "mlp.experts.{expert}.down_proj.weight" in found
    assert "mlp.gate.weight" not in found


def test_fused_experts_are_counted_as_quantised() -> None:
    """Llama 4's two expert tensors hold linears too."""
    found = quantised_tensors(maverick(), 1, ("*lm_head",))
    assert "language_model.model.layers.1.feed_forward.experts.gate_up_proj" in found
    assert "language_model.model.layers.1.feed_forward.router.weight" not in found


@pytest.mark.parametrize(
    ("tensor", "pattern", "excluded"),
    [
        ("lm_head.weight", "lm_head", True),
        ("model.layers.3.mlp.up_proj.weight", "model.layers.3.*", True),
        ("model.layers.31.mlp.up_proj.weight", "model.layers.3.*", False),
        ("model.layers.3.mlp.up_proj.weight", "up_proj", False),
        ("model.layers.3.mlp.up_proj.weight", "*up_proj", True),
        ("model.layers.3.mlp.experts.{expert}.up_proj.weight", "*.experts.7.*", True),
        ("model.layers.3.mlp.experts.{expert}.up_proj.weight", "*.experts.8.*", False),
        ("model.layers.3.mlp.experts.{expert}.up_proj.weight", "*.experts.*", True),
        ("model.layers.3.mlp.experts.{expert}.up_proj.weight", "*.experts.[0-3].*", True),
    ],
)
def test_patterns_match_whole_module_names(tensor: str, pattern: str, excluded: bool) -> None:
    """A star matches anything, no star means the whole name, and each of eight experts has a name of its own."""
    copies = 8 if "{expert}" in tensor else 1
    fact = TensorFact(name=tensor, shape=(4, 4), role=Role.UP, layer=3, copies=copies)
    assert excluded == is_excluded(fact, (pattern,))


def test_naming_one_expert_keeps_all_of_its_layer_in_16_bit() -> None:
    """The runtime holds all experts of a layer in one tensor of one format."""
    kept = quantised_tensors(qwen3_moe(1), 0, ("*.experts.5.up_proj",))
    assert {
        "self_attn.q_proj.weight",
        "self_attn.k_proj.weight",
        "self_attn.v_proj.weight",
        "self_attn.o_proj.weight",
    } == (suffixes(kept))


def test_a_stored_fusion_is_quantised_or_kept_as_one() -> None:
    """Phi-3's qkv_proj and gate_up_proj are modules of their own, and a pattern that names a part of one is idle."""
    groups = [[fact.role.value for fact in group] for group in fused_groups(phi4_mini(), 0)]
    assert [["qkv_proj"], ["o_proj"], ["gate_up_proj"], ["down_proj"]] == groups
    kept = quantised_tensors(phi4_mini(), 0, ("*.qkv_proj",))
    assert {"self_attn.o_proj.weight", "mlp.gate_up_proj.weight", "mlp.down_proj.weight"} == suffixes(kept)
    assert ("*.q_proj",) == idle_patterns(phi4_mini(), ("*.q_proj", "*.qkv_proj", "lm_head"))


def test_patterns_may_name_the_vision_part_of_a_family_that_has_one() -> None:
    """Gemma 3's tower is copied as it is; Phi-3 has none."""
    patterns = ("vision_tower*", "multi_modal_projector*")
    assert () == idle_patterns(gemma3_27b(), patterns)
    assert patterns == idle_patterns(phi4_mini(), patterns)


def test_projections_in_front_of_latent_attention_stay_in_16_bit() -> None:
    """Of a DeepSeek layer the output projection, the routed and the shared experts leave 16 bit, as in NVIDIA's own."""
    found = {name.rpartition(".layers.4.")[2] for name in quantised_tensors(deepseek_v3(5), 4, ())}
    wanted = {f"mlp.experts.{{expert}}.{name}_proj.weight" for name in ("gate", "up", "down")}
    wanted |= {f"mlp.shared_experts.{name}_proj.weight" for name in ("gate", "up", "down")}
    assert wanted | {"self_attn.o_proj.weight"} == found


def test_the_recorded_nvfp4_checkpoint_keeps_the_same_projections(shared: Path) -> None:
    """NVIDIA's DeepSeek-V3.1 excludes attention up to its output, the head and the prediction layer."""
    file = shared / "models" / "nvidia--DeepSeek-V3.1-NVFP4_hf_quant_config.json"
    theirs = set(json.loads(file.read_text())["quantization"]["exclude_modules"])
    model = deepseek_v3().model_copy(update={"prediction_layers": 1})
    linear = {module_of(fact.name) for number in range(61) for group in fused_groups(model, number) for fact in group}
    chosen = {module_of(name) for number in range(61) for name in quantised_tensors(model, number, ("lm_head",))}
    assert theirs == (linear - chosen) | {"lm_head", "model.layers.61*"}


def test_biases_of_fused_experts_are_no_weights() -> None:
    """gpt-oss: two fused tensors and four attention matrices leave 16 bit; biases, sinks and router stay."""
    found = suffixes(quantised_tensors(gpt_oss_120b(1), 0, ()))
    wanted = {f"self_attn.{name}_proj.weight" for name in "qkvo"}
    assert wanted | {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"} == found


@pytest.mark.parametrize(
    ("model", "method", "advice"),
    [
        (deepseek_v3(1), "fp8", "fp8_cast_bf16.py"),
        (gpt_oss_120b(1), "mxfp4", "Mxfp4Config(dequantize=True)"),
        (llama_8b(), "fp8", "BF16 original"),
    ],
)
def test_how_to_come_by_plain_weights(model: ModelSpec, method: str, advice: str) -> None:
    """What was never published in 16 bit is turned into it first."""
    assert advice in plain_weights_advice(model.model_copy(update={"stored": StoredFormats(method=method)}))
