"""What tiny DeepSeek-V3 and gpt-oss models are made of: their keys, and their tensors that no other family has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

DEEPSEEK_V3: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "num_key_value_heads": 4,
    "head_dim": 8,
    "q_lora_rank": 24,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "first_k_dense_replace": 1,
    "moe_intermediate_size": 32,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "n_group": 4,
    "topk_group": 2,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "num_nextn_predict_layers": 0,
    "attention_bias": False,
    "rope_scaling": {
        "type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 128,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 1.0,
        "mscale_all_dim": 0.8,
    },
}
GPT_OSS: dict[str, Any] = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "intermediate_size": 32,
    "attention_bias": True,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "sliding_window": 128,
    "swiglu_limit": 7.0,
    "layer_types": ["sliding_attention", "full_attention"],
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 128,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
    },
}


def latent_attention(config: dict[str, Any], matrix: Any, norm: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attention of a DeepSeek layer."""
    hidden, heads, rank = config["hidden_size"], config["num_attention_heads"], config["kv_lora_rank"]
    turned, query_rank = config["qk_rope_head_dim"], config["q_lora_rank"]
    plain, value = config["qk_nope_head_dim"], config["v_head_dim"]
    if query_rank is None:
        yield "self_attn.q_proj.weight", matrix(heads * (plain + turned), hidden)
    else:
        yield "self_attn.q_a_proj.weight", matrix(query_rank, hidden)
        yield "self_attn.q_a_layernorm.weight", norm(query_rank)
        yield "self_attn.q_b_proj.weight", matrix(heads * (plain + turned), query_rank)
    yield "self_attn.kv_a_proj_with_mqa.weight", matrix(rank + turned, hidden)
    yield "self_attn.kv_a_layernorm.weight", norm(rank)
    yield "self_attn.kv_b_proj.weight", matrix(heads * (plain + value), rank)
    yield "self_attn.o_proj.weight", matrix(hidden, heads * value)


def deepseek_experts(config: dict[str, Any], matrix: Any) -> Iterator[tuple[str, Any]]:
    """Yield the router and the experts of a DeepSeek layer; its choice bias is large enough to change choices."""
    hidden, width, experts = config["hidden_size"], config["moe_intermediate_size"], config["n_routed_experts"]
    yield "mlp.gate.weight", matrix(experts, hidden)
    yield "mlp.gate.e_score_correction_bias", matrix(experts, fan_in=30)
    blocks = [(f"mlp.experts.{expert}.", width) for expert in range(experts)]
    for prefix, wide in (*blocks, ("mlp.shared_experts.", config["n_shared_experts"] * width)):
        yield f"{prefix}gate_proj.weight", matrix(wide, hidden)
        yield f"{prefix}up_proj.weight", matrix(wide, hidden)
        yield f"{prefix}down_proj.weight", matrix(hidden, wide)


def gpt_oss_experts(config: dict[str, Any], matrix: Any) -> Iterator[tuple[str, Any]]:
    """Yield the router and the fused experts of a gpt-oss layer; some gates pass the limit of 7."""
    hidden, width, experts = config["hidden_size"], config["intermediate_size"], config["num_local_experts"]
    yield "mlp.router.weight", matrix(experts, hidden)
    yield "mlp.router.bias", matrix(experts, fan_in=4)
    yield "mlp.experts.gate_up_proj", matrix(experts, hidden, 2 * width, fan_in=hidden / 9)
    yield "mlp.experts.gate_up_proj_bias", matrix(experts, 2 * width, fan_in=4)
    yield "mlp.experts.down_proj", matrix(experts, width, hidden, fan_in=9 * width)
    yield "mlp.experts.down_proj_bias", matrix(experts, hidden, fan_in=4)
