"""The weights of what mixes tokens: attention, latent attention, delta-net, Mamba."""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.spec.model import Attention, DeltaNet, KimiDelta, Latent, Mamba, Mixer
from trtllm_kit.spec.sparse_tensors import compressed_tensors, indexer_tensors, kimi_delta_tensors
from trtllm_kit.spec.tensor_fact import FactOf, Role, TensorFact

_HUB_SINKS = {"mimo_v2": "attention_sink_bias"}
"""What a family's files call the sinks, where it is another name."""


def mixer_tensors(fact: FactOf, mixer: Mixer, hidden: int, family: str) -> Iterator[TensorFact]:
    """Yield the tensors of one layer's mixer."""
    base = "mixer." if family == "nemotron_h" else "self_attn."
    if isinstance(mixer, DeltaNet):
        yield from _delta_net_tensors(fact, mixer, hidden)
    elif isinstance(mixer, Mamba):
        yield from _mamba_tensors(fact, mixer, hidden)
    elif isinstance(mixer, KimiDelta):
        yield from kimi_delta_tensors(fact, mixer, hidden)
    elif mixer.compression is not None:
        yield from compressed_tensors(fact, mixer, mixer.compression, hidden)
    elif mixer.latent is not None:
        yield from _latent_tensors(fact, mixer, mixer.latent, hidden)
    else:
        if mixer.sinks:
            yield fact(f"{base}{_HUB_SINKS.get(family, 'sinks')}", Role.SINK, mixer.heads)
        yield from _attention_tensors(fact, base, mixer, hidden)
        if mixer.indexer is not None:
            yield from indexer_tensors(fact, mixer.indexer, None, hidden)


def _attention_tensors(fact: FactOf, base: str, attention: Attention, hidden: int) -> Iterator[TensorFact]:
    for role, rows in _projections(attention):
        yield fact(f"{base}{role}.weight", role, rows, hidden)
        if attention.qkv_bias:
            yield fact(f"{base}{role}.bias", role, rows)
    yield fact(f"{base}o_proj.weight", Role.ATTENTION_OUT, hidden, attention.heads * attention.value_width)
    if attention.out_bias:
        yield fact(f"{base}o_proj.bias", Role.ATTENTION_OUT, hidden)
    if attention.gate == "head":
        yield fact(f"{base}g_proj.weight", Role.ATTENTION_GATE, attention.heads, hidden)
    if attention.qk_norm in ("per_head", "all_heads"):
        together = attention.qk_norm == "all_heads"
        for part, heads in (("q_norm", attention.heads), ("k_norm", attention.kv_heads)):
            yield fact(f"{base}{part}.weight", Role.NORM, attention.head_dim * (heads if together else 1))


def _projections(attention: Attention) -> tuple[tuple[Role, int], ...]:
    """Return the projections in front of the attention with their output features."""
    query, kept = attention.heads * attention.head_dim, attention.kv_heads * attention.head_dim
    if attention.fused_qkv:
        return ((Role.QKV, query + 2 * kept),)
    rows = ((Role.QUERY, query * (2 if attention.gate == "element" else 1)), (Role.KEY, kept))
    return rows if attention.value_is_key else (*rows, (Role.VALUE, attention.kv_heads * attention.value_width))


def _latent_tensors(fact: FactOf, attention: Attention, latent: Latent, hidden: int) -> Iterator[TensorFact]:
    heads = attention.heads
    if latent.query_rank is None:
        yield fact("self_attn.q_proj.weight", Role.QUERY, heads * attention.head_dim, hidden)
    else:
        yield fact("self_attn.q_a_proj.weight", Role.QUERY_DOWN, latent.query_rank, hidden)
        yield fact("self_attn.q_a_layernorm.weight", Role.NORM, latent.query_rank)
        yield fact("self_attn.q_b_proj.weight", Role.QUERY_UP, heads * attention.head_dim, latent.query_rank)
    cached = latent.kv_rank + latent.rope_dim
    yield fact("self_attn.kv_a_proj_with_mqa.weight", Role.LATENT_DOWN, cached, hidden)
    yield fact("self_attn.kv_a_layernorm.weight", Role.NORM, latent.kv_rank)
    expanded = heads * (latent.nope_dim + latent.value_dim)
    yield fact("self_attn.kv_b_proj.weight", Role.LATENT_UP, expanded, latent.kv_rank)
    yield fact("self_attn.o_proj.weight", Role.ATTENTION_OUT, hidden, heads * latent.value_dim)
    if attention.gate == "element":
        yield fact("self_attn.g_proj.weight", Role.ATTENTION_GATE, heads * latent.value_dim, hidden)
    if attention.indexer is not None:
        yield from indexer_tensors(fact, attention.indexer, latent.query_rank, hidden)


def _delta_net_tensors(fact: FactOf, mixer: DeltaNet, hidden: int) -> Iterator[TensorFact]:
    values = mixer.value_heads * mixer.value_dim
    for name in ("dt_bias", "A_log"):
        yield fact(f"linear_attn.{name}", Role.STATE, mixer.value_heads)
    yield fact("linear_attn.conv1d.weight", Role.CONVOLUTION, mixer.conv_channels, 1, mixer.conv_kernel)
    yield fact("linear_attn.norm.weight", Role.NORM, mixer.value_dim)
    yield fact("linear_attn.out_proj.weight", Role.MIXER_OUT, hidden, values)
    yield fact("linear_attn.in_proj_qkv.weight", Role.MIXER_IN, mixer.conv_channels, hidden)
    yield fact("linear_attn.in_proj_z.weight", Role.MIXER_GATE, values, hidden)
    for name in ("in_proj_b", "in_proj_a"):
        yield fact(f"linear_attn.{name}.weight", Role.MIXER_RATES, mixer.value_heads, hidden)


def _mamba_tensors(fact: FactOf, mixer: Mamba, hidden: int) -> Iterator[TensorFact]:
    rows = mixer.inner + mixer.conv_channels + mixer.heads
    for name in ("dt_bias", "A_log", "D"):
        yield fact(f"mixer.{name}", Role.STATE, mixer.heads)
    yield fact("mixer.conv1d.weight", Role.CONVOLUTION, mixer.conv_channels, 1, mixer.conv_kernel)
    if mixer.conv_bias:
        yield fact("mixer.conv1d.bias", Role.CONVOLUTION, mixer.conv_channels)
    yield fact("mixer.in_proj.weight", Role.MIXER_IN, rows, hidden)
    yield fact("mixer.norm.weight", Role.NORM, mixer.inner)
    yield fact("mixer.out_proj.weight", Role.MIXER_OUT, hidden, mixer.inner)
    if mixer.bias:
        yield fact("mixer.in_proj.bias", Role.MIXER_IN, rows)
        yield fact("mixer.out_proj.bias", Role.MIXER_OUT, hidden)
