"""Single numbers that the engine keeps to, or beyond which it was seen to fail."""

from __future__ import annotations

from functools import cache
from typing import Literal

from trtllm_kit.upstream.facts import Fact, rows

Name = Literal[
    "block_priority", "head_size_step", "beam_width", "free_gpu_memory_fraction", "nvfp4_input_step",
    "vocabulary_padding", "weight_only_row_bytes", "int8_expert_step",
]  # fmt: skip


class Bound(Fact):
    """One number and how well it is known."""

    name: Name
    value: float


@cache
def bound(name: Name) -> Bound:
    """Return a bound by its name."""
    return next(row for row in rows("bounds", "bounds", Bound) if row.name == name)
