"""One decoder layer, and how it is built from a checkpoint's tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from trtllm_kit.dtypes import F32
from trtllm_kit.reference.attention import AttentionBlock
from trtllm_kit.reference.feed_forward import DenseBlock, ExpertsBlock, Llama4Experts
from trtllm_kit.reference.kv_cache import KvScales, LayerCache
from trtllm_kit.reference.linear import Linear
from trtllm_kit.reference.numeric import Observe, gelu, rms_norm, silu
from trtllm_kit.reference.rope import Rotation
from trtllm_kit.spec.model import Experts, ModelSpec
from trtllm_kit.spec.profile import KvFormat
from trtllm_kit.spec.tensors import Role, layer_tensors

FeedForward = DenseBlock | ExpertsBlock | Llama4Experts
Activation = Callable[[F32], F32]


class Weights(Protocol):
    """Where the tensors of a model come from; ``checkpoint.load`` reads them from a folder."""

    def tensor(self, name: str) -> F32:
        """Return a tensor as float32, multiplied by its scale when it is quantised."""

    def scale(self, name: str) -> float | None:
        """Return a scalar such as ``….input_scale``, or None when the checkpoint holds none of that name."""


@dataclass(frozen=True)
class DecoderLayer:
    """Attention and feed-forward, each behind a norm and added to the hidden state."""

    attention: AttentionBlock
    feed_forward: FeedForward
    input_norm: F32
    output_norm: F32
    epsilon: float
    kv_scales: KvScales | None

    def __call__(self, hidden: F32, rotation: Rotation, cache: LayerCache, observe: Observe | None = None) -> F32:
        """Map (tokens, hidden) to (tokens, hidden), adding the tokens' keys and values to ``cache``."""
        normed = rms_norm(hidden, self.input_norm, self.epsilon)
        hidden = hidden + self.attention(normed, rotation, cache, observe)
        normed = rms_norm(hidden, self.output_norm, self.epsilon)
        return hidden + self.feed_forward(normed, observe)

    def new_cache(self) -> LayerCache:
        """Return an empty cache of this layer's shape and number format."""
        return LayerCache(self.attention.shape.kv_heads, self.attention.shape.head_dim, self.kv_scales)


def build_layer(model: ModelSpec, number: int, weights: Weights, kv_format: KvFormat) -> DecoderLayer:
    """Build decoder layer ``number`` (0-based) from the tensors that ``spec.tensors`` names."""
    read = _LayerReader(weights, frozenset(_names(model, number)))
    base = f"{model.prefix}layers.{number}."
    return DecoderLayer(
        attention=_attention(model, number, read),
        feed_forward=_feed_forward(model, number, read),
        input_norm=weights.tensor(f"{base}input_layernorm.weight"),
        output_norm=weights.tensor(f"{base}post_attention_layernorm.weight"),
        epsilon=model.norm_epsilon,
        kv_scales=_kv_scales(weights, f"{base}self_attn.") if kv_format == "fp8" else None,
    )


@dataclass(frozen=True)
class _LayerReader:
    """Reads the modules of one layer; ``names`` are the tensors the model spec gives it."""

    weights: Weights
    names: frozenset[str]

    def linear(self, module: str) -> Linear:
        bias = f"{module}.bias"
        return Linear(
            name=module,
            weight=self.weights.tensor(f"{module}.weight"),
            bias=self.weights.tensor(bias) if bias in self.names else None,
            input_scale=self.weights.scale(f"{module}.input_scale"),
        )


_ACTIVATIONS: dict[str, Activation] = {"silu": silu, "gelu": gelu}


def _names(model: ModelSpec, number: int) -> Iterator[str]:
    for fact in layer_tensors(model, number):
        yield from fact.names()


def _attention(model: ModelSpec, number: int, read: _LayerReader) -> AttentionBlock:
    base = f"{model.prefix}layers.{number}.self_attn"
    shape = model.layers[number].attention
    normed = shape.qk_norm == "per_head"
    return AttentionBlock(
        name=base,
        shape=shape,
        epsilon=model.norm_epsilon,
        query=read.linear(f"{base}.q_proj"),
        key=read.linear(f"{base}.k_proj"),
        value=read.linear(f"{base}.v_proj"),
        out=read.linear(f"{base}.o_proj"),
        query_norm=read.weights.tensor(f"{base}.q_norm.weight") if normed else None,
        key_norm=read.weights.tensor(f"{base}.k_norm.weight") if normed else None,
    )


def _feed_forward(model: ModelSpec, number: int, read: _LayerReader) -> FeedForward:
    block = model.layers[number].feed_forward
    modules: dict[Role, list[str]] = {}
    for fact in layer_tensors(model, number):
        if not fact.name.endswith(".bias"):
            modules[fact.role] = [name.removesuffix(".weight") for name in fact.names()]
    activation = _ACTIVATIONS[model.activation]
    blocks = tuple(
        DenseBlock(read.linear(gate), read.linear(up), read.linear(down), activation)
        for gate, up, down in zip(modules[Role.GATE], modules[Role.UP], modules[Role.DOWN], strict=True)
    )
    if not isinstance(block, Experts):
        return blocks[0]
    router = read.linear(modules[Role.ROUTER][0])
    if block.layout != "llama4":
        return ExpertsBlock(router, blocks, block.per_token, block.routing.normalise)
    fused = _fused_experts(read, modules[Role.EXPERT_GATE_UP][0], modules[Role.EXPERT_DOWN][0], activation)
    return Llama4Experts(router, fused, blocks[0], block.per_token)


def _fused_experts(read: _LayerReader, gate_up: str, down: str, activation: Activation) -> tuple[DenseBlock, ...]:
    """Split Llama 4's fused tensors, stored (experts, in features, out features), into one block an expert."""
    wide, narrow = read.weights.tensor(gate_up), read.weights.tensor(down)
    wide_scale, narrow_scale = read.weights.scale(f"{gate_up}_input_scale"), read.weights.scale(f"{down}_input_scale")
    half = wide.shape[-1] // 2
    return tuple(
        DenseBlock(
            Linear(f"{gate_up}.{expert}", wide[expert, :, :half].T, input_scale=wide_scale),
            Linear(f"{gate_up}.{expert}", wide[expert, :, half:].T, input_scale=wide_scale),
            Linear(f"{down}.{expert}", narrow[expert].T, input_scale=narrow_scale),
            activation,
        )
        for expert in range(len(wide))
    )


def _kv_scales(weights: Weights, base: str) -> KvScales:
    """Read the scales; a runtime that is told FP8 without scales uses 1.0, and so does this."""
    key, value = weights.scale(f"{base}k_proj.k_scale"), weights.scale(f"{base}v_proj.v_scale")
    return KvScales(1.0 if key is None else key, 1.0 if value is None else value)
