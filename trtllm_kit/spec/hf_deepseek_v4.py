"""The reader of DeepSeek-V4: compressed attention, experts named by a table in the first layers, hyper-connections.

What the keys mean, and what they are where a file leaves them out, follows ``DeepseekV4Config`` of transformers 5.14.
"""

from __future__ import annotations

from typing import Any

from trtllm_kit.spec.hf_deepseek import prediction_layers
from trtllm_kit.spec.hf_deepseek_sparse import read_indexer
from trtllm_kit.spec.hf_keys import Keys
from trtllm_kit.spec.hf_layers import layer_count, read_experts
from trtllm_kit.spec.hf_rope import read_rope
from trtllm_kit.spec.mixers import Attention, Compression, Rope
from trtllm_kit.spec.model import Experts, Layer, Routing

DEEPSEEK_V4_DEFAULTS = {"rms_norm_eps": 1e-6, "routed_scaling_factor": 1.5, "swiglu_limit": 10.0, "num_hash_layers": 3}
_COMPRESSED_THETA = 160_000.0
_RATIOS = (0, 4, 128)
"""Window alone; overlapping vectors with an indexer; longer spans, all of which are looked at."""
_INDEXED = 4


def read_deepseek_v4(keys: Keys) -> tuple[Layer, ...]:
    """Read the decoder: every layer has experts, and the kind of attention that ``compress_ratios`` says."""
    count = layer_count(keys)
    ratios = _ratios(keys, count + keys.integer("num_nextn_predict_layers", default=0, least=0))
    attentions = dict(zip(_RATIOS, _attentions(keys), strict=True))
    experts = _experts(keys)
    hashed = keys.integer("num_hash_layers", least=0)
    table = experts.routing.model_copy(update={"choice_bias": False, "table": keys.integer("vocab_size")})
    by_table = experts.model_copy(update={"routing": table})
    return tuple(
        Layer(mixer=attentions[ratio], feed_forward=by_table if number < hashed else experts)
        for number, ratio in enumerate(ratios[:count])
    )


def deepseek_v4_facts(keys: Keys) -> dict[str, Any]:
    """Read what holds for the whole model; a prediction layer looks at a window alone."""
    keys.ignore("hc_sinkhorn_iters", "hc_eps", "expert_dtype")  # how the mixing converges; how experts are stored
    found = prediction_layers(keys)
    step = Layer(mixer=_attentions(keys)[0], feed_forward=_experts(keys))
    return {
        "prefix": "",
        "head_name": "head.weight",
        "streams": keys.integer("hc_mult"),
        "activation_limit": keys.number("swiglu_limit"),
        "prediction_layers": found,
        "prediction_pattern": (step,) if found else (),
    }


def read_deepseek_v4_rope(keys: Keys, default_theta: float, *, neighbours: bool = False) -> Rope:
    """Read the rope of layers without compression, which the section of the file is not for."""
    return Rope(theta=keys.number("rope_theta", default_theta), interleaved=neighbours)


def _ratios(keys: Keys, wanted: int) -> tuple[int, ...]:
    """Return the ratio of each layer and of each prediction layer behind them."""
    ratios = keys.integers("compress_ratios")
    if ratios is None:
        if keys.sound("compress_ratios"):
            keys.note("compress_ratios", f"one of {_RATIOS} for each layer")
        return (0,) * wanted
    if len(ratios) != wanted and keys.sound("num_hidden_layers", "num_nextn_predict_layers"):
        keys.note("compress_ratios", f"one entry for each of the {wanted} layers, those that predict included")
    elif not set(ratios) <= set(_RATIOS):
        keys.note("compress_ratios", f"nothing but {', '.join(map(str, _RATIOS))}")
    known = tuple(ratio if ratio in _RATIOS else 0 for ratio in ratios)
    return (*known, *(0,) * wanted)[:wanted]


def _attentions(keys: Keys) -> tuple[Attention, ...]:
    """Read the attention of each ratio."""
    heads = keys.integer("num_attention_heads")
    if keys.integer("num_key_value_heads", default=1) != 1:
        keys.note("num_key_value_heads", "1: one vector a token is key and value of all heads")
    groups = keys.integer("o_groups")
    if heads % groups and keys.sound("o_groups", "num_attention_heads"):
        keys.note("o_groups", f"a divisor of num_attention_heads, {heads}")
    compression = Compression(
        ratio=0,
        query_rank=keys.integer("q_lora_rank"),
        rope_dim=keys.integer("qk_rope_head_dim"),
        output_groups=groups,
        output_rank=keys.integer("o_lora_rank"),
    )
    window = Attention(
        kind="sliding",
        window=keys.integer("sliding_window"),
        heads=heads,
        kv_heads=1,
        head_dim=keys.integer("head_dim"),
        rotary_dim=compression.rope_dim,
        sinks=True,
        value_is_key=True,
        compression=compression,
    )
    rope, indexer = _compressed_rope(keys), read_indexer(keys)
    return tuple(
        window.model_copy(
            update={
                "compression": compression.model_copy(update={"ratio": ratio}),
                "rope": rope if ratio else None,
                "indexer": indexer if ratio == _INDEXED else None,
            }
        )
        for ratio in _RATIOS
    )


def _compressed_rope(keys: Keys) -> Rope:
    """Read the rope of compressed layers; yarn's own magnitude is left out there."""
    rope = read_rope(keys, _COMPRESSED_THETA, neighbours=True)
    theta = keys.number("compress_rope_theta", _COMPRESSED_THETA)
    return rope.model_copy(update={"theta": theta, "magnitude": 1.0 if rope.kind == "yarn" else rope.magnitude})


def _experts(keys: Keys) -> Experts:
    keys.word("topk_method", ("noaux_tc",), default="noaux_tc")
    keys.word("scoring_func", ("sqrtsoftplus",), default="sqrtsoftplus")
    if not keys.flag("norm_topk_prob", default=True):
        keys.note("norm_topk_prob", "true or no such key: the kit knows of no other DeepSeek-V4")
    block = read_experts(keys, "moe_intermediate_size", "deepseek_v4", normalise=True)
    shared = keys.integer("n_shared_experts", least=0) * block.intermediate
    routing = Routing(scoring="sqrt_softplus", choice_bias=True, scale=keys.number("routed_scaling_factor"))
    return block.model_copy(update={"shared_intermediate": shared, "routing": routing})
