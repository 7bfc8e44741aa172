"""The readers of DeepSeek-V3.2 and GLM-5: latent attention whose indexer chooses what a query looks at."""

from __future__ import annotations

from typing import Any

from trtllm_kit.spec.hf_deepseek import latent_attention, prediction_layers, read_grouped_experts
from trtllm_kit.spec.hf_keys import Keys
from trtllm_kit.spec.hf_layers import layer_count, layer_types, read_dense
from trtllm_kit.spec.mixers import Attention, Indexer
from trtllm_kit.spec.model import Dense, Experts, Layer

_GLM_OFFSET = 2
"""``GlmMoeDsaConfig`` shares from the second layer on where a file states a frequency and no offset."""


def read_indexer(keys: Keys) -> Indexer:
    """Read the lightning indexer of DeepSeek-V3.2."""
    return Indexer(
        heads=keys.integer("index_n_heads"), head_dim=keys.integer("index_head_dim"), chosen=keys.integer("index_topk")
    )


def read_deepseek_v32(keys: Keys) -> tuple[Layer, ...]:
    """Read the decoder of DeepSeek-V3.2: that of V3 with an indexer in each layer."""
    count = layer_count(keys)
    layer_types(keys, count, ("full_attention", "deepseek_sparse_attention"))
    attention = _with_indexer(keys)
    routed = _routed(keys, count)
    dense, experts = _blocks(keys, routed)
    return tuple(Layer(mixer=attention, feed_forward=experts if moe else dense) for moe in routed)


def read_glm_moe_dsa(keys: Keys) -> tuple[Layer, ...]:
    """Read the decoder of GLM-5 to 5.3: from 5.2 on, most layers take the choice of the last one with an indexer."""
    count = layer_count(keys)
    layer_types(keys, count, ("deepseek_sparse_attention",))
    keys.ignore(
        "head_dim", "index_share_for_mtp_iteration"
    )  # transformers replaces the one, drafting alone has the other
    if not keys.flag("indexer_rope_interleave", default=True):
        keys.note("indexer_rope_interleave", "true or no such key: the kit knows of no other GLM")
    keys.word("moe_router_dtype", ("float32",), default="float32")
    with_indexer = _with_indexer(keys, head_dim_counts=False)
    without = with_indexer.model_copy(update={"indexer": None})
    routed = _routed(keys, count)
    dense, experts = _blocks(keys, routed)
    return tuple(
        Layer(mixer=with_indexer if full else without, feed_forward=experts if moe else dense)
        for full, moe in zip(_full_indexers(keys, count), routed, strict=True)
    )


def deepseek_v32_facts(keys: Keys) -> dict[str, Any]:
    """Return the prediction layers of DeepSeek-V3.2."""
    return _prediction(keys, _with_indexer(keys))


def glm_moe_dsa_facts(keys: Keys) -> dict[str, Any]:
    """Return the prediction layers of GLM, each of which has an indexer of its own."""
    return _prediction(keys, _with_indexer(keys, head_dim_counts=False))


def _prediction(keys: Keys, attention: Attention) -> dict[str, Any]:
    found = prediction_layers(keys)
    step = Layer(mixer=attention, feed_forward=read_grouped_experts(keys))
    return {"prediction_layers": found, "prediction_pattern": (step,) if found else ()}


def _with_indexer(keys: Keys, *, head_dim_counts: bool = True) -> Attention:
    attention = latent_attention(keys, head_dim_counts=head_dim_counts)
    return attention.model_copy(update={"indexer": read_indexer(keys)})


def _routed(keys: Keys, count: int) -> list[bool]:
    """Return which layers have experts: those of ``mlp_layer_types``, else from ``first_k_dense_replace`` on."""
    types = keys.words("mlp_layer_types", ("dense", "sparse"))
    first, step = keys.integer("first_k_dense_replace", default=0, least=0), keys.integer("moe_layer_freq", default=1)
    if types is None:
        return [number >= first and number % step == 0 for number in range(count)]
    if len(types) != count and keys.sound("num_hidden_layers"):
        keys.note("mlp_layer_types", f"one entry for each of the {count} layers of num_hidden_layers")
    padded = (*types, *("sparse",) * count)
    return [kind == "sparse" for kind in padded[:count]]


def _blocks(keys: Keys, routed: list[bool]) -> tuple[Dense | Experts, Experts]:
    experts = read_grouped_experts(keys)
    dense = experts if all(routed) else read_dense(keys)
    keys.ignore("intermediate_size")
    return dense, experts


def _full_indexers(keys: Keys, count: int) -> tuple[bool, ...]:
    """Return which layers have an indexer: ``indexer_types``, a pattern of F and S, or every so many-th."""
    step, offset = (
        keys.integer("index_topk_freq", default=1),
        keys.integer("index_skip_topk_offset", default=_GLM_OFFSET),
    )
    types, pattern = keys.words("indexer_types", ("full", "shared")), keys.values.get("index_topk_pattern")
    keys.ignore("index_topk_pattern")
    if types is None and isinstance(pattern, str) and set(pattern) <= {"F", "S"}:
        types = tuple("full" if letter == "F" else "shared" for letter in pattern)
    elif types is None and pattern is not None:
        keys.note("index_topk_pattern", "a word of F and S, one letter a layer")
    if types is None:
        return tuple(max(number - offset + 1, 0) % step == 0 for number in range(count))
    if len(types) != count and keys.sound("num_hidden_layers"):
        keys.note("indexer_types", f"one entry for each of the {count} layers of num_hidden_layers")
    elif types and types[0] != "full":
        keys.note("indexer_types", "full for the first layer, which has no choice of another to take")
    return tuple(kind == "full" for kind in (*types, *("full",) * count)[:count])
