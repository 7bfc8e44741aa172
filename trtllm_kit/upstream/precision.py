"""Which number formats a GPU computes in, by release."""

from __future__ import annotations

from functools import cache
from typing import Literal

from trtllm_kit.upstream.facts import Fact, rows
from trtllm_kit.upstream.quant_algos import Layout

Part = Literal["weights", "kv_cache"]


class Precision(Fact):
    """The GPUs on which a release takes a format for weights or for the KV cache."""

    part: Part
    format: str
    capabilities: tuple[int, ...]
    """Compute capability, major times ten plus minor."""
    layout: Layout | None = None
    """The layout of checkpoint it holds for; None for both."""

    def is_of(self, part: Part, layout: Layout) -> bool:
        """Whether the row speaks of that part in that layout."""
        return self.part == part and self.layout in (None, layout)


def precision(part: Part, number_format: str, version: str, layout: Layout = "unified_hf") -> Precision | None:
    """Return where that release takes the format, or None when it does not take it at all."""
    wanted = (row for row in _rows() if row.is_of(part, layout) and row.format == number_format)
    return next((row.seen_from(version) for row in wanted if row.holds(version)), None)


def formats_for(part: Part, capability: int, version: str, layout: Layout = "unified_hf") -> tuple[str, ...]:
    """Return the formats a GPU can take for weights or KV cache, in the order of the table."""
    held = (row for row in _rows() if row.is_of(part, layout) and row.holds(version))
    return tuple(row.format for row in held if capability in row.capabilities)


@cache
def _rows() -> tuple[Precision, ...]:
    return rows("precision", "precision", Precision)
