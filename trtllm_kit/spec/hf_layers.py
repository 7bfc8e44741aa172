"""The parts of a decoder layer that the families' readers share: attention, feed-forward blocks, windows."""

from __future__ import annotations

from collections.abc import Sequence

from trtllm_kit.spec.hf_keys import Keys
from trtllm_kit.spec.model import Attention, Dense, ExpertLayout, Experts, Layer, Routing

_MOST_LAYERS = 10_000
_SMALLEST_GROUP = 2
"""A group is rated by its two best experts."""
_EXPERT_COUNTS = ("num_local_experts", "num_experts", "n_routed_experts")


def layer_count(keys: Keys) -> int:
    """Return the number of decoder layers."""
    return keys.integer("num_hidden_layers", most=_MOST_LAYERS)


def layer_types(keys: Keys, count: int, allowed: Sequence[str]) -> tuple[str, ...] | None:
    """Return the attention type of each layer when ``layer_types`` states them."""
    types = keys.words("layer_types", allowed)
    if types is not None and len(types) != count and keys.sound("num_hidden_layers"):
        keys.note("layer_types", f"one entry for each of the {count} layers of num_hidden_layers")
        return None
    return types


def layer_numbers(keys: Keys, key: str, count: int) -> tuple[int, ...] | None:
    """Return a list of layer numbers (0-based) below ``count``, or None when it is absent."""
    numbers = keys.integers(key)
    if numbers and max(numbers) >= count and keys.sound("num_hidden_layers"):
        keys.note(key, f"layer numbers below {count}, the num_hidden_layers")
    return numbers


def read_attention(
    keys: Keys,
    *,
    head_dim: int | None = None,
    multi_head: bool = False,
    qkv_bias: bool = False,
    out_bias: bool = False,
    qk_norm: bool = False,
) -> Attention:
    """Read heads and widths of full attention.

    ``head_dim`` is the family's own width when the file states none; with ``multi_head`` a file without
    ``num_key_value_heads`` has one for each query head.
    """
    heads = keys.integer("num_attention_heads")
    kv_heads = keys.integer("num_key_value_heads", default=heads if multi_head else None)
    if heads % kv_heads and keys.sound("num_attention_heads", "num_key_value_heads"):
        keys.note("num_key_value_heads", f"a divisor of num_attention_heads, {heads}")
    return Attention(
        kind="full",
        heads=heads,
        kv_heads=kv_heads,
        head_dim=_head_dim(keys, heads, head_dim),
        qkv_bias=qkv_bias,
        out_bias=out_bias,
        qk_norm="per_head" if qk_norm else "none",
    )


def read_dense(keys: Keys, key: str = "intermediate_size", *, bias: bool = False) -> Dense:
    """Read a gated feed-forward block whose width stands under ``key``."""
    return Dense(intermediate=keys.integer(key), bias=bias)


def read_experts(
    keys: Keys,
    key: str,
    layout: ExpertLayout,
    *,
    normalise: bool,
    shared: bool = False,
    count_key: str = "num_experts_per_tok",
) -> Experts:
    """Read a mixture of experts as wide as ``key`` says; ``shared`` adds the expert every token visits, as wide."""
    experts = keys.integer(keys.spelling(*_EXPERT_COUNTS))
    chosen = keys.integer(count_key)
    if chosen > experts and keys.sound(count_key, *_EXPERT_COUNTS):
        keys.note(count_key, f"{experts} or less, the number of experts")
    width = keys.integer(key)
    return Experts(
        experts=experts,
        per_token=chosen,
        intermediate=width,
        shared_intermediate=width if shared else 0,
        layout=layout,
        routing=Routing(normalise=normalise),
    )


def grouped_routing(keys: Keys, block: Experts, *, scale: float, normalise: bool = True) -> Routing:
    """Read how sigmoid scores with a bias for the choice pick experts of some groups (DeepSeek-V3 and its kin)."""
    routing = Routing(
        scoring="sigmoid",
        normalise=normalise,
        choice_bias=True,
        groups=keys.integer("n_group", default=1),
        groups_per_token=keys.integer("topk_group", default=1),
        scale=scale,
    )
    _check_groups(keys, block, routing)
    return routing


def _check_groups(keys: Keys, block: Experts, routing: Routing) -> None:
    """Note groups of experts that are not alike, or hold too few for what each token visits."""
    if not keys.sound("n_group", "topk_group", "n_routed_experts", "num_experts_per_tok"):
        return
    if routing.groups_per_token > routing.groups:
        keys.note("topk_group", f"{routing.groups} or less, the n_group")
    each, left = divmod(block.experts, routing.groups)
    if left or (each < _SMALLEST_GROUP and routing.groups > 1):
        keys.note("n_group", f"groups of {_SMALLEST_GROUP} experts or more, all of one size, of {block.experts}")
    elif block.per_token > each * routing.groups_per_token:
        keys.note("num_experts_per_tok", f"{each * routing.groups_per_token} or less, the experts of topk_group groups")


def no_windows(keys: Keys) -> tuple[None, ...]:
    """Return the windows of a family that always looks back at everything."""
    count = layer_count(keys)
    layer_types(keys, count, ("full_attention",))
    return (None,) * count


def one_window(keys: Keys, default: int | None) -> tuple[int | None, ...]:
    """Return the windows of a family that has one ``sliding_window`` for all layers; null means none."""
    count = layer_count(keys)
    window = keys.optional_integer("sliding_window") if keys.states("sliding_window") else default
    layer_types(keys, count, ("full_attention",) if window is None else ("sliding_attention",))
    return (window,) * count


def late_windows(keys: Keys) -> tuple[int | None, ...]:
    """Return the windows of a family that slides from layer ``max_window_layers`` on, or where ``layer_types`` says."""
    count = layer_count(keys)
    types = layer_types(keys, count, ("full_attention", "sliding_attention"))
    slides = keys.flag("use_sliding_window", default=False)
    if not slides:
        keys.ignore("sliding_window", "max_window_layers")
        if types is not None and "sliding_attention" in types:
            keys.note("layer_types", "full_attention alone, since use_sliding_window is off")
        return (None,) * count
    window = keys.integer("sliding_window")
    if types is not None:
        keys.ignore("max_window_layers")
        return tuple(window if kind == "sliding_attention" else None for kind in types)
    first = keys.integer("max_window_layers", least=0)
    return tuple(window if number >= first else None for number in range(count))


def alike(windows: Sequence[int | None], attention: Attention, block: Dense | Experts) -> tuple[Layer, ...]:
    """Return layers that differ in nothing but their windows."""
    layers = {window: Layer(mixer=_windowed(attention, window), feed_forward=block) for window in set(windows)}
    return tuple(layers[window] for window in windows)


def _head_dim(keys: Keys, heads: int, default: int | None) -> int:
    """Return the width of a head: stated, the family's own, or hidden size over heads when that is whole."""
    hidden = keys.integer("hidden_size")
    width = keys.optional_integer("head_dim") or default
    comparable = keys.sound("hidden_size", "num_attention_heads", "head_dim")
    if width is None and hidden % heads and comparable:
        keys.note("head_dim", f"to be stated, as hidden_size {hidden} is no multiple of num_attention_heads {heads}")
        return hidden
    width = width or max(hidden // heads, 1)
    if width % 2 and comparable:
        keys.note("head_dim", f"an even width, which the rotary embedding needs, not {width}")
    return width


def _windowed(attention: Attention, window: int | None) -> Attention:
    if window is None:
        return attention
    return attention.model_copy(update={"kind": "sliding", "window": window})
