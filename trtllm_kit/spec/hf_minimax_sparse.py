"""The reader of MiniMax-M3: grouped attention whose indexer chooses blocks of tokens."""

from __future__ import annotations

from typing import Any

from trtllm_kit.spec.hf_keys import Keys
from trtllm_kit.spec.hf_layers import layer_count, read_attention, read_dense, read_experts
from trtllm_kit.spec.mixers import Indexer
from trtllm_kit.spec.model import Dense, Experts, Layer, Routing

_SIGMOID_GAIN = 1.702
"""``swiglu_alpha``, the only one that runtimes compute."""


def read_minimax_m3(keys: Keys) -> tuple[Layer, ...]:
    """Read the decoder: which layers are sparse and which have experts is listed layer by layer."""
    count = layer_count(keys)
    section = keys.inner("sparse_attention_config")
    sparse = _switches(section, "sparse_attention_freq", count)
    if not section.flag("use_sparse_attention", default=True):
        sparse = (False,) * count
    plain = read_attention(keys, qk_norm=True).model_copy(update={"rotary_dim": keys.optional_integer("rotary_dim")})
    chosen = plain.model_copy(update={"indexer": _indexer(section, count, sparse)})
    _check_attention(keys, section)
    dense, experts = _blocks(keys)
    routed = _switches(keys, "moe_layer_freq", count)
    return tuple(
        Layer(mixer=chosen if picks else plain, feed_forward=experts if moe else dense)
        for picks, moe in zip(sparse, routed, strict=True)
    )


def minimax_m3_facts(keys: Keys) -> dict[str, Any]:
    """Read what holds for the whole model."""
    if keys.number("swiglu_alpha", _SIGMOID_GAIN) != _SIGMOID_GAIN:
        keys.note("swiglu_alpha", f"{_SIGMOID_GAIN}, the gain of the activation")
    return {
        "activation": "clipped_swiglu",
        "activation_limit": keys.number("swiglu_limit"),
        "unit_offset_norms": keys.flag("use_gemma_norm", default=False),
        "prediction_layers": keys.integer("num_mtp_modules", default=0, least=0),
    }


def _switches(keys: Keys, key: str, count: int) -> tuple[bool, ...]:
    """Return a list of 0 and 1, one for each layer."""
    listed = keys.integers(key)
    if listed is None:
        keys.note(key, "a list of 0 and 1, one for each layer")
    elif len(listed) != count or not set(listed) <= {0, 1}:
        keys.note(key, f"0 or 1 for each of the {count} layers of num_hidden_layers")
    return tuple(one == 1 for one in (*(listed or ()), *(0,) * count)[:count])


def _indexer(section: Keys, count: int, sparse: tuple[bool, ...]) -> Indexer:
    without_value = _switches(section, "sparse_disable_index_value", count)
    if any(picks and not disabled for picks, disabled in zip(sparse, without_value, strict=True)):
        section.note("sparse_disable_index_value", "1 for every sparse layer: the kit knows no indexer with values")
    return Indexer(
        heads=section.integer("sparse_num_index_heads"),
        head_dim=section.integer("sparse_index_dim"),
        chosen=section.integer("sparse_topk_blocks"),
        block=section.integer("sparse_block_size"),
        layout="minimax",
    )


def _check_attention(keys: Keys, section: Keys) -> None:
    section.word("sparse_score_type", ("max",), default="max")
    section.ignore("sparse_init_block", "sparse_local_block")  # blocks that are looked at in any case, of the chosen
    for key, _ in section.unread():
        section.note(key, "no such key: the kit does not know it")
    keys.word("qk_norm_type", ("per_head",), default="per_head")
    if not keys.flag("use_qk_norm", default=True):
        keys.note("use_qk_norm", "true: the kit knows of no MiniMax-M3 without it")
    if keys.flag("attention_output_gate", default=False):
        keys.note("attention_output_gate", "false: the kit knows of no MiniMax-M3 with it")
    turned, share = keys.optional_integer("rotary_dim"), keys.optional_number("partial_rotary_factor")
    if turned is not None and share is not None and turned != share * keys.integer("head_dim"):
        keys.note("partial_rotary_factor", f"rotary_dim over head_dim, {turned / keys.integer('head_dim'):g}")


def _blocks(keys: Keys) -> tuple[Dense, Experts]:
    keys.word("scoring_func", ("sigmoid",), default="sigmoid")
    block = read_experts(keys, "intermediate_size", "minimax_m3", normalise=True)
    shared = keys.integer("n_shared_experts", default=0, least=0)
    width = keys.integer("shared_intermediate_size") * shared if shared else 0
    routing = Routing(
        scoring="sigmoid",
        choice_bias=keys.flag("use_routing_bias", default=False),
        scale=keys.number("routed_scaling_factor", 1.0),
    )
    experts = block.model_copy(update={"shared_intermediate": width, "routing": routing})
    return read_dense(keys, "dense_intermediate_size"), experts
