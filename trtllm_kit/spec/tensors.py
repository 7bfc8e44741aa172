"""Every weight of a model by name, shape and role, in the Hugging Face layout.

``layer_tensors`` and ``outer_tensors`` name them; every count of parameters or bytes in the program is a sum over
them. Names and shapes are those of 16-bit weights, also for a model whose published files hold others: gpt-oss has
its experts as MXFP4 blocks and scales, DeepSeek-V3 its linears as FP8 beside ``weight_scale_inv``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from trtllm_kit.spec.feed_forward_tensors import feed_forward_tensors
from trtllm_kit.spec.mixer_tensors import mixer_tensors
from trtllm_kit.spec.model import Experts, Layer, ModelSpec
from trtllm_kit.spec.prediction_tensors import prediction_facts
from trtllm_kit.spec.sparse_tensors import outer_residual_tensors, residual_tensors
from trtllm_kit.spec.tensor_fact import CHOICE_BIAS, EXPERT, NOT_LINEAR, FactOf, Role, TensorFact

__all__ = [
    "CHOICE_BIAS",
    "EXPERT",
    "NOT_LINEAR",
    "Role",
    "TensorFact",
    "active_parameters",
    "layer_kinds",
    "layer_tensors",
    "model_tensors",
    "outer_tensors",
    "parameters",
    "prediction_tensors",
]

_OUTER_NAMES = {"nemotron_h": ("embeddings", "norm_f"), "deepseek_v4": ("embed", "norm")}
"""What a family calls its embedding and its last norm, unless ``embed_tokens`` and ``norm``."""


def model_tensors(model: ModelSpec) -> Iterator[TensorFact]:
    """Yield every tensor of the model in file order: embedding, layers, final norm, head."""
    embedding, *after = outer_tensors(model)
    yield embedding
    for number in range(len(model.layers)):
        yield from layer_tensors(model, number)
    yield from after


def outer_tensors(model: ModelSpec) -> Iterator[TensorFact]:
    """Yield the tensors outside the layers: embedding, final norm, and the head unless it is tied."""
    embedding_shape = (model.vocab, model.hidden)
    embedding, norm = _OUTER_NAMES.get(model.family, ("embed_tokens", "norm"))
    yield TensorFact(name=f"{model.prefix}{embedding}.weight", shape=embedding_shape, role=Role.EMBEDDING, layer=None)
    yield TensorFact(name=f"{model.prefix}{norm}.weight", shape=(model.hidden,), role=Role.NORM, layer=None)
    if not model.tied_embeddings:
        yield TensorFact(name=model.head_name, shape=embedding_shape, role=Role.HEAD, layer=None)
    yield from outer_residual_tensors(model.prefix, model.hidden, model.streams, model.residual_block)


def layer_tensors(model: ModelSpec, number: int) -> Iterator[TensorFact]:
    """Yield the tensors of decoder layer ``number`` (0-based)."""
    yield from _layer_tensors(model, f"{model.prefix}layers.{number}.", number, model.layers[number])


def prediction_tensors(model: ModelSpec) -> Iterator[TensorFact]:
    """Yield the tensors of the prediction layers (MTP), which stand behind the last layer.

    No count of the model's parameters includes them. Some files hold an embedding and a head for them as well.
    """
    yield from prediction_facts(model, _layer_tensors)


def _facts_of(base: str, number: int) -> FactOf:
    """Return what makes the facts of a layer whose names begin with ``base``."""

    def fact(suffix: str, role: Role, *shape: int, copies: int = 1, inputs_last: bool = False) -> TensorFact:
        return TensorFact(
            name=base + suffix, shape=shape, role=role, layer=number, copies=copies, inputs_last=inputs_last
        )

    return fact


def _layer_tensors(model: ModelSpec, base: str, number: int, layer: Layer) -> Iterator[TensorFact]:
    fact = _facts_of(base, number)
    before, between = _NORM_NAMES.get(model.family, ("input_layernorm", "post_attention_layernorm"))
    yield from residual_tensors(fact, model.hidden, model.streams, model.residual_block)
    if layer.mixer is not None:
        yield fact(f"{before}.weight", Role.NORM, model.hidden)
        yield from mixer_tensors(fact, layer.mixer, model.hidden, model.family)
    if layer.feed_forward is not None:
        yield fact(f"{between}.weight", Role.NORM, model.hidden)
        if layer.post_norms:
            yield fact("pre_feedforward_layernorm.weight", Role.NORM, model.hidden)
            yield fact("post_feedforward_layernorm.weight", Role.NORM, model.hidden)
        yield from feed_forward_tensors(fact, layer.feed_forward, model.hidden, model.family)
    if layer.scaled:
        yield fact("layer_scalar", Role.LAYER_SCALE, 1)


_NORM_NAMES = {"nemotron_h": ("norm", "norm"), "deepseek_v4": ("attn_norm", "ffn_norm")}
"""What a family calls the norms before the mixer and, without norms behind both parts, before the block."""


def parameters(model: ModelSpec) -> int:
    """Count the stored parameters of the model, without its prediction layers."""
    return sum(fact.elements for fact in outer_tensors(model)) + sum(
        count * sum(fact.elements for fact in layer_tensors(model, number)) for number, count in layer_kinds(model)
    )


def layer_kinds(model: ModelSpec) -> Iterator[tuple[int, int]]:
    """Yield the first number of each kind of layer with the count of layers alike."""
    first: dict[Layer, int] = {}
    counts = Counter(model.layers)
    for number, layer in enumerate(model.layers):
        first.setdefault(layer, number)
    yield from ((number, counts[layer]) for layer, number in first.items())


def active_parameters(model: ModelSpec) -> int:
    """Count the parameters one token's forward pass reads, the output head of a tied model counted once."""
    total = sum(fact.elements for fact in outer_tensors(model))
    for number, count in layer_kinds(model):
        layer = model.layers[number]
        total += count * sum(round(fact.elements * _active_share(layer, fact)) for fact in layer_tensors(model, number))
    return total


def _active_share(layer: Layer, fact: TensorFact) -> float:
    block = layer.feed_forward
    routed = fact.copies > 1 or fact.role in (Role.EXPERT_GATE_UP, Role.EXPERT_DOWN)
    if not isinstance(block, Experts) or not routed:
        return 1.0
    return block.per_token / block.experts
