"""config.json and quant_cfg.json of an engine's checkpoint."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import Any

import pytest

from tests.support.specs import llama, llama_8b, qwen3_moe
from trtllm_kit.checkpoint.rank_config import quant_cfg, rank_config
from trtllm_kit.plan.formats import Formats
from trtllm_kit.plan.parallelism import Split
from trtllm_kit.plan.ranks import RankOrder
from trtllm_kit.spec.model import ModelSpec, Rope
from trtllm_kit.upstream.trtllm_checkpoint import Section, strict_keys

RELEASES = ("0.12.0", "0.14.0", "0.15.0", "0.17.0", "1.0.0", "1.2.1")
SECTIONS: tuple[Section, ...] = ("mapping", "quantization", "moe")
LINEARS = ("attention.qkv", "attention.dense", "mlp.fc", "mlp.gate", "mlp.proj")


def config(
    model: ModelSpec, formats: Formats | None = None, split: Split | None = None, release: str = "1.2.1"
) -> dict[str, Any]:
    """Return the parsed config.json."""
    text = rank_config(RankOrder(model, formats or Formats(), split or Split(), release))
    document: dict[str, Any] = json.loads(text)
    return document


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("weights", ["bf16", "fp8", "int8_wo"])
@pytest.mark.parametrize("model", [llama_8b(), qwen3_moe(2)], ids=["llama", "qwen3_moe"])
def test_strict_sections_have_no_key_the_release_does_not_know(model: ModelSpec, weights: Any, release: str) -> None:
    """A key too many there is a TypeError upstream."""
    document = config(model, Formats(weights), Split(2), release)
    for section in SECTIONS:
        assert document.get(section, {}).keys() <= strict_keys(section, release)


def test_a_plain_llama_says_what_the_c_loader_needs() -> None:
    """Required keys, the rope, the sizes and the ranks are there, with upstream's words."""
    rope = Rope(
        theta=5e5, kind="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position=8192
    )
    document = config(llama_8b().model_copy(update={"rope": rope}), split=Split(4, 2))
    assert {
        "architecture": "LlamaForCausalLM",
        "dtype": "bfloat16",
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_size": 128,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "hidden_act": "silu",
        "position_embedding_type": "rope_gpt_neox",
        "rotary_base": 5e5,
        "mapping": {"world_size": 8, "tp_size": 4, "pp_size": 2},
        "quantization": {"quant_algo": None, "kv_cache_quant_algo": None},
    }.items() <= document.items()
    scaling = document["rotary_scaling"]
    assert ("llama3", "llama3", 8.0, 8192) == (
        scaling["type"],
        scaling["rope_type"],
        scaling["factor"],
        scaling["original_max_position_embeddings"],
    )


def test_experts_have_a_section_and_their_own_ranks() -> None:
    """Section moe names experts and how they are weighed, mapping how ranks share them; Qwen has its own words."""
    document = config(qwen3_moe(2), split=Split(8, 1, 4))
    assert {"num_experts": 128, "top_k": 8, "normalization_mode": 1} == document["moe"]
    assert {"moe_tp_size": 2, "moe_ep_size": 4, "tp_size": 8}.items() <= document["mapping"].items()
    assert {
        "hidden_act": "swiglu",
        "qwen_type": "qwen3_moe",
        "moe_intermediate_size": 1536,
        "qk_layernorm": True,
        "attn_bias": False,
    }.items() <= document.items()


def test_weights_of_experts_that_are_not_normalised_are_kept() -> None:
    """normalization_mode 0 leaves the router's softmax as it is."""
    model = qwen3_moe(1)
    block = model.layers[0].feed_forward
    routing = block.routing.model_copy(update={"normalise": False})  # type: ignore[union-attr]
    layer = model.layers[0].model_copy(update={"feed_forward": block.model_copy(update={"routing": routing})})
    assert 0 == config(model.model_copy(update={"layers": (layer,)}))["moe"]["normalization_mode"]


def excluded(document: dict[str, Any], names: list[str]) -> set[str]:
    """Return the names that upstream's own matching leaves out."""
    patterns = document["quantization"]["exclude_modules"]
    return {name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)}


def test_exclusions_name_the_engines_modules_and_keep_upstreams_own() -> None:
    """A pattern of ours becomes the engine's module, by name and by weight; head, embedding and router stay out too."""
    formats = Formats("fp8", exclude=("lm_head", "*.layers.1.self_attn.k_proj"))
    document = config(llama(3, 64, 8, 2, 128), formats)
    names = [f"transformer.layers.{layer}.{linear}" for layer in range(3) for linear in LINEARS]
    ends = ["lm_head", "transformer.vocab_embedding", "transformer.layers.0.mlp.router"]
    assert {"transformer.layers.1.attention.qkv", *ends} == excluded(document, names + ends)
    weights = [f"{name}.weight" for name in names]
    assert {"transformer.layers.1.attention.qkv.weight"} == excluded(document, weights)


def test_a_layer_of_ten_is_not_taken_for_layer_one() -> None:
    """Patterns end where the layer's number ends."""
    document = config(llama(12, 64, 8, 2, 128), Formats("fp8", exclude=("*.layers.1.*",)))
    names = [f"transformer.layers.{layer}.{linear}" for layer in range(12) for linear in LINEARS]
    assert {f"transformer.layers.1.{linear}" for linear in LINEARS} == excluded(document, names)


def test_row_wise_fp8_leaves_the_last_norm_and_the_norm_of_what_is_kept() -> None:
    """Its norms hand over FP8, so the one in front of a block in 16 bit stays plain, and the last one always."""
    document = config(llama(2, 64, 8, 2, 128), Formats("fp8_rowwise", exclude=("*.0.self_attn.*",)))
    modules = ("attention", "input_layernorm", "mlp", "post_layernorm")
    names = ["transformer.ln_f", *(f"transformer.layers.{layer}.{module}" for layer in range(2) for module in modules)]
    kept = {"transformer.ln_f", "transformer.layers.0.attention", "transformer.layers.0.input_layernorm"}
    assert kept == excluded(document, names)


def test_kept_experts_are_one_module() -> None:
    """Upstream makes a plain mixture of experts again where its own name is excluded."""
    document = config(qwen3_moe(2), Formats("fp8", exclude=("*.layers.1.mlp.experts.3.up_proj",)))
    names = [f"transformer.layers.{layer}.{module}" for layer in range(2) for module in ("mlp", "attention.qkv")]
    assert {"transformer.layers.1.mlp"} == excluded(document, names)


def test_mixed_formats_are_named_module_by_module() -> None:
    """config.json says MIXED_PRECISION and quant_cfg.json what each module has; the stages count from zero."""
    formats = Formats("mixed", "fp8", groups={"attention": "fp8", "feed_forward": "int8_wo"})
    order = RankOrder(llama(4, 64, 8, 2, 128), formats, Split(1, 2), "1.2.1")
    document = json.loads(quant_cfg(order) or "")
    attention = {f"transformer.layers.{n}.attention.{part}": "FP8" for n in range(2) for part in ("qkv", "dense")}
    forward = {f"transformer.layers.{n}.mlp.{part}": "W8A16" for n in range(2) for part in ("fc", "gate", "proj")}
    assert attention | forward == {name: entry["quant_algo"] for name, entry in document["quantized_layers"].items()}
    wanted = {"quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": "FP8"}
    assert wanted == json.loads(rank_config(order))["quantization"]
    assert wanted.items() <= document.items()


def test_one_format_beside_16_bit_is_not_mixed() -> None:
    """Mixed weights of a single format are that format with exclusions, which every release reads."""
    formats = Formats("mixed", groups={"attention": "fp8", "feed_forward": "bf16"})
    order = RankOrder(llama(1, 64, 8, 2, 128), formats, Split(), "0.12.0")
    document = json.loads(rank_config(order))
    assert quant_cfg(order) is None
    assert "FP8" == document["quantization"]["quant_algo"]
    assert {"transformer.layers.0.mlp.fc"} == excluded(document, ["transformer.layers.0.mlp.fc"])


def test_nvfp4_says_the_size_of_its_blocks() -> None:
    """group_size is that of what lies in the file: 16 for NVFP4, and nothing where the builder packs."""
    model = llama(1, 64, 8, 2, 128)
    assert 16 == config(model, Formats("nvfp4"))["quantization"]["group_size"]
    assert "group_size" not in config(model, Formats("int4_wo", group_size=128))["quantization"]
