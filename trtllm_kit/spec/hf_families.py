"""One small reader a family: from the keys of its text model to its layers."""

from __future__ import annotations

from typing import Any

from trtllm_kit.spec.hf_keys import Keys
from trtllm_kit.spec.hf_layers import (
    alike,
    late_windows,
    layer_count,
    layer_numbers,
    layer_types,
    no_windows,
    one_window,
    read_attention,
    read_dense,
    read_experts,
)
from trtllm_kit.spec.model import Attention, Layer, QueryTemperature

Layers = tuple[Layer, ...]

_MISTRAL_WINDOW = 4096
"""``MistralConfig`` slides over 4096 tokens when the file has no ``sliding_window``; null switches it off."""
_QWEN3_HEAD_DIM = 128
"""``Qwen3Config`` has heads of 128 whatever the hidden size; ``Qwen3MoeConfig`` divides."""


def read_llama(keys: Keys) -> Layers:
    """Read Llama 1 to 3, and what is built like it; the first Llamas had no ``num_key_value_heads`` (multi-head)."""
    bias = keys.flag("attention_bias", default=False)
    attention = read_attention(keys, qkv_bias=bias, out_bias=bias, multi_head=True)
    return alike(no_windows(keys), attention, read_dense(keys, bias=keys.flag("mlp_bias", default=False)))


def read_mistral(keys: Keys) -> Layers:
    """Read Mistral: no bias, one window or none."""
    return alike(one_window(keys, _MISTRAL_WINDOW), read_attention(keys), read_dense(keys))


def read_mixtral(keys: Keys) -> Layers:
    """Read Mixtral: Mistral with experts, no window unless stated."""
    experts = read_experts(keys, "intermediate_size", "mixtral", normalise=True)
    return alike(one_window(keys, None), read_attention(keys), experts)


def read_qwen2(keys: Keys) -> Layers:
    """Read Qwen2 and 2.5: biases on q, k and v that no key states."""
    if not keys.flag("attention_bias", default=True):
        keys.note("attention_bias", "true or no such key: Qwen2 always has biases on q, k and v")
    return alike(late_windows(keys), read_attention(keys, qkv_bias=True), read_dense(keys))


def read_qwen3(keys: Keys) -> Layers:
    """Read dense Qwen3: a learned norm on each head of q and k."""
    return alike(late_windows(keys), _qwen3_attention(keys, _QWEN3_HEAD_DIM), read_dense(keys))


def read_qwen3_moe(keys: Keys) -> Layers:
    """Read Qwen3-MoE: experts on every ``decoder_sparse_step``-th layer that ``mlp_only_layers`` leaves.

    Sliding windows are refused: releases of transformers disagree about which of its layers slide.
    """
    keys.ignore("sliding_window", "max_window_layers")  # without effect while use_sliding_window is neutral
    attention, count = _qwen3_attention(keys, None), len(no_windows(keys))
    normalise = keys.flag("norm_topk_prob", default=False)
    experts = read_experts(keys, "moe_intermediate_size", "qwen", normalise=normalise)
    step = keys.integer("decoder_sparse_step", default=1)
    plain = set(layer_numbers(keys, "mlp_only_layers", count) or ())
    routed = [number not in plain and (number + 1) % step == 0 for number in range(count)]
    dense = experts if all(routed) else read_dense(keys)
    return tuple(Layer(mixer=attention, feed_forward=experts if moe else dense) for moe in routed)


def read_llama4(keys: Keys) -> Layers:
    """Read the text part of Llama 4: chunked layers with rope, full ones without, experts on some or all."""
    count = layer_count(keys)
    rotary = _llama4_rotary(keys, count)
    attentions = _llama4_attentions(keys, rotary)
    experts = read_experts(keys, "intermediate_size", "llama4", normalise=False, shared=True)
    routed = _llama4_routed(keys, count)
    dense = experts if all(routed) else read_dense(keys, "intermediate_size_mlp")
    keys.ignore("intermediate_size_mlp")
    return tuple(
        Layer(mixer=attention, feed_forward=experts if moe else dense)
        for attention, moe in zip(attentions, routed, strict=True)
    )


def _qwen3_attention(keys: Keys, head_dim: int | None) -> Attention:
    bias = keys.flag("attention_bias", default=False)
    return read_attention(keys, head_dim=head_dim, qkv_bias=bias, out_bias=bias, qk_norm=True)


def _llama4_rotary(keys: Keys, count: int) -> tuple[bool, ...]:
    """Return which layers turn q and k: 1 in ``no_rope_layers``, or all but every ``no_rope_layer_interval``-th."""
    interval = keys.integer("no_rope_layer_interval", default=4)
    stated = keys.integers("no_rope_layers")
    if not stated:
        return tuple((number + 1) % interval != 0 for number in range(count))
    if len(stated) < count and keys.sound("num_hidden_layers"):
        keys.note("no_rope_layers", f"one entry for each of the {count} layers of num_hidden_layers")
    padded = stated + (1,) * count
    return tuple(flag != 0 for flag in padded[:count])


def _llama4_attentions(keys: Keys, rotary: tuple[bool, ...]) -> list[Attention]:
    bias = keys.flag("attention_bias", default=False)
    base = read_attention(keys, qkv_bias=bias, out_bias=bias)
    with_rope: dict[str, Any] = {"qk_norm": "l2" if keys.flag("use_qk_norm", default=True) else "none"}
    without: dict[str, Any] = {"rotary": False, "temperature": _llama4_temperature(keys)}
    types = layer_types(keys, len(rotary), ("chunked_attention", "full_attention"))
    chunked = rotary if types is None else tuple(kind == "chunked_attention" for kind in types)
    of_chunked: dict[str, Any] = {"kind": "chunked", "window": _llama4_chunk(keys, needed=any(chunked))}
    return [
        base.model_copy(update=(with_rope if turns else without) | (of_chunked if cut else {}))
        for turns, cut in zip(rotary, chunked, strict=True)
    ]


def _llama4_chunk(keys: Keys, *, needed: bool) -> int | None:
    """Return the chunk length; ``Llama4TextConfig`` has 8192 when the file has no such key."""
    chunk = keys.optional_integer("attention_chunk_size") if keys.states("attention_chunk_size") else 8192
    if chunk is None and needed and keys.sound("attention_chunk_size"):
        keys.note("attention_chunk_size", "a whole number of 1 or more, since some layers are chunked")
    return chunk


def _llama4_temperature(keys: Keys) -> QueryTemperature | None:
    """Return the query temperature; on, with 8192 and 0.1, when the file has no such keys (``Llama4TextConfig``)."""
    switch = keys.values.get("attn_temperature_tuning")
    keys.ignore("attn_temperature_tuning")
    floor, scale = keys.integer("floor_scale", default=8192), keys.number("attn_scale", default=0.1)
    if switch is not None and not isinstance(switch, bool | int):
        keys.note("attn_temperature_tuning", "true, false, or the number that early files have")
    return None if switch is not None and not switch else QueryTemperature(floor=floor, scale=scale)


def _llama4_routed(keys: Keys, count: int) -> list[bool]:
    """Return which layers have experts: those of ``moe_layers``, or every ``interleave_moe_layer_step``-th."""
    step = keys.integer("interleave_moe_layer_step", default=1)
    stated = layer_numbers(keys, "moe_layers", count)
    if stated is not None:
        return [number in stated for number in range(count)]
    return [(number + 1) % step == 0 for number in range(count)]
