"""The reader of gpt-oss: attention with sinks, every other layer sliding; experts with biases."""

from __future__ import annotations

from trtllm_kit.spec.hf_keys import Keys
from trtllm_kit.spec.hf_layers import alike, layer_count, layer_types, read_attention, read_experts
from trtllm_kit.spec.hf_rope import rope_section
from trtllm_kit.spec.model import Layer, Routing

_HEAD_DIM = 64
"""``GptOssConfig`` has heads of 64 whatever the hidden size."""
LIMIT = 7.0
"""Bound of gate and up; the runtimes have it built in."""


def read_gpt_oss(keys: Keys) -> tuple[Layer, ...]:
    """Read the decoder; a file without ``layer_types`` slides on the first layer and every second after it."""
    bias = keys.flag("attention_bias", default=True)
    attention = read_attention(keys, head_dim=_HEAD_DIM, qkv_bias=bias, out_bias=bias)
    keys.spelling("num_experts_per_tok", "experts_per_token")
    experts = read_experts(keys, "intermediate_size", "gpt_oss", normalise=True)
    block = experts.model_copy(update={"bias": True, "routing": Routing(normalise=True, bias=True)})
    if not rope_section(keys).values:
        keys.note("rope_parameters", "the mapping of the yarn rope, which every gpt-oss has")
    return alike(_windows(keys), attention.model_copy(update={"sinks": True}), block)


def activation_limit(keys: Keys) -> float:
    """Return the bound of gate and up."""
    limit = keys.number("swiglu_limit", default=LIMIT)
    if limit != LIMIT and keys.sound("swiglu_limit"):
        keys.note("swiglu_limit", f"{LIMIT}, which the runtimes have built in")
    return limit


def _windows(keys: Keys) -> tuple[int | None, ...]:
    count = layer_count(keys)
    types = layer_types(keys, count, ("sliding_attention", "full_attention"))
    window = keys.integer("sliding_window")
    if types is None:
        return tuple(None if number % 2 else window for number in range(count))
    return tuple(window if kind == "sliding_attention" else None for kind in types)
