"""The reader of MiniMax-M2, which despite its forerunners' linear attention attends fully on every layer."""

from __future__ import annotations

from trtllm_kit.spec.hf_keys import Keys
from trtllm_kit.spec.hf_layers import layer_count, read_attention, read_experts
from trtllm_kit.spec.hf_rope import turned_elements
from trtllm_kit.spec.model import Attention, Layer, Routing

_FULL = 1
"""Of ``attn_type_list``; 0 is the lightning attention of MiniMax-M1."""


def read_minimax_m2(keys: Keys) -> tuple[Layer, ...]:
    """Read the decoder: experts on every layer, chosen with a bias.

    Its files state prediction layers (``num_mtp_modules``), but hold none: they are no part of the spec.
    """
    count = layer_count(keys)
    types = keys.integers("attn_type_list")
    if types is not None and types != (_FULL,) * count and keys.sound("num_hidden_layers"):
        keys.note("attn_type_list", f"{_FULL}, full attention, for each of the {count} layers of num_hidden_layers")
    keys.ignore("num_mtp_modules", "mtp_transformer_layers", "use_mtp")
    block = read_experts(keys, "intermediate_size", "minimax_m2", normalise=True)
    keys.word("scoring_func", ("sigmoid",), default="sigmoid")
    if keys.optional_integer("shared_intermediate_size", least=0):
        keys.note("shared_intermediate_size", "0 or null: the kit knows no shared expert here")
    bias = keys.flag("use_routing_bias", default=True)
    routed = block.model_copy(update={"routing": Routing(scoring="sigmoid", choice_bias=bias)})
    return (Layer(mixer=_attention(keys), feed_forward=routed),) * count


def _attention(keys: Keys) -> Attention:
    attention = read_attention(keys)
    stated = keys.optional_integer("rotary_dim")
    turned = turned_elements(keys, attention.head_dim)
    if keys.optional_number("partial_rotary_factor") is None and stated is not None:
        turned = stated
    elif stated not in (None, turned) and keys.sound("rotary_dim", "partial_rotary_factor"):
        keys.note("rotary_dim", f"{turned}, the partial_rotary_factor of head_dim")
    normed = keys.flag("use_qk_norm", default=True)
    keys.word("qk_norm_type", ("per_layer",), default="per_layer")
    return attention.model_copy(update={"qk_norm": "all_heads" if normed else "none", "rotary_dim": turned})
