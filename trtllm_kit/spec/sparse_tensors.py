"""The weights of sparse and compressed attention, and of Kimi's delta attention.

Names are those of the published files; shapes agree with the classes of transformers 5.14 where it has them
(DeepSeek-V3.2 and V4, GLM, MiniMax-M3). Kimi-K3's follow TensorRT-LLM's and vLLM's loaders, and add up to the
published total.
"""

from __future__ import annotations

from collections.abc import Iterator

from trtllm_kit.spec.mixers import Attention, Compression, Indexer, KimiDelta
from trtllm_kit.spec.tensor_fact import FactOf, Role, TensorFact


def indexer_tensors(fact: FactOf, indexer: Indexer, query_rank: int | None, hidden: int) -> Iterator[TensorFact]:
    """Yield an indexer's tensors; its queries are made of the squeezed one (DeepSeek) or of the hidden state."""
    rows = indexer.heads * indexer.head_dim
    if indexer.layout == "minimax":
        yield fact("self_attn.index_q_proj.weight", Role.INDEX_QUERY, rows, hidden)
        yield fact("self_attn.index_k_proj.weight", Role.INDEX_KEY, indexer.head_dim, hidden)
        yield fact("self_attn.index_q_norm.weight", Role.NORM, indexer.head_dim)
        yield fact("self_attn.index_k_norm.weight", Role.NORM, indexer.head_dim)
        return
    base = "self_attn.indexer."
    yield fact(f"{base}wq_b.weight", Role.INDEX_QUERY, rows, query_rank or hidden)
    yield fact(f"{base}wk.weight", Role.INDEX_KEY, indexer.head_dim, hidden)
    yield fact(f"{base}k_norm.weight", Role.NORM, indexer.head_dim)
    yield fact(f"{base}k_norm.bias", Role.NORM, indexer.head_dim)
    yield fact(f"{base}weights_proj.weight", Role.INDEX_WEIGHTS, indexer.heads, hidden)


def compressed_tensors(
    fact: FactOf, attention: Attention, compression: Compression, hidden: int
) -> Iterator[TensorFact]:
    """Yield the tensors of DeepSeek-V4's attention."""
    width, rank = attention.heads * attention.head_dim, compression.query_rank
    squeezed = compression.output_groups * compression.output_rank
    yield fact("attn.attn_sink", Role.SINK, attention.heads)
    yield fact("attn.wq_a.weight", Role.QUERY_DOWN, rank, hidden)
    yield fact("attn.q_norm.weight", Role.NORM, rank)
    yield fact("attn.wq_b.weight", Role.QUERY_UP, width, rank)
    yield fact("attn.wkv.weight", Role.LATENT_DOWN, attention.head_dim, hidden)
    yield fact("attn.kv_norm.weight", Role.NORM, attention.head_dim)
    yield fact("attn.wo_a.weight", Role.OUTPUT_DOWN, squeezed, width // compression.output_groups)
    yield fact("attn.wo_b.weight", Role.ATTENTION_OUT, hidden, squeezed)
    if compression.ratio:
        yield from _compressor_tensors(fact, "attn.compressor.", compression, attention.head_dim, hidden)
    if attention.indexer is not None:
        indexer = attention.indexer
        yield fact("attn.indexer.wq_b.weight", Role.INDEX_QUERY, indexer.heads * indexer.head_dim, rank)
        yield fact("attn.indexer.weights_proj.weight", Role.INDEX_WEIGHTS, indexer.heads, hidden)
        yield from _compressor_tensors(fact, "attn.indexer.compressor.", compression, indexer.head_dim, hidden)


def _compressor_tensors(
    fact: FactOf, base: str, compression: Compression, width: int, hidden: int
) -> Iterator[TensorFact]:
    """Yield what makes one vector of ``width`` elements of ``ratio`` tokens, or of twice as many that overlap."""
    rows = compression.overlap * width
    yield fact(f"{base}ape", Role.COMPRESSOR, compression.ratio, rows)
    yield fact(f"{base}wkv.weight", Role.COMPRESSOR, rows, hidden)
    yield fact(f"{base}wgate.weight", Role.COMPRESSOR, rows, hidden)
    yield fact(f"{base}norm.weight", Role.NORM, width)


def kimi_delta_tensors(fact: FactOf, mixer: KimiDelta, hidden: int) -> Iterator[TensorFact]:
    """Yield the tensors of Kimi's delta attention."""
    base, inner, narrow = "self_attn.", mixer.inner, mixer.head_dim
    for role in (Role.QUERY, Role.KEY, Role.VALUE):
        yield fact(f"{base}{role}.weight", role, inner, hidden)
    for name in ("q_conv1d", "k_conv1d", "v_conv1d"):
        yield fact(f"{base}{name}.weight", Role.CONVOLUTION, inner, 1, mixer.conv_kernel)
    yield fact(f"{base}A_log", Role.STATE, mixer.heads)
    yield fact(f"{base}dt_bias", Role.STATE, inner)
    yield fact(f"{base}f_a_proj.weight", Role.DECAY_DOWN, narrow, hidden)
    yield fact(f"{base}f_b_proj.weight", Role.DECAY_UP, inner, narrow)
    yield fact(f"{base}b_proj.weight", Role.MIXER_RATES, mixer.heads, hidden)
    if mixer.full_gate:
        yield fact(f"{base}g_proj.weight", Role.MIXER_GATE, inner, hidden)
    else:
        yield fact(f"{base}g_a_proj.weight", Role.GATE_DOWN, narrow, hidden)
        yield fact(f"{base}g_b_proj.weight", Role.MIXER_GATE, inner, narrow)
    yield fact(f"{base}o_norm.weight", Role.NORM, narrow)
    yield fact(f"{base}o_proj.weight", Role.MIXER_OUT, hidden, inner)


def residual_tensors(fact: FactOf, hidden: int, streams: int, blocks: int | None) -> Iterator[TensorFact]:
    """Yield what mixes a layer's parts into the hidden state, where that is more than a sum."""
    if streams > 1:
        mixes = (2 + streams) * streams
        for part in ("attn", "ffn"):
            yield fact(f"hc_{part}_fn", Role.RESIDUAL, mixes, streams * hidden)
            yield fact(f"hc_{part}_base", Role.RESIDUAL, mixes)
            yield fact(f"hc_{part}_scale", Role.RESIDUAL, 3)
    if blocks is not None:
        for part in ("self_attention", "mlp"):
            yield fact(f"{part}_res_norm.weight", Role.RESIDUAL, hidden)
            yield fact(f"{part}_res_proj.weight", Role.RESIDUAL, 1, hidden)


def outer_residual_tensors(prefix: str, hidden: int, streams: int, blocks: int | None) -> Iterator[TensorFact]:
    """Yield what makes one hidden state of the mixed ones before the output head."""
    shapes: dict[str, tuple[int, ...]] = {}
    if streams > 1:
        shapes |= {"hc_head_fn": (streams, streams * hidden), "hc_head_base": (streams,), "hc_head_scale": (1,)}
    if blocks is not None:
        shapes |= {"output_attn_res_norm.weight": (hidden,), "output_attn_res_proj.weight": (1, hidden)}
    for name, shape in shapes.items():
        yield TensorFact(name=f"{prefix}{name}", shape=shape, role=Role.RESIDUAL, layer=None)
