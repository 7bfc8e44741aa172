"""What each rank holds of the weights: elements and bytes by number format, with what is replicated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import ceil

from trtllm_kit.plan.parallelism import Split, kv_heads_per_rank
from trtllm_kit.plan.quantization import (
    BLOCK_SCALE_BYTES,
    FORMAT_BYTES,
    SCALE_BYTES,
    quantised_tensors,
    tells_numbers_apart,
)
from trtllm_kit.spec.model import Attention, Layer, ModelSpec
from trtllm_kit.spec.profile import KvFormat, WeightFormat
from trtllm_kit.spec.tensors import Role, TensorFact, layer_tensors, outer_tensors


@dataclass(frozen=True)
class Formats:
    """Number formats of a checkpoint."""

    weights: WeightFormat = "bf16"
    kv_cache: KvFormat = "bf16"
    exclude: tuple[str, ...] = ("lm_head",)


@dataclass(frozen=True)
class Held:
    """Weights on one rank."""

    fp8_elements: int = 0
    fp4_elements: int = 0
    """Elements in NVFP4."""
    wide_elements: int = 0
    """Elements in 16 bit."""
    scales: int = 0
    """Scales of whole tensors; those of NVFP4's blocks follow from its elements."""

    @property
    def parameters(self) -> int:
        """Elements in all, scales not counted."""
        return self.fp8_elements + self.fp4_elements + self.wide_elements

    @property
    def fp8_bytes(self) -> int:
        """Bytes of what is stored in FP8."""
        return _bytes(self.fp8_elements, FORMAT_BYTES["fp8"])

    @property
    def fp4_bytes(self) -> int:
        """Bytes of what is stored in NVFP4, without its scales."""
        return _bytes(self.fp4_elements, FORMAT_BYTES["nvfp4"])

    @property
    def wide_bytes(self) -> int:
        """Bytes of what is stored in 16 bit."""
        return _bytes(self.wide_elements, FORMAT_BYTES["bf16"])

    @property
    def block_scales(self) -> int:
        """Scales of NVFP4's blocks, one byte each."""
        return _bytes(self.fp4_elements, BLOCK_SCALE_BYTES["nvfp4"])

    @property
    def scale_bytes(self) -> int:
        """Bytes of all scales."""
        return self.scales * SCALE_BYTES + self.block_scales

    @property
    def bytes(self) -> int:
        """Bytes in all."""
        return self.fp8_bytes + self.fp4_bytes + self.wide_bytes + self.scale_bytes

    def __add__(self, other: Held) -> Held:
        """Add up two holdings of one rank."""
        return Held(
            fp8_elements=self.fp8_elements + other.fp8_elements,
            fp4_elements=self.fp4_elements + other.fp4_elements,
            wide_elements=self.wide_elements + other.wide_elements,
            scales=self.scales + other.scales,
        )


def held_by_stage(model: ModelSpec, split: Split, formats: Formats, stage: range) -> Held:
    """Return what the fullest tensor rank of one pipeline stage holds; ``stage`` is its layer numbers."""
    total = Held()
    for fact in _outer_tensors(model, stage):
        total += Held(wide_elements=_elements(fact, split, None))
    for number, count in _kinds(model, formats, stage):
        total += _times(held_by_layer(model, number, split, formats), count)
    return total


def held_by_layer(model: ModelSpec, number: int, split: Split, formats: Formats) -> Held:
    """Return what one tensor rank holds of decoder layer ``number`` (0-based)."""
    layer = model.layers[number]
    if formats.weights == "bf16":
        return Held(wide_elements=sum(_elements(fact, split, layer) for fact in layer_tensors(model, number)))
    chosen = quantised_tensors(model, number, formats.exclude)
    scaled_cache = formats.kv_cache != "bf16" and layer.attention.latent is None
    total = Held(scales=2 if scaled_cache else 0)
    for fact in layer_tensors(model, number):
        elements = _elements(fact, split, layer)
        if fact.name in chosen:
            scales = 2 * _modules(fact, split)  # of the weight and of its input
            four_bit = formats.weights == "nvfp4"
            total += Held(
                fp8_elements=0 if four_bit else elements, fp4_elements=elements if four_bit else 0, scales=scales
            )
        else:
            total += Held(wide_elements=elements)
    return total


def _kinds(model: ModelSpec, formats: Formats, stage: range) -> Iterable[tuple[int, int]]:
    """Yield one layer number of each kind in the stage with the count of layers alike."""
    if formats.weights != "bf16" and any(map(tells_numbers_apart, formats.exclude)):
        return ((number, 1) for number in stage)  # a pattern may single out one layer
    numbers: dict[Layer, list[int]] = {}
    for number in stage:
        numbers.setdefault(model.layers[number], []).append(number)
    return ((alike[0], len(alike)) for alike in numbers.values())


def _outer_tensors(model: ModelSpec, stage: range) -> Iterator[TensorFact]:
    """Yield the tensors outside the layers that a stage holds; the last one of a tied model copies the embedding."""
    first, last = stage.start == 0, stage.stop == len(model.layers)
    for fact in outer_tensors(model):
        tied_head = fact.role is Role.EMBEDDING and model.tied_embeddings and last
        if (fact.role is Role.EMBEDDING and first) or (fact.role is not Role.EMBEDDING and last) or tied_head:
            yield fact


def _elements(fact: TensorFact, split: Split, layer: Layer | None) -> int:
    """Return the elements of one tensor, or of all its alike copies, on the fullest rank."""
    if fact.role in _ON_EVERY_RANK:
        return fact.elements
    if fact.role in (Role.EMBEDDING, Role.HEAD):
        return ceil(fact.shape[0] / split.tensor) * fact.shape[1]
    if fact.role in _BY_KV_HEADS and layer is not None:
        return _of_kv_heads(fact, split, layer.attention)
    if len(fact.shape) == 1 and fact.role in (Role.ATTENTION_OUT, Role.DOWN):
        return fact.elements  # the bias after a row-parallel product is not split
    experts = _experts(fact)
    if experts > 1:
        summed = fact.is_bias and fact.role is Role.EXPERT_DOWN  # after a row-parallel product, too
        return _places(experts, split) * ceil(fact.elements // experts / (1 if summed else split.expert_tensor))
    return ceil(fact.elements / split.tensor)


_ON_EVERY_RANK = (Role.NORM, Role.ROUTER, Role.CHOICE_BIAS, Role.QUERY_DOWN, Role.LATENT_DOWN)
_BY_KV_HEADS = (Role.KEY, Role.VALUE, Role.QKV, Role.LATENT_UP)


def _of_kv_heads(fact: TensorFact, split: Split, attention: Attention) -> int:
    """Return the elements a rank holds of what makes keys and values.

    Of ``kv_b_proj`` TensorRT-LLM holds the keys' half twice, the second time transposed, for generation
    (``k_b_proj_trans`` in ``_torch/modules/attention.py``).
    """
    kept = kv_heads_per_rank(attention, split.tensor)
    if attention.latent is not None:
        turned = attention.heads * attention.latent.nope_dim * attention.latent.kv_rank
        return ceil((fact.elements + turned) / split.tensor)
    if fact.role is Role.QKV:
        each = fact.elements // (attention.heads + 2 * attention.kv_heads)
        return each * (ceil(attention.heads / split.tensor) + 2 * kept)
    return fact.elements // attention.kv_heads * kept


def _modules(fact: TensorFact, split: Split) -> int:
    experts = _experts(fact)
    return _places(experts, split) if experts > 1 else 1


def _places(experts: int, split: Split) -> int:
    """Return the experts that the fullest rank holds, copies included."""
    return ceil(max(experts, split.expert_slots) / split.expert)


def _experts(fact: TensorFact) -> int:
    """Return how many experts a tensor (or its alike copies) belongs to; 1 when it belongs to none."""
    return fact.shape[0] if fact.role in (Role.EXPERT_GATE_UP, Role.EXPERT_DOWN) else fact.copies


def _times(held: Held, count: int) -> Held:
    return Held(
        fp8_elements=held.fp8_elements * count,
        fp4_elements=held.fp4_elements * count,
        wide_elements=held.wide_elements * count,
        scales=held.scales * count,
    )


def _bytes(elements: int, each: float) -> int:
    """Return whole bytes; the formats' shares are powers of two, so the product is exact."""
    return ceil(elements * each)
