"""The reader of DeepSeek-V3, DeepSeek-R1, Kimi-K2 and K2.5: latent attention, and experts chosen group by group."""

from __future__ import annotations

from trtllm_kit.spec.hf_keys import Keys
from trtllm_kit.spec.hf_layers import grouped_routing, layer_count, layer_types, read_dense, read_experts
from trtllm_kit.spec.hf_rope import rope_section, yarn_magnitude
from trtllm_kit.spec.model import Attention, Experts, Latent, Layer


def read_deepseek_v3(keys: Keys) -> tuple[Layer, ...]:
    """Read the decoder: ``first_k_dense_replace`` dense layers, then experts on every ``moe_layer_freq``-th layer."""
    count = layer_count(keys)
    layer_types(keys, count, ("full_attention",))
    attention, experts = latent_attention(keys), read_grouped_experts(keys)
    first, step = keys.integer("first_k_dense_replace", least=0), keys.integer("moe_layer_freq", default=1)
    routed = [number >= first and number % step == 0 for number in range(count)]
    dense = experts if all(routed) else read_dense(keys)
    keys.ignore("intermediate_size")
    return tuple(Layer(mixer=attention, feed_forward=experts if moe else dense) for moe in routed)


def prediction_layers(keys: Keys) -> int:
    """Return the layers behind the last one that predict further tokens (MTP); none when the file states none."""
    return keys.integer("num_nextn_predict_layers", default=0, least=0)


def latent_attention(keys: Keys, *, head_dim_counts: bool = True) -> Attention:
    """Read multi-head latent attention; some families' files state a ``head_dim`` that their class replaces."""
    heads = keys.integer("num_attention_heads")
    _require(keys, "num_key_value_heads", heads, "the num_attention_heads: every head has a key and a value of its own")
    latent = Latent(
        query_rank=keys.optional_integer("q_lora_rank"),
        kv_rank=keys.integer("kv_lora_rank"),
        nope_dim=keys.integer("qk_nope_head_dim"),
        rope_dim=keys.integer("qk_rope_head_dim"),
        value_dim=keys.integer("v_head_dim"),
    )
    if latent.rope_dim % 2 and keys.sound("qk_rope_head_dim"):
        keys.note("qk_rope_head_dim", "an even width, which the rotary embedding needs")
    head_dim = latent.nope_dim + latent.rope_dim
    _require(keys, "qk_head_dim", head_dim, "qk_nope_head_dim + qk_rope_head_dim")
    if head_dim_counts:
        _require(keys, "head_dim", latent.rope_dim, "the qk_rope_head_dim")  # what transformers 5 writes
    if not keys.flag("rope_interleave", default=True):
        keys.note("rope_interleave", "true or no such key: TensorRT-LLM turns neighbours of these heads")
    magnitude = _all_dim_magnitude(keys)
    return Attention(
        kind="full",
        heads=heads,
        kv_heads=1,
        head_dim=head_dim,
        latent=latent,
        scale=None if magnitude == 1.0 else magnitude**2 / head_dim**0.5,
    )


def _all_dim_magnitude(keys: Keys) -> float:
    """Return what ``mscale_all_dim`` multiplies queries and keys by; 1 when the file states none."""
    section = rope_section(keys)
    weight = section.optional_number("mscale_all_dim")
    return 1.0 if weight is None else yarn_magnitude(section.number("factor"), weight)


def read_grouped_experts(keys: Keys) -> Experts:
    """Read experts that are chosen group by group, and the shared ones."""
    block = read_experts(keys, "moe_intermediate_size", "deepseek", normalise=True)
    keys.word("topk_method", ("noaux_tc",), default="noaux_tc")
    keys.word("scoring_func", ("sigmoid",), default="sigmoid")
    if not keys.flag("norm_topk_prob", default=True):
        keys.note("norm_topk_prob", "true: TensorRT-LLM always scales the weights of the chosen experts to one")
    shared = keys.integer("n_shared_experts", least=0)
    routing = grouped_routing(keys, block, scale=keys.number("routed_scaling_factor"))
    return block.model_copy(update={"shared_intermediate": shared * block.intermediate, "routing": routing})


def _require(keys: Keys, key: str, wanted: int, meaning: str) -> None:
    """Note a width that, where it is stated, is not what it follows from."""
    stated = keys.optional_integer(key)
    if stated not in (None, wanted) and keys.sound(key):
        keys.note(key, f"{wanted}, {meaning}")
