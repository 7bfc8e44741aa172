"""Small ``config.json`` documents of every family, as dictionaries to change."""

from __future__ import annotations

from typing import Any

from trtllm_kit.spec.hf_config import read_model_spec
from trtllm_kit.spec.model import ModelSpec

SHAPE: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "torch_dtype": "bfloat16",
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"architectures": ["LlamaForCausalLM"]},
    "mistral": {"architectures": ["MistralForCausalLM"], "sliding_window": None},
    "mixtral": {"architectures": ["MixtralForCausalLM"], "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"]},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "head_dim": 8},
    "qwen3_moe": {
        "architectures": ["Qwen3MoeForCausalLM"],
        "head_dim": 8,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
    },
    "deepseek_v3": {
        "architectures": ["DeepseekV3ForCausalLM"],
        "num_key_value_heads": 4,
        "q_lora_rank": 12,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4,
        "v_head_dim": 6,
        "first_k_dense_replace": 1,
        "moe_intermediate_size": 16,
        "n_routed_experts": 8,
        "n_shared_experts": 2,
        "num_experts_per_tok": 2,
        "n_group": 4,
        "topk_group": 2,
        "routed_scaling_factor": 2.5,
    },
    "gpt_oss": {
        "architectures": ["GptOssForCausalLM"],
        "head_dim": 8,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": 16,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 32,
            "truncate": False,
        },
    },
    "gemma2": {"architectures": ["Gemma2ForCausalLM"], "head_dim": 8},
    "gemma3": {"architectures": ["Gemma3ForCausalLM"], "head_dim": 8},
    "phi3": {"architectures": ["Phi3ForCausalLM"]},
    "llama4": {
        "architectures": ["Llama4ForCausalLM"],
        "intermediate_size_mlp": 40,
        "num_local_experts": 4,
        "num_experts_per_tok": 1,
    },
}


def config(family: str, **changes: Any) -> dict[str, Any]:
    """Return the document of a family with some keys changed."""
    return SHAPE | FAMILIES[family] | changes


def without(family: str, *keys: str) -> dict[str, Any]:
    """Return the document of a family without some keys."""
    return {key: value for key, value in config(family).items() if key not in keys}


def read(family: str, **changes: Any) -> ModelSpec:
    """Read the document of a family with some keys changed."""
    return read_model_spec(config(family, **changes), "config.json")


def wrapped(outer: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Return a Llama 4 document with its text model in ``text_config``."""
    text = {key: value for key, value in config("llama4", **changes).items() if key != "architectures"}
    return {"architectures": ["Llama4ForConditionalGeneration"], "text_config": text} | (outer or {})
