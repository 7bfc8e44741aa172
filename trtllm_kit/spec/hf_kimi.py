"""The reader of Kimi-K3: delta attention on most layers, gated latent attention without positions on the rest.

transformers 5.14 has no class for it. What the keys mean is near, not certain: it follows TensorRT-LLM's and vLLM's
loaders, and the parameters add up to the published 2.8T, 104B of them active.
"""

from __future__ import annotations

from typing import Any

from trtllm_kit.spec.hf_deepseek import latent_attention
from trtllm_kit.spec.hf_keys import Keys
from trtllm_kit.spec.hf_layers import layer_count, read_dense
from trtllm_kit.spec.mixers import Attention, KimiDelta
from trtllm_kit.spec.model import Experts, Layer, Routing


def read_kimi_linear(keys: Keys) -> tuple[Layer, ...]:
    """Read the decoder: ``linear_attn_config`` numbers the layers of each kind from 1."""
    count = layer_count(keys)
    section = keys.inner("linear_attn_config")
    full = _full_layers(section, count, sound=keys.sound("num_hidden_layers", "linear_attn_config"))
    delta, latent, experts = _delta(section), _latent(keys), _experts(keys)
    for key, _ in section.unread():
        section.note(key, "no such key: the kit does not know it")
    first, step = keys.integer("first_k_dense_replace", least=0), keys.integer("moe_layer_freq", default=1)
    routed = [number >= first and number % step == 0 for number in range(count)]
    dense = experts if all(routed) else read_dense(keys)
    keys.ignore("intermediate_size")
    return tuple(
        Layer(mixer=latent if number + 1 in full else delta, feed_forward=experts if moe else dense)
        for number, moe in enumerate(routed)
    )


def kimi_facts(keys: Keys) -> dict[str, Any]:
    """Read what holds for the whole model."""
    keys.optional_number("activation_situ_beta")
    keys.optional_number("activation_situ_linear_beta")
    if keys.integer("num_nextn_predict_layers", default=0, least=0):
        keys.note("num_nextn_predict_layers", "0 or no such key: the kit does not know Kimi-K3's prediction layers")
    return {"activation": "situ", "residual_block": keys.optional_integer("attn_res_block_size")}


def _full_layers(section: Keys, count: int, *, sound: bool) -> frozenset[int]:
    """Return the layers with latent attention, counted from 1."""
    full, delta = section.integers("full_attn_layers") or (), section.integers("kda_layers") or ()
    if (
        sorted((*full, *delta)) != list(range(1, count + 1))
        and sound
        and section.sound("full_attn_layers", "kda_layers")
    ):
        section.note("kda_layers", f"with full_attn_layers each layer from 1 to {count} once")
    return frozenset(full)


def _delta(section: Keys) -> KimiDelta:
    section.ignore("gate_lower_bound")  # where the decay ends, which no size depends on
    return KimiDelta(
        heads=section.integer("num_heads"),
        head_dim=section.integer("head_dim"),
        conv_kernel=section.integer("short_conv_kernel_size"),
        full_gate=section.flag("use_full_rank_gate", default=False),
    )


def _latent(keys: Keys) -> Attention:
    gated, placeless = keys.flag("mla_use_output_gate", default=False), keys.flag("mla_use_nope", default=False)
    if not placeless:
        keys.note("mla_use_nope", "true: the kit knows of no Kimi-K3 whose latent attention has positions")
    return latent_attention(keys).model_copy(update={"rotary": False, "gate": "element" if gated else "none"})


def _experts(keys: Keys) -> Experts:
    keys.word("topk_method", ("noaux_tc",), default="noaux_tc")
    keys.word("moe_router_activation_func", ("sigmoid",), default="sigmoid")
    if not keys.flag("moe_renormalize", default=True):
        keys.note("moe_renormalize", "true: the kit knows of no Kimi-K3 that leaves the experts' weights as they are")
    if not keys.flag("latent_moe_use_norm", default=False):
        keys.note("latent_moe_use_norm", "true: the kit knows of no Kimi-K3 without the norm behind its experts")
    if not keys.flag("use_grouped_topk", default=True):
        keys.note("use_grouped_topk", "true or no such key: the kit knows of no other Kimi-K3")
    count, chosen = keys.integer("num_experts"), keys.integer("num_experts_per_token")
    if chosen > count and keys.sound("num_experts", "num_experts_per_token"):
        keys.note("num_experts_per_token", f"{count} or less, the number of experts")
    width = keys.integer("moe_intermediate_size")
    routing = Routing(
        scoring="sigmoid",
        choice_bias=True,
        groups=keys.integer("num_expert_group", default=1),
        groups_per_token=keys.integer("topk_group", default=1),
        scale=keys.number("routed_scaling_factor", 1.0),
    )
    return Experts(
        experts=count,
        per_token=chosen,
        intermediate=width,
        shared_intermediate=keys.integer("num_shared_experts", least=0) * width,
        layout="kimi_linear",
        routing=routing,
        latent=keys.integer("routed_expert_hidden_size"),
    )
