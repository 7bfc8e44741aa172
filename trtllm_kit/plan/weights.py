"""What each rank holds of the weights: elements and bytes by number format, with what is replicated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import field
from math import ceil
from typing import TypeVar

from trtllm_kit.light import dataclass
from trtllm_kit.plan.formats import FORMATS, Formats, number_format
from trtllm_kit.plan.parallelism import Split, kv_heads_per_rank
from trtllm_kit.plan.quantization import kinds_by_format, tensor_formats
from trtllm_kit.spec.model import Attention, Layer, ModelSpec
from trtllm_kit.spec.profile_formats import PartFormat
from trtllm_kit.spec.tensors import Role, TensorFact, layer_tensors, outer_tensors


@dataclass(frozen=True)
class Held:
    """Weights on one rank."""

    elements: Mapping[PartFormat, int] = field(default_factory=dict)
    """Elements by number format; ``bf16`` stands for 16 bit."""
    scales: Mapping[int, int] = field(default_factory=dict)
    """Scales by the bytes of one."""

    @property
    def parameters(self) -> int:
        """Elements in all, scales not counted."""
        return sum(self.elements.values())

    def bytes_in(self, name: PartFormat) -> int:
        """Return the bytes of what is stored in a format, without its scales."""
        return FORMATS[name].bytes(self.elements.get(name, 0))

    @property
    def scale_bytes(self) -> int:
        """Bytes of all scales."""
        return sum(size * count for size, count in self.scales.items())

    @property
    def bytes(self) -> int:
        """Bytes in all."""
        return sum(map(self.bytes_in, self.elements)) + self.scale_bytes

    def __add__(self, other: Held) -> Held:
        """Add up two holdings of one rank."""
        return Held(_summed(self.elements, other.elements), _summed(self.scales, other.scales))

    def __mul__(self, count: int) -> Held:
        """Return that many holdings alike."""
        elements = {name: count * held for name, held in self.elements.items()}
        return Held(elements, {size: count * held for size, held in self.scales.items()})


def held_by_stage(model: ModelSpec, split: Split, formats: Formats, stage: range) -> Held:
    """Return what the fullest tensor rank of one pipeline stage holds; ``stage`` is its layer numbers."""
    total = Held()
    for fact in _outer_tensors(model, stage):
        total += Held({"bf16": elements_held(fact, split, None)})
    for number, count in kinds_by_format(model, formats, stage):
        total += held_by_layer(model, number, split, formats) * count
    return total


def held_by_layer(model: ModelSpec, number: int, split: Split, formats: Formats) -> Held:
    """Return what one tensor rank holds of decoder layer ``number`` (0-based)."""
    layer, chosen = model.layers[number], tensor_formats(model, number, formats)
    mixer = layer.mixer
    scaled_cache = formats.has_kv_scales and isinstance(mixer, Attention) and mixer.latent is None
    total = Held(scales={4: 2} if scaled_cache else {})
    for fact in layer_tensors(model, number):
        elements, name = elements_held(fact, split, layer), chosen.get(fact.name, "bf16")
        total += Held({name: elements}, _scales(fact, split, elements, name, formats.group_size))
    return total


def _scales(fact: TensorFact, split: Split, elements: int, name: PartFormat, group_size: int | None) -> dict[int, int]:
    """Return the scales beside the elements that a rank holds of a tensor, or of its alike copies, by their bytes."""
    found: Counter[int] = Counter()
    modules = _modules(fact, split)
    columns = ceil(input_features(fact) / input_parts(fact, split))
    rows = ceil(elements / (modules * columns)) if elements else 0
    for scale in number_format(name, group_size).scales:
        found[scale.bytes] += modules * scale.count(rows, columns) if elements else 0
    return dict(found)


def input_features(fact: TensorFact) -> int:
    """Return the input features: the last axis, but the middle one of most experts fused into one tensor."""
    return fact.shape[1] if len(fact.shape) == 3 and not fact.inputs_last else fact.shape[-1]


def input_parts(fact: TensorFact, split: Split) -> int:
    """Return how many ranks share out the input features of a weight; of the others each rank keeps whole rows."""
    if fact.role not in ROW_PARALLEL:
        return 1
    routed = fact.copies > 1 or fact.role is Role.EXPERT_DOWN
    return split.expert_tensor if routed else split.dense


ROW_PARALLEL = (Role.ATTENTION_OUT, Role.MIXER_OUT, Role.DOWN, Role.SHARED_DOWN, Role.EXPERT_DOWN)
"""Weights whose input features the ranks share out."""


def _outer_tensors(model: ModelSpec, stage: range) -> Iterator[TensorFact]:
    """Yield the tensors outside the layers that a stage holds; the last one of a tied model copies the embedding."""
    first, last = stage.start == 0, stage.stop == len(model.layers)
    for fact in outer_tensors(model):
        tied_head = fact.role is Role.EMBEDDING and model.tied_embeddings and last
        if (fact.role is Role.EMBEDDING and first) or (fact.role is not Role.EMBEDDING and last) or tied_head:
            yield fact


def elements_held(fact: TensorFact, split: Split, layer: Layer | None) -> int:
    """Return the elements of one tensor, or of all its alike copies, on the fullest rank."""
    if fact.role in _ON_EVERY_RANK:
        return fact.elements
    if fact.role in (Role.EMBEDDING, Role.HEAD):
        return ceil(fact.shape[0] / split.dense) * fact.shape[1]
    if fact.role in _BY_KV_HEADS and layer is not None and isinstance(layer.mixer, Attention):
        return _of_kv_heads(fact, split, layer.mixer)
    if len(fact.shape) == 1 and fact.role in (Role.ATTENTION_OUT, Role.DOWN):
        return fact.elements  # the bias after a row-parallel product is not split
    experts = _experts(fact)
    if experts > 1:
        summed = fact.is_bias and fact.role is Role.EXPERT_DOWN  # after a row-parallel product, too
        return expert_places(experts, split) * ceil(fact.elements // experts / (1 if summed else split.expert_tensor))
    return ceil(fact.elements / split.dense)


_ON_EVERY_RANK = frozenset({
    Role.NORM, Role.ROUTER, Role.CHOICE_BIAS, Role.QUERY_DOWN, Role.LATENT_DOWN, Role.INDEX_QUERY, Role.INDEX_KEY,
    Role.INDEX_WEIGHTS, Role.COMPRESSOR, Role.RESIDUAL, Role.WORD_EXPERTS, Role.DECAY_DOWN, Role.GATE_DOWN,
    Role.EXPERT_LATENT_DOWN, Role.EXPERT_LATENT_UP, Role.SHARED_SWITCH, Role.PER_EXPERT, Role.LAYER_SCALE,
})  # fmt: skip
_BY_KV_HEADS = (Role.KEY, Role.VALUE, Role.QKV, Role.LATENT_UP)


def _of_kv_heads(fact: TensorFact, split: Split, attention: Attention) -> int:
    """Return the elements a rank holds of what makes keys and values.

    Of ``kv_b_proj`` TensorRT-LLM holds the keys' half twice, the second time transposed, for generation
    (``k_b_proj_trans`` in ``_torch/modules/attention.py``).
    """
    kept = kv_heads_per_rank(attention, split.dense)
    if attention.latent is not None:
        turned = attention.heads * attention.latent.nope_dim * attention.latent.kv_rank
        return ceil((fact.elements + turned) / split.dense)
    if fact.role is Role.QKV:
        each = fact.elements // (attention.heads + 2 * attention.kv_heads)
        return each * (ceil(attention.heads / split.dense) + 2 * kept)
    return fact.elements // attention.kv_heads * kept


def _modules(fact: TensorFact, split: Split) -> int:
    experts = _experts(fact)
    return expert_places(experts, split) if experts > 1 else 1


def expert_places(experts: int, split: Split) -> int:
    """Return the experts that the fullest rank holds, copies included."""
    return ceil(max(experts, split.expert_slots) / split.expert)


def _experts(fact: TensorFact) -> int:
    """Return how many experts a tensor (or its alike copies) belongs to; 1 when it belongs to none."""
    return fact.shape[0] if fact.role in (Role.EXPERT_GATE_UP, Role.EXPERT_DOWN) else fact.copies


_Key = TypeVar("_Key")


def _summed(one: Mapping[_Key, int], other: Mapping[_Key, int]) -> dict[_Key, int]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in (*one, *(key for key in other if key not in one))}
