"""Combinations of features that a release is known to run badly, or that its own matrix calls untested."""

from __future__ import annotations

from functools import cache
from typing import Literal

from trtllm_kit.upstream.facts import Fact, rows

Name = Literal["block_reuse_with_sliding_window", "chunked_prefill_with_pipeline", "fp8_kv_cache_with_qwen2"]


class Combination(Fact):
    """Two things that should not be used together in a range of releases."""

    name: Name
    note: str
    """What is known of them, as the end of a sentence that begins with the two."""


def combination(name: Name, version: str) -> Combination | None:
    """Return what speaks against a combination in that release, or None when nothing is known to."""
    return next((row.seen_from(version) for row in _rows() if row.name == name and row.holds(version)), None)


@cache
def _rows() -> tuple[Combination, ...]:
    return rows("combinations", "combinations", Combination)
