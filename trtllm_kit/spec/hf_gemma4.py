"""The reader of Gemma 4's text part: wide full layers whose values are their keys, and experts beside a dense block.

What its smaller models have besides (an embedding a layer, layers that share keys and values) is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trtllm_kit.spec.hf_keys import Keys
from trtllm_kit.spec.hf_layers import layer_count, layer_types, read_attention, read_dense, read_experts
from trtllm_kit.spec.hf_neutral import check_rope_rest
from trtllm_kit.spec.hf_rope import read_theta, rope_section
from trtllm_kit.spec.model import Attention, FeedForward, Layer, Rope

GEMMA4_DEFAULTS: Mapping[str, Any] = {
    "hidden_size_per_layer_input": 256,
    "global_head_dim": 512,
    "num_kv_shared_layers": 0,
    "sliding_window": 512,
    "rms_norm_eps": 1e-6,
    "bos_token_id": 2,
    "eos_token_id": 1,
    "tie_word_embeddings": True,
}
"""What ``Gemma4TextConfig`` fills in where a file has no such key."""
_PATTERN = 6
_FULL_THETA, _SLIDING_THETA = 1e6, 1e4
_FULL_SHARE = 0.25


def read_gemma4(keys: Keys) -> tuple[Layer, ...]:
    """Read the decoder: of ``layer_types``, or all but each sixth layer slides."""
    count = layer_count(keys)
    _refuse_others(keys)
    types = layer_types(keys, count, ("sliding_attention", "full_attention"))
    if types is None:
        last = count - 1  # the last layer always sees everything
        types = tuple(
            "full_attention" if (number + 1) % _PATTERN == 0 or number == last else "sliding_attention"
            for number in range(count)
        )
    block = _block(keys)
    made = {
        "sliding_attention": Layer(mixer=_sliding(keys), feed_forward=block, post_norms=True, scaled=True),
        "full_attention": Layer(mixer=_full(keys), feed_forward=block, post_norms=True, scaled=True),
    }
    return tuple(made[kind] for kind in types)


def gemma4_facts(keys: Keys) -> dict[str, Any]:
    """Read what a Gemma 4 states of the whole model."""
    return {
        "activation": "gelu_tanh",
        "embedding_scale": keys.integer("hidden_size") ** 0.5,
        "logit_softcap": keys.optional_number("final_logit_softcapping"),
    }


def read_gemma4_rope(keys: Keys, default_theta: float, *, neighbours: bool = False) -> Rope:
    """Read the rope of the full layers."""
    return _rope(keys, "full_attention", default_theta, neighbours=neighbours)


def _refuse_others(keys: Keys) -> None:
    for key in ("hidden_size_per_layer_input", "num_kv_shared_layers"):
        if keys.integer(key, least=0):
            keys.note(key, "0: the kit does not know these parts of the smaller Gemma 4")
    if keys.flag("use_double_wide_mlp", default=False):
        keys.note("use_double_wide_mlp", "false, the only arithmetic the kit does here")
    if keys.values.get("use_bidirectional_attention") == "all":
        keys.note("use_bidirectional_attention", "vision or null: text is read forwards")
    keys.ignore("use_bidirectional_attention", "vocab_size_per_layer_input")


def _sliding(keys: Keys) -> Attention:
    rope = _rope(keys, "sliding_attention", _SLIDING_THETA, neighbours=False)
    window = {"kind": "sliding", "window": keys.integer("sliding_window"), "rope": rope}
    return _normed(keys, read_attention(keys)).model_copy(update=window)


def _full(keys: Keys) -> Attention:
    """Read a full layer: wider heads, fewer of them, and no projection for values where ``attention_k_eq_v``."""
    alike = keys.flag("attention_k_eq_v", default=False)
    base = _normed(keys, read_attention(keys))
    width = keys.integer("global_head_dim")
    fewer = keys.integer("num_global_key_value_heads", default=base.kv_heads)
    kv_heads = fewer if alike else base.kv_heads
    if base.heads % kv_heads and keys.sound("num_attention_heads", "num_global_key_value_heads"):
        keys.note("num_global_key_value_heads", f"a divisor of num_attention_heads, {base.heads}")
    share = rope_section(keys).inner("full_attention").number("partial_rotary_factor", default=_FULL_SHARE)
    update = {"head_dim": width, "kv_heads": kv_heads, "value_is_key": alike, "rotary_dim": int(width * share)}
    return base.model_copy(update=update)


def _normed(keys: Keys, attention: Attention) -> Attention:
    bias = keys.flag("attention_bias", default=False)
    norms = {"qk_norm": "per_head", "value_norm": True, "scale": 1.0, "qkv_bias": bias, "out_bias": bias}
    return attention.model_copy(update=norms)


def _block(keys: Keys) -> FeedForward:
    dense = read_dense(keys)
    if not keys.flag("enable_moe_block", default=False):
        keys.ignore("num_experts", "top_k_experts", "moe_intermediate_size")
        return dense
    experts = read_experts(keys, "moe_intermediate_size", "gemma4", normalise=True, count_key="top_k_experts")
    return experts.model_copy(update={"shared_intermediate": dense.intermediate})


def _rope(keys: Keys, layers: str, default_theta: float, *, neighbours: bool) -> Rope:
    """Read the rope of one type of layer; ``proportional`` turns a head's leading part as the whole head would be."""
    section = rope_section(keys).inner(layers)
    kinds = ("default", "proportional") if layers == "full_attention" else ("default",)
    kind = section.word("rope_type", kinds, default=kinds[-1])
    section.ignore("partial_rotary_factor")
    theta = read_theta(keys, section, default_theta)
    check_rope_rest(section)
    return Rope.model_validate({"theta": theta, "kind": kind, "interleaved": neighbours})
