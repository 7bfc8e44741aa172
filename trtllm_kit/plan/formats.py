"""What a number format costs: bits of an element, and the scales that stand beside a weight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from math import ceil

from trtllm_kit.light import dataclass
from trtllm_kit.spec.profile_formats import GROUPED, KvFormat, PartFormat, WeightFormat

GROUP_SIZE = 128
"""Input elements that share a scale in int4 where a profile does not say; upstream's default."""


@dataclass(frozen=True)
class Formats:
    """Number formats of a checkpoint, as decided."""

    weights: WeightFormat = "bf16"
    kv_cache: KvFormat = "bf16"
    exclude: tuple[str, ...] = ("lm_head",)
    groups: Mapping[str, PartFormat] = field(default_factory=dict)
    """Format of ``attention``, ``feed_forward`` and ``experts``, for mixed weights alone; by module patterns for
    weights that come so."""
    group_size: int | None = None
    """Input elements that share a scale in the formats that group them; None for upstream's default."""
    passed_through: bool = False
    """The weights come in these formats already, and nothing is measured or encoded."""

    @property
    def used(self) -> tuple[PartFormat, ...]:
        """The formats that weights take beside 16 bit, each once; empty when all stay in 16 bit."""
        taken = self.groups.values() if self.weights == "mixed" else (self.weights,)
        return tuple(dict.fromkeys(chosen for chosen in taken if chosen != "bf16"))

    @property
    def quantises(self) -> bool:
        """Whether any weight is to leave 16 bit."""
        return bool(self.used)

    @property
    def has_kv_scales(self) -> bool:
        """Whether scales of the KV cache are measured: of INT8 always, of others where weights are quantised too."""
        return self.kv_cache == "int8" or (self.quantises and self.kv_cache != "bf16")

    @property
    def calibrates(self) -> bool:
        """Whether anything is measured on text: static input scales, or scales of the KV cache."""
        measured = self.has_kv_scales or any(number_format(chosen).calibrated for chosen in self.used)
        return measured and not self.passed_through


@dataclass(frozen=True)
class Scale:
    """One kind of scale beside a weight of (output, input) elements."""

    bytes: int
    rows: int | None = None
    """Output elements that share one; None for all."""
    columns: int | None = None
    """Input elements that share one; None for all."""

    def count(self, rows: int, columns: int) -> int:
        """Return the scales of a matrix."""
        return ceil(rows / (self.rows or rows)) * ceil(columns / (self.columns or columns))


@dataclass(frozen=True)
class NumberFormat:
    """The cost of one format; sizes are those of ModelOpt's unified layout."""

    bits: int
    scales: tuple[Scale, ...] = ()
    calibrated: bool = False
    """Whether text has to be run through the model first."""
    modelopt: bool = False
    """Whether NVIDIA ModelOpt does that, since the method looks for more than the largest input."""

    @property
    def block(self) -> int:
        """Input elements that cannot be cut apart, since they share a scale; 1 when any can."""
        shared = [scale.columns for scale in self.scales if scale.columns is not None and scale.rows is not None]
        return max(shared, default=1)

    def bytes(self, elements: int) -> int:
        """Return whole bytes of that many elements, without scales."""
        return ceil(elements * self.bits / 8)


_TENSOR, _ROW, _PRE = Scale(4), Scale(4, rows=1), Scale(2, columns=1)
"""Float32 of a tensor, float32 of an output element, and AWQ's 16-bit factor of an input element.

``int4_wo`` has that factor too, of 1: it goes by AWQ's word, and the loader of that word asks for it.
"""
_BLOCK = Scale(4, rows=128, columns=128)
_GROUP = Scale(4, rows=1, columns=GROUP_SIZE)
FORMATS: Mapping[PartFormat, NumberFormat] = {
    "bf16": NumberFormat(16),
    "fp8": NumberFormat(8, (_TENSOR, _TENSOR), calibrated=True),
    "fp8_rowwise": NumberFormat(8, (_ROW,)),
    "fp8_block": NumberFormat(8, (_BLOCK,)),
    "int8_wo": NumberFormat(8, (_ROW,)),
    "int4_wo": NumberFormat(4, (_GROUP, _PRE)),
    "mxfp8": NumberFormat(8, (Scale(1, rows=1, columns=32),)),
    "nvfp4": NumberFormat(4, (Scale(1, rows=1, columns=16), _TENSOR, _TENSOR), calibrated=True),
    "int4_awq": NumberFormat(4, (_GROUP, _PRE), calibrated=True, modelopt=True),
    "w4a8_awq": NumberFormat(4, (_GROUP, _PRE, _TENSOR, _TENSOR), calibrated=True, modelopt=True),
    "int8_sq": NumberFormat(8, (_ROW, _PRE, _TENSOR), calibrated=True, modelopt=True),
    "mxfp4": NumberFormat(4, (Scale(1, rows=1, columns=32),)),
}
"""By the profile's name; ``bf16`` stands for every 16-bit format. Scales stand weight first, then input."""


def number_format(name: PartFormat, group_size: int | None = None) -> NumberFormat:
    """Return a format, with the given group size where it groups input elements."""
    found = FORMATS[name]
    if name not in GROUPED or group_size is None:
        return found
    regrouped = tuple(replace(scale, columns=group_size) if scale == _GROUP else scale for scale in found.scales)
    return replace(found, scales=regrouped)


_KV: Mapping[KvFormat, float] = {"bf16": 2, "fp8": 1, "int8": 1, "nvfp4": 1 / 2 + 1 / 16}


def kv_element_bytes(name: KvFormat) -> float:
    """Return the bytes of one key or value with its share of a block's scale."""
    return _KV[name]
