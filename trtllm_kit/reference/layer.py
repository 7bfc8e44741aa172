"""One decoder layer, and how it is built from a checkpoint's tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trtllm_kit.dtypes import F32
from trtllm_kit.reference.attention import AttentionBlock, Run
from trtllm_kit.reference.build_feed_forward import FeedForward, build_feed_forward
from trtllm_kit.reference.kv_cache import KvScales, LayerCache
from trtllm_kit.reference.latent import LatentBlock
from trtllm_kit.reference.layer_reader import LayerReader, Weights
from trtllm_kit.reference.numeric import Observe, rms_norm
from trtllm_kit.reference.rope import Rotation
from trtllm_kit.spec.model import Attention, Latent, ModelSpec
from trtllm_kit.spec.profile_formats import KvFormat
from trtllm_kit.spec.tensors import layer_tensors


@dataclass(frozen=True)
class Norms:
    """Weights of one layer's norms, (hidden,) each; those behind a part are None where the family has none."""

    before_attention: F32
    before_feed_forward: F32
    after_attention: F32 | None = None
    after_feed_forward: F32 | None = None


@dataclass(frozen=True)
class DecoderLayer:
    """Attention and feed-forward, each between norms and added to the hidden state."""

    attention: AttentionBlock | LatentBlock
    feed_forward: FeedForward
    norms: Norms
    epsilon: float
    kv_scales: KvScales | None

    def __call__(self, hidden: F32, rotation: Rotation, cache: LayerCache, observe: Observe | None = None) -> F32:
        """Map (tokens, hidden) to (tokens, hidden), adding the tokens' keys and values to ``cache``."""
        hidden = hidden + self.attended(hidden, [Run(rotation, cache, len(hidden))], observe)
        return hidden + self.fed(hidden, observe)

    def attended(self, hidden: F32, runs: Sequence[Run], observe: Observe | None = None) -> F32:
        """Return what attention adds to the (tokens, hidden) state at the layer's beginning.

        ``hidden`` has the tokens of each run behind those of the one before it.
        """
        attended = self.attention.together(self._norm(hidden, self.norms.before_attention), runs, observe)
        return self._norm(attended, self.norms.after_attention)

    def fed(self, hidden: F32, observe: Observe | None = None) -> F32:
        """Return what the feed-forward part adds to the (tokens, hidden) state behind attention."""
        fed = self.feed_forward(self._norm(hidden, self.norms.before_feed_forward), observe)
        return self._norm(fed, self.norms.after_feed_forward)

    def _norm(self, values: F32, weight: F32 | None) -> F32:
        return values if weight is None else rms_norm(values, weight, self.epsilon)

    def new_cache(self) -> LayerCache:
        """Return an empty cache of this layer's shape and number format."""
        return self.attention.new_cache(self.kv_scales)


def build_layer(
    model: ModelSpec, number: int, weights: Weights, kv_format: KvFormat, *, streamed: bool = False
) -> DecoderLayer:
    """Build decoder layer ``number`` (0-based) from the tensors that ``spec.tensors`` names.

    When ``streamed``, its matrices are read anew for each product, and only its vectors are held.
    """
    read = LayerReader(weights, frozenset(_names(model, number)), streamed)
    base = f"{model.prefix}layers.{number}."
    return DecoderLayer(
        attention=_attention(model, number, read),
        feed_forward=build_feed_forward(model, number, read),
        norms=_norms(model, number, weights),
        epsilon=model.norm_epsilon,
        kv_scales=_kv_scales(weights, f"{base}self_attn.", kv_format) if kv_format in _SCALED else None,
    )


def read_norm(model: ModelSpec, weights: Weights, name: str) -> F32:
    """Return what a norm multiplies by; Gemma stores it less one."""
    weight = weights.tensor(name)
    return weight + np.float32(1.0) if model.unit_offset_norms else weight


def _norms(model: ModelSpec, number: int, weights: Weights) -> Norms:
    def norm(name: str) -> F32:
        return read_norm(model, weights, f"{model.prefix}layers.{number}.{name}_layernorm.weight")

    if not model.layers[number].post_norms:
        return Norms(norm("input"), norm("post_attention"))
    return Norms(norm("input"), norm("pre_feedforward"), norm("post_attention"), norm("post_feedforward"))


def _names(model: ModelSpec, number: int) -> Iterator[str]:
    for fact in layer_tensors(model, number):
        yield from fact.names()


def _attention(model: ModelSpec, number: int, read: LayerReader) -> AttentionBlock | LatentBlock:
    base = f"{model.prefix}layers.{number}.self_attn"
    shape = model.layers[number].attention
    if shape.latent is not None:
        return _latent(base, shape, shape.latent, read)
    normed = shape.qk_norm == "per_head"
    if shape.fused_qkv:
        kept = shape.kv_heads * shape.head_dim
        query, key, value = read.parts(f"{base}.qkv_proj", (shape.heads * shape.head_dim, kept, kept))
    else:
        query, key, value = (read.linear(f"{base}.{name}_proj") for name in "qkv")
    return AttentionBlock(
        name=base,
        shape=shape,
        epsilon=model.norm_epsilon,
        query=query,
        key=key,
        value=value,
        out=read.linear(f"{base}.o_proj"),
        query_norm=read_norm(model, read.weights, f"{base}.q_norm.weight") if normed else None,
        key_norm=read_norm(model, read.weights, f"{base}.k_norm.weight") if normed else None,
        sinks=read.optional(f"{base}.sinks"),
    )


def _latent(base: str, shape: Attention, latent: Latent, read: LayerReader) -> LatentBlock:
    squeezed = latent.query_rank is not None
    return LatentBlock(
        name=base,
        shape=shape,
        latent=latent,
        query=read.linear(f"{base}.q_b_proj" if squeezed else f"{base}.q_proj"),
        down=read.linear(f"{base}.kv_a_proj_with_mqa"),
        latent_norm=read.weights.tensor(f"{base}.kv_a_layernorm.weight"),
        up=read.linear(f"{base}.kv_b_proj"),
        out=read.linear(f"{base}.o_proj"),
        query_down=read.linear(f"{base}.q_a_proj") if squeezed else None,
        query_norm=read.optional(f"{base}.q_a_layernorm.weight"),
    )


_SCALED: tuple[KvFormat, ...] = ("fp8", "int8", "nvfp4")


def _kv_scales(weights: Weights, base: str, kv_format: KvFormat) -> KvScales:
    """Read the scales; a runtime that is told of such a cache without scales uses 1.0, and so does this."""
    key, value = weights.scale(f"{base}k_proj.k_scale"), weights.scale(f"{base}v_proj.v_scale")
    return KvScales(1.0 if key is None else key, 1.0 if value is None else value, kv_format)
