"""The readers of NVIDIA's own models: Nemotron-H and Nemotron-3 (Mamba-2 hybrids), and Llama-Nemotron (DeciLM).

A layer of a hybrid is one thing alone: a mixer, an attention, a dense block or experts. Its attention has no rope.
"""

from __future__ import annotations

from typing import Any

from trtllm_kit.spec.hf_keys import Keys
from trtllm_kit.spec.hf_layers import grouped_routing, layer_count, read_attention, read_dense, read_experts
from trtllm_kit.spec.model import Attention, Dense, Experts, Layer, Mamba, StateType

_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
"""Of ``hybrid_override_pattern``."""
_KINDS = {"linear_attention": "mamba", "full_attention": "attention"}
"""What transformers 5 calls two of them."""
_STATE_TYPES: tuple[StateType, ...] = ("float32", "bfloat16", "float16")


def read_nemotron_h(keys: Keys) -> tuple[Layer, ...]:
    """Read the layers in the order of ``layers_block_type`` or ``hybrid_override_pattern``."""
    for key in ("use_bias", "mlp_bias"):
        if keys.flag(key, default=False):
            keys.note(key, "false, the only arithmetic the kit does here")
    kinds = _kinds(keys, "layers_block_type", "hybrid_override_pattern") or ()
    if not kinds and keys.sound("layers_block_type", "hybrid_override_pattern"):
        keys.note("hybrid_override_pattern", "one letter a layer: M (Mamba), * (attention), - (dense) or E (experts)")
    stated = keys.optional_integer("num_hidden_layers")
    if kinds and stated not in (None, len(kinds)):
        keys.note("num_hidden_layers", f"{len(kinds)}, the layers that the pattern has")
    keys.word("mamba_hidden_act", ("silu",), default="silu")
    keys.ignore(*_WITHOUT_EFFECT)
    made = {kind: _layer(keys, kind) for kind in dict.fromkeys(kinds)}
    return tuple(made[kind] for kind in kinds)


_WITHOUT_EFFECT = (
    "attention_bias", "attention_head_dim", "conv_kernel", "expand", "head_dim", "intermediate_size", "mamba_head_dim",
    "mamba_num_heads", "mamba_proj_bias", "mamba_ssm_cache_dtype", "moe_intermediate_size", "moe_latent_size",
    "moe_shared_expert_intermediate_size", "moe_shared_expert_overlap", "n_group", "n_groups", "n_routed_experts",
    "n_shared_experts", "norm_topk_prob", "num_attention_heads", "num_experts_per_tok", "num_key_value_heads",
    "num_logits_to_keep", "partial_rotary_factor", "rescale_prenorm_residual", "rope_theta", "routed_scaling_factor",
    "ssm_state_size", "time_step_rank", "topk_group", "use_conv_bias", "use_mamba_kernels",
)  # fmt: skip
"""Read by the layers that have use for them; no layer is turned, and a mixer's width is heads times their width."""


def nemotron_h_facts(keys: Keys) -> dict[str, Any]:
    """Read the prediction layers, several to a prediction, and the activation of blocks that have no gate."""
    count = keys.integer("num_nextn_predict_layers", default=0, least=0)
    kinds = _kinds(keys, "mtp_layers_block_type", "mtp_hybrid_override_pattern")
    pattern = tuple(_layer(keys, kind) for kind in kinds or ("attention", "moe")) if count else ()
    return {"activation": "relu2", "prediction_layers": count, "prediction_pattern": pattern}


def _kinds(keys: Keys, listed: str, lettered: str) -> tuple[str, ...] | None:
    """Return what each layer is, from a list of words or a text of letters; None where neither is stated."""
    words = keys.words(listed, (*_LETTERS.values(), *_KINDS))
    letters = keys.values.get(lettered)
    keys.ignore(lettered)
    if letters is None:
        return None if words is None else tuple(_KINDS.get(word, word) for word in words)
    if not isinstance(letters, str) or not set(letters) <= set(_LETTERS):
        keys.note(lettered, "a text of the letters M, *, - and E, one a layer")
        return None
    return tuple(_LETTERS[letter] for letter in letters)


def _layer(keys: Keys, kind: str) -> Layer:
    if kind == "mamba":
        return Layer(mixer=_mamba(keys), feed_forward=None)
    if kind == "attention":
        bias = keys.flag("attention_bias", default=False)
        width = keys.optional_integer(keys.spelling("head_dim", "attention_head_dim"))
        attention = read_attention(keys, head_dim=width, qkv_bias=bias, out_bias=bias)
        return Layer(mixer=attention.model_copy(update={"rotary": False}), feed_forward=None)
    block = _experts(keys) if kind == "moe" else read_dense(keys).model_copy(update={"gated": False})
    return Layer(mixer=None, feed_forward=block)


def _mamba(keys: Keys) -> Mamba:
    mixer = Mamba(
        heads=keys.integer("mamba_num_heads"),
        head_dim=keys.integer("mamba_head_dim"),
        groups=keys.integer("n_groups"),
        state_dim=keys.integer("ssm_state_size"),
        conv_kernel=keys.integer("conv_kernel", least=2),
        conv_bias=keys.flag("use_conv_bias", default=True),
        bias=keys.flag("mamba_proj_bias", default=False),
        state_type=keys.word("mamba_ssm_cache_dtype", _STATE_TYPES, default="float32"),
    )
    if mixer.heads % mixer.groups and keys.sound("mamba_num_heads", "n_groups"):
        keys.note("n_groups", f"a divisor of mamba_num_heads, {mixer.heads}")
    return mixer


def _experts(keys: Keys) -> Experts:
    normalise = keys.flag("norm_topk_prob", default=True)
    block = read_experts(keys, "moe_intermediate_size", "nemotron_h", normalise=normalise)
    routing = grouped_routing(keys, block, scale=keys.number("routed_scaling_factor", default=1.0), normalise=normalise)
    shared = keys.integer("n_shared_experts", default=1, least=0)
    width = keys.integer("moe_shared_expert_intermediate_size") if shared else 0
    return block.model_copy(
        update={
            "gated": False,
            "latent": keys.optional_integer("moe_latent_size"),
            "shared_intermediate": shared * width,
            "routing": routing,
        }
    )


def read_nemotron_nas(keys: Keys) -> tuple[Layer, ...]:
    """Read Llama-Nemotron: a Llama whose layers a search has thinned, each described in ``block_configs``."""
    count = layer_count(keys)
    blocks = keys.inners("block_configs") or ()
    if len(blocks) != count and keys.sound("block_configs", "num_hidden_layers"):
        keys.note("block_configs", f"one entry for each of the {count} layers of num_hidden_layers")
    keys.ignore("intermediate_size", "num_key_value_heads")
    return tuple(_nas_layer(keys, block) for block in blocks)


def _nas_layer(keys: Keys, block: Keys) -> Layer:
    attention, ffn = block.inner("attention"), block.inner("ffn")
    left_out, skipped = attention.flag("no_op", default=False), ffn.flag("no_op", default=False)
    layer = Layer(
        mixer=None if left_out else _nas_attention(keys, attention),
        feed_forward=None if skipped else _nas_block(keys, ffn),
    )
    for section in (attention, ffn):
        _refuse_others(section)
    return layer


def _nas_attention(keys: Keys, section: Keys) -> Attention:
    bias = keys.flag("attention_bias", default=False)
    whole = read_attention(keys, multi_head=True, qkv_bias=bias, out_bias=bias)
    shared_by = section.integer("n_heads_in_group")
    if whole.heads % shared_by and keys.sound("num_attention_heads"):
        section.note("n_heads_in_group", f"a divisor of num_attention_heads, {whole.heads}")
    return whole.model_copy(update={"kv_heads": max(1, whole.heads // shared_by)})


def _nas_block(keys: Keys, section: Keys) -> Dense:
    width = _nas_width(section.number("ffn_mult"), keys.integer("hidden_size"))
    return Dense(intermediate=width, bias=keys.flag("mlp_bias", default=False))


def _nas_width(multiple: float, hidden: int) -> int:
    """Return the width of a block: two thirds of the multiple, rounded up to whole 256s."""
    return -(-int(2 * multiple * hidden / 3) // 256) * 256


def _refuse_others(section: Keys) -> None:
    section.ignore("no_op", "n_heads_in_group", "ffn_mult")
    for key, value in section.unread():
        if value is not False:
            section.note(key, "false or null, the only arithmetic the kit does here")
