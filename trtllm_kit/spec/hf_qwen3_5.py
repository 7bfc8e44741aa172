"""The readers of Qwen3.5 and 3.6: delta-nets, and gated full attention on every fourth layer; and of Qwen3-VL's text.

Both stand in ``text_config`` of a model with vision, whose rope turns text as the plain one does.
"""

from __future__ import annotations

from typing import Any

from trtllm_kit.spec.hf_families import read_qwen3, read_qwen3_moe
from trtllm_kit.spec.hf_keys import Keys
from trtllm_kit.spec.hf_layers import layer_count, layer_types, read_attention, read_dense, read_experts
from trtllm_kit.spec.hf_rope import read_rope, rope_section, turned_elements
from trtllm_kit.spec.model import Attention, DeltaNet, Experts, FeedForward, Layer, Rope, StateType

_INTERVAL = 4
_TURNED_SHARE = 0.25
"""``Qwen3_5TextConfig``: every fourth layer attends, and a quarter of its heads is turned."""
_STATE_TYPES: tuple[StateType, ...] = ("float32", "bfloat16", "float16")


def read_qwen3_5(keys: Keys) -> tuple[Layer, ...]:
    """Read dense Qwen3.5."""
    return _layers(keys, read_dense(keys))


def read_qwen3_5_moe(keys: Keys) -> tuple[Layer, ...]:
    """Read Qwen3.5 with experts on every layer, and a shared expert behind a switch."""
    return _layers(keys, _experts(keys))


def qwen3_5_facts(keys: Keys) -> dict[str, Any]:
    """Read the prediction layers, which attend, and share the model's embedding and head."""
    if keys.flag("mtp_use_dedicated_embeddings", default=False):
        keys.note("mtp_use_dedicated_embeddings", "false: the kit knows no prediction layer with an embedding here")
    block = _experts(keys) if keys.states("moe_intermediate_size") else read_dense(keys)
    return {
        "unit_offset_norms": True,
        "prediction_layers": keys.integer("mtp_num_hidden_layers", default=0, least=0),
        "prediction_pattern": (Layer(mixer=_attention(keys), feed_forward=block),),
    }


def read_mrope(keys: Keys, default_theta: float, *, neighbours: bool = False) -> Rope:
    """Read a rope whose sections take time, height and width of a picture: of text all three are the position."""
    section = rope_section(keys)
    section.ignore("mrope_section", "mrope_interleaved", "partial_rotary_factor")
    return read_rope(keys, default_theta, neighbours=neighbours, section=section)


def read_qwen3_vl_moe(keys: Keys) -> tuple[Layer, ...]:
    """Read the text part of Qwen3-VL with experts: Qwen3-MoE, but that a layer's experts are one tensor."""
    return tuple(
        layer.model_copy(update={"feed_forward": layer.feed_forward.model_copy(update={"layout": "qwen3_vl"})})
        if isinstance(layer.feed_forward, Experts)
        else layer
        for layer in read_qwen3_moe(keys)
    )


read_qwen3_vl = read_qwen3
"""The text part of dense Qwen3-VL is a Qwen3."""


def _layers(keys: Keys, block: FeedForward) -> tuple[Layer, ...]:
    count = layer_count(keys)
    interval = keys.integer("full_attention_interval", default=_INTERVAL)
    types = layer_types(keys, count, ("linear_attention", "full_attention"))
    if types is None:
        types = tuple("linear_attention" if (number + 1) % interval else "full_attention" for number in range(count))
    full = Layer(mixer=_attention(keys), feed_forward=block)
    linear = Layer(mixer=_delta_net(keys), feed_forward=block)
    return tuple(full if kind == "full_attention" else linear for kind in types)


def _experts(keys: Keys) -> Experts:
    experts = read_experts(keys, "moe_intermediate_size", "qwen3_5", normalise=True)
    shared = {"shared_intermediate": keys.integer("shared_expert_intermediate_size"), "shared_gated": True}
    keys.ignore("intermediate_size")
    return experts.model_copy(update=shared)


def _attention(keys: Keys) -> Attention:
    bias = keys.flag("attention_bias", default=False)
    attention = read_attention(keys, qkv_bias=bias, out_bias=bias, qk_norm=True)
    gated = keys.flag("attn_output_gate", default=True)
    keys.word("output_gate_type", ("swish", "silu"), default="swish")
    turned = turned_elements(keys, attention.head_dim, _TURNED_SHARE)
    return attention.model_copy(update={"gate": "element" if gated else "none", "rotary_dim": turned})


def _delta_net(keys: Keys) -> DeltaNet:
    mixer = DeltaNet(
        key_heads=keys.integer("linear_num_key_heads"),
        value_heads=keys.integer("linear_num_value_heads"),
        key_dim=keys.integer("linear_key_head_dim"),
        value_dim=keys.integer("linear_value_head_dim"),
        conv_kernel=keys.integer("linear_conv_kernel_dim", least=2),
        state_type=keys.word("mamba_ssm_dtype", _STATE_TYPES, default="float32"),
    )
    if mixer.value_heads % mixer.key_heads and keys.sound("linear_num_key_heads", "linear_num_value_heads"):
        keys.note("linear_num_value_heads", f"a multiple of linear_num_key_heads, {mixer.key_heads}")
    return mixer
