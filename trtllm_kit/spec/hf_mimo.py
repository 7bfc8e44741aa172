"""The readers of MiMo-7B, a Qwen2 with prediction layers, and of MiMo-V2-Flash, most layers of which slide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trtllm_kit.spec.hf_families import read_qwen2
from trtllm_kit.spec.hf_keys import Keys
from trtllm_kit.spec.hf_layers import grouped_routing, layer_count, read_attention, read_dense, read_experts
from trtllm_kit.spec.hf_rope import read_rope, rope_section, turned_elements
from trtllm_kit.spec.model import Attention, Experts, Layer, Rope

MIMO_V2_DEFAULTS: Mapping[str, Any] = {"attention_value_scale": 0.707, "head_dim": 192, "v_head_dim": 128}
"""What ``MiMoV2FlashConfig`` fills in where a file has no such key."""
_SLIDING_THETA = 1e4


def read_mimo(keys: Keys) -> tuple[Layer, ...]:
    """Read MiMo-7B's decoder: that of Qwen2, with biases on q, k and v."""
    if keys.flag("use_mrope", default=False):
        keys.note("use_mrope", "false, the only arithmetic the kit does here")
    return read_qwen2(keys)


def mimo_facts(keys: Keys) -> dict[str, Any]:
    """Read the prediction layers."""
    return {"prediction_layers": keys.integer("num_nextn_predict_layers", default=0, least=0)}


def read_mimo_v2(keys: Keys) -> tuple[Layer, ...]:
    """Read MiMo-V2-Flash: 1 in ``hybrid_layer_pattern`` slides, 1 in ``moe_layer_freq`` has experts.

    Its files hold prediction layers, but state no number of them: they are no part of the spec.
    """
    count = layer_count(keys)
    slides, routed = (_switches(keys, key, count) for key in ("hybrid_layer_pattern", "moe_layer_freq"))
    full = _attention(keys, "", sinks=keys.flag("add_full_attention_sink_bias", default=False))
    local = _attention(keys, "swa_", sinks=keys.flag("add_swa_attention_sink_bias", default=True))
    local = local.model_copy(update={"kind": "sliding", "window": _window(keys), "rope": _local_rope(keys)})
    experts, dense = _experts(keys), read_dense(keys)
    keys.ignore("attention_chunk_size")  # what the sliding layers' window is called in one runtime
    return tuple(
        Layer(mixer=local if sliding else full, feed_forward=experts if moe else dense)
        for sliding, moe in zip(slides, routed, strict=True)
    )


def read_mimo_v2_rope(keys: Keys, default_theta: float, *, neighbours: bool = False) -> Rope:
    """Read the rope of the full layers."""
    section = rope_section(keys)
    section.ignore("partial_rotary_factor")
    return read_rope(keys, default_theta, neighbours=neighbours, section=section)


def _switches(keys: Keys, key: str, count: int) -> tuple[bool, ...]:
    stated = keys.integers(key)
    if (stated is None or len(stated) != count or set(stated) - {0, 1}) and keys.sound(key, "num_hidden_layers"):
        keys.note(key, f"0 or 1 for each of the {count} layers of num_hidden_layers")
    padded = (stated or ()) + (0,) * count
    return tuple(flag == 1 for flag in padded[:count])


def _attention(keys: Keys, prefix: str, *, sinks: bool) -> Attention:
    """Read the attention of one type of layer; what the sliding ones leave out is as in the full ones."""
    full = read_attention(keys)
    bias = keys.flag("attention_bias", default=False)
    heads = keys.integer(f"{prefix}num_attention_heads", default=full.heads)
    kv_heads = keys.integer(f"{prefix}num_key_value_heads", default=full.kv_heads)
    width = keys.integer(f"{prefix}head_dim", default=full.head_dim)
    if heads % kv_heads and keys.sound(f"{prefix}num_attention_heads", f"{prefix}num_key_value_heads"):
        keys.note(f"{prefix}num_key_value_heads", f"a divisor of {prefix}num_attention_heads, {heads}")
    return full.model_copy(
        update={
            "heads": heads,
            "kv_heads": kv_heads,
            "head_dim": width,
            "value_dim": keys.integer(f"{prefix}v_head_dim", default=keys.integer("v_head_dim")),
            "value_scale": keys.number("attention_value_scale", default=1.0),
            "rotary_dim": turned_elements(keys, width),
            "qkv_bias": bias,
            "out_bias": bias,
            "sinks": sinks,
        }
    )


def _window(keys: Keys) -> int:
    return keys.integer(keys.spelling("sliding_window", "sliding_window_size"))


def _local_rope(keys: Keys) -> Rope:
    return Rope(theta=keys.number("swa_rope_theta", default=_SLIDING_THETA))


def _experts(keys: Keys) -> Experts:
    normalise = keys.flag("norm_topk_prob", default=True)
    block = read_experts(keys, "moe_intermediate_size", "deepseek", normalise=normalise)
    keys.word("topk_method", ("noaux_tc",), default="noaux_tc")
    keys.word("scoring_func", ("sigmoid",), default="sigmoid")
    routing = grouped_routing(keys, block, scale=keys.number("routed_scaling_factor", default=1.0), normalise=normalise)
    if keys.optional_integer("n_shared_experts", least=0):
        keys.note("n_shared_experts", "0 or null: the kit knows no shared expert here")
    return block.model_copy(update={"routing": routing})
