"""How many bytes the files of a model take, by the formats that their configuration states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import ceil

from trtllm_kit.light import dataclass
from trtllm_kit.plan.formats import FORMATS, Formats, number_format
from trtllm_kit.plan.passing import held_formats
from trtllm_kit.plan.quantization import kinds_by_format, tensor_formats
from trtllm_kit.plan.weights import input_features
from trtllm_kit.spec.model import ModelSpec, StoredFormats
from trtllm_kit.spec.profile_formats import PartFormat
from trtllm_kit.spec.tensors import TensorFact, layer_tensors, outer_tensors

_CACHE_SCALES = 2 * 4
"""Bytes of a layer's scales of cached keys and values."""


@dataclass(frozen=True)
class StoredSize:
    """Elements of a model's tensors by number format, and the bytes of the scales beside them."""

    elements: Mapping[PartFormat, int]
    scale_bytes: int

    @property
    def bytes(self) -> int:
        """Bytes in all."""
        return sum(FORMATS[name].bytes(count) for name, count in self.elements.items()) + self.scale_bytes


def stored_size(model: ModelSpec) -> StoredSize | None:
    """Return the size of a model's tensors as they are stored; None for a format that the kit does not read."""
    formats = formats_of(model.stored)
    return None if formats is None else size_in(model, formats)


def size_in(model: ModelSpec, formats: Formats) -> StoredSize:
    """Return the size of a model's tensors in some formats, prediction layers and vision part left out.

    Every tensor that has no format of its own counts as 16 bit: routers, norms and what mixes residuals, some of which
    files hold in 32 bit, are less than one part in a thousand. Experts count one by one, where files that hold them in
    one tensor have one scale for all.
    """
    elements: Counter[PartFormat] = Counter()
    elements["bf16"] = sum(fact.elements for fact in outer_tensors(model))
    scales = 0
    for number, count in kinds_by_format(model, formats):
        chosen = tensor_formats(model, number, formats)
        facts = tuple(layer_tensors(model, number))
        for fact in facts:
            elements[chosen.get(fact.name, "bf16")] += count * fact.elements
        scales += count * _scale_bytes(facts, chosen, formats.group_size)
    if not formats.passed_through and formats.has_kv_scales:
        scales += sum(_CACHE_SCALES for kind in model.attentions if kind.latent is None)
    return StoredSize(dict(elements), scales)


def formats_of(stored: StoredFormats | None) -> Formats | None:
    """Return the formats in which a checkpoint lies; None where the kit does not know what its words mean."""
    if stored is None:
        return Formats(exclude=())
    if stored.weights is None:
        return None
    return held_formats(stored, stored.weights, stored.kv_cache)


def _scale_bytes(facts: Iterable[TensorFact], chosen: Mapping[str, PartFormat], group_size: int | None) -> int:
    total = 0
    for fact in facts:
        columns = input_features(fact)
        modules = fact.shape[0] if len(fact.shape) == 3 else fact.copies
        rows = ceil(fact.elements / (modules * columns))
        kinds = number_format(chosen.get(fact.name, "bf16"), group_size).scales
        total += modules * sum(scale.bytes * scale.count(rows, columns) for scale in kinds)
    return total
