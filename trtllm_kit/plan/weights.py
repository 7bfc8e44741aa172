"""What each rank holds of the weights: elements and bytes by number format, with what is replicated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import ceil

from trtllm_kit.plan.parallelism import Split, kv_heads_per_rank
from trtllm_kit.plan.quantization import FORMAT_BYTES, SCALE_BYTES, quantised_tensors, tells_numbers_apart
from trtllm_kit.spec.model import Layer, ModelSpec
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
    wide_elements: int = 0
    """Elements in 16 bit."""
    scales: int = 0

    @property
    def parameters(self) -> int:
        """Elements in all, scales not counted."""
        return self.fp8_elements + self.wide_elements

    @property
    def fp8_bytes(self) -> int:
        """Bytes of what is stored in FP8."""
        return self.fp8_elements * FORMAT_BYTES["fp8"]

    @property
    def wide_bytes(self) -> int:
        """Bytes of what is stored in 16 bit."""
        return self.wide_elements * FORMAT_BYTES["bf16"]

    @property
    def scale_bytes(self) -> int:
        """Bytes of the scales."""
        return self.scales * SCALE_BYTES

    @property
    def bytes(self) -> int:
        """Bytes in all."""
        return self.fp8_bytes + self.wide_bytes + self.scale_bytes

    def __add__(self, other: Held) -> Held:
        """Add up two holdings of one rank."""
        return Held(
            self.fp8_elements + other.fp8_elements,
            self.wide_elements + other.wide_elements,
            self.scales + other.scales,
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
    total = Held(scales=2 if formats.kv_cache == "fp8" else 0)
    for fact in layer_tensors(model, number):
        elements = _elements(fact, split, layer)
        if fact.name in chosen:
            total += Held(fp8_elements=elements, scales=2 * _modules(fact, split))  # of the weight and of its input
        else:
            total += Held(wide_elements=elements)
    return total


def _kinds(model: ModelSpec, formats: Formats, stage: range) -> Iterable[tuple[int, int]]:
    """Yield one layer number of each kind in the stage with the count of layers alike."""
    if formats.weights == "fp8" and any(map(tells_numbers_apart, formats.exclude)):
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
    if fact.role in (Role.NORM, Role.ROUTER):
        return fact.elements
    if fact.role in (Role.EMBEDDING, Role.HEAD):
        return ceil(fact.shape[0] / split.tensor) * fact.shape[1]
    if fact.role in (Role.KEY, Role.VALUE) and layer is not None:
        each = fact.elements // layer.attention.kv_heads
        return each * kv_heads_per_rank(layer.attention, split.tensor)
    if len(fact.shape) == 1 and fact.role in (Role.ATTENTION_OUT, Role.DOWN):
        return fact.elements  # the bias after a row-parallel product is not split
    experts = _experts(fact)
    if experts > 1:
        return ceil(experts / split.expert) * ceil(fact.elements // experts / split.expert_tensor)
    return ceil(fact.elements / split.tensor)


def _modules(fact: TensorFact, split: Split) -> int:
    return ceil(_experts(fact) / split.expert)


def _experts(fact: TensorFact) -> int:
    """Return how many experts a tensor (or its alike copies) belongs to; 1 when it belongs to none."""
    return fact.shape[0] if fact.role in (Role.EXPERT_GATE_UP, Role.EXPERT_DOWN) else fact.copies


def _times(held: Held, count: int) -> Held:
    return Held(held.fp8_elements * count, held.wide_elements * count, held.scales * count)
