"""The readers of Gemma 2 and 3: norms on both sides of each part, and windows on most layers.

Published files of Gemma 3 with vision state little more than widths; the rest is what ``Gemma3TextConfig`` fills in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trtllm_kit.spec.hf_keys import Keys
from trtllm_kit.spec.hf_layers import layer_count, layer_types, read_attention, read_dense
from trtllm_kit.spec.hf_rope import read_layer_rope
from trtllm_kit.spec.model import Attention, Layer, Rope

_COMMON: dict[str, Any] = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "rms_norm_eps": 1e-6,
    "bos_token_id": 2,
    "eos_token_id": 1,
    "tie_word_embeddings": True,
    "query_pre_attn_scalar": 256,
}
GEMMA2_DEFAULTS: Mapping[str, Any] = _COMMON | {
    "vocab_size": 256_000,
    "max_position_embeddings": 8192,
    "final_logit_softcapping": 30.0,
    "attn_logit_softcapping": 50.0,
}
GEMMA3_DEFAULTS: Mapping[str, Any] = _COMMON | {"vocab_size": 262_208, "max_position_embeddings": 131_072}
"""What the configuration classes fill in where a file has no such key."""
_WINDOW = 4096
_GLOBAL_THETA, _LOCAL_THETA = 1e6, 1e4


def read_gemma2(keys: Keys) -> tuple[Layer, ...]:
    """Read Gemma 2: every other layer slides, from the first on; scores are soft-capped."""
    attention = _attention(keys).model_copy(update={"softcap": keys.optional_number("attn_logit_softcapping")})
    return _layers(keys, attention, _windows(keys, pattern=2), None)


def read_gemma3(keys: Keys) -> tuple[Layer, ...]:
    """Read the text part of Gemma 3: normed heads; all but each sixth layer slide, with a rope of their own."""
    pattern = keys.integer(keys.spelling("sliding_window_pattern", "_sliding_window_pattern"), default=6)
    attention = _attention(keys).model_copy(update={"qk_norm": "per_head"})
    local = read_layer_rope(keys, "sliding_attention", "rope_local_base_freq", _LOCAL_THETA)
    return _layers(keys, attention, _windows(keys, pattern), local)


def read_gemma3_rope(keys: Keys, default_theta: float, *, neighbours: bool = False) -> Rope:
    """Read the rope of Gemma 3's full layers."""
    return read_layer_rope(keys, "full_attention", "rope_theta", default_theta, neighbours=neighbours)


def gemma_facts(keys: Keys) -> dict[str, Any]:
    """Read what a Gemma states of the whole model."""
    return {
        "activation": "gelu_tanh",
        "embedding_scale": keys.integer("hidden_size") ** 0.5,
        "unit_offset_norms": True,
        "logit_softcap": keys.optional_number("final_logit_softcapping"),
    }


def _attention(keys: Keys) -> Attention:
    bias = keys.flag("attention_bias", default=False)
    attention = read_attention(keys, qkv_bias=bias, out_bias=bias)
    return attention.model_copy(update={"scale": keys.number("query_pre_attn_scalar") ** -0.5})


def _windows(keys: Keys, pattern: int) -> tuple[int | None, ...]:
    """Return the window of each layer: of all but every ``pattern``-th, or where ``layer_types`` says."""
    count = layer_count(keys)
    key = keys.spelling("sliding_window", "sliding_window_size")
    window = keys.optional_integer(key) if keys.states(key) else _WINDOW
    types = layer_types(keys, count, ("sliding_attention", "full_attention"))
    slides = [(number + 1) % pattern != 0 for number in range(count)]
    if types is not None:
        slides = [kind == "sliding_attention" for kind in types]
    return tuple(window if sliding else None for sliding in slides)


def _layers(keys: Keys, attention: Attention, windows: Sequence[int | None], local: Rope | None) -> tuple[Layer, ...]:
    block = read_dense(keys)
    full = Layer(mixer=attention, feed_forward=block, post_norms=True)
    made: dict[int | None, Layer] = {None: full}
    for window in set(windows) - {None}:
        sliding = attention.model_copy(update={"kind": "sliding", "window": window, "rope": local})
        made[window] = full.model_copy(update={"mixer": sliding})
    return tuple(made[window] for window in windows)
