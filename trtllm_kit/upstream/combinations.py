"""Combinations of features that a release is known to run badly, or that its own matrix calls untested."""

from __future__ import annotations

from functools import cache
from typing import Literal

from trtllm_kit.upstream.facts import Fact, rows

Name = Literal[
    "block_reuse_with_sliding_window",
    "chunked_prefill_with_pipeline",
    "fp8_kv_cache_with_qwen2",
    "long_rope_beyond_trained_length",
    "nvfp4_kv_cache_without_fp8_weights",
    "nvfp4_kv_cache_without_its_variable",
    "mtp_with_pipeline",
    "eagle3_with_pipeline",
    "ngram_with_pipeline",
    "draft_target_with_pipeline",
    "pard_with_pipeline",
    "sa_with_pipeline",
    "auto_with_pipeline",
    "mtp_with_beams",
    "eagle3_with_beams",
    "ngram_with_beams",
    "draft_target_with_beams",
    "pard_with_beams",
    "sa_with_beams",
    "auto_with_beams",
    "mtp_with_sliding_window",
    "eagle3_with_sliding_window",
    "ngram_with_overlap",
    "draft_target_with_overlap",
    "auto_with_overlap",
    "beams_with_overlap",
    "beams_with_cuda_graphs",
    "host_cache_with_block_reuse",
    "int8_kv_cache_with_block_reuse",
    "fp8_kv_cache_with_w4a8_on_ada",
    "mixed_precision_layers",
    "context_parallel_with_experts",
    "context_parallel_with_padding",
    "context_parallel_with_pytorch",
]


class Combination(Fact):
    """Two things that should not be used together in a range of releases."""

    name: Name
    note: str
    """What is known of them, as the end of a sentence that begins with the two."""
    capability: int | None = None
    """The one compute capability, times ten, that it is known of; None for all."""


def combination(name: Name, version: str) -> Combination | None:
    """Return what speaks against a combination in that release, or None when nothing is known to."""
    return next((row.seen_from(version) for row in _rows() if row.name == name and row.holds(version)), None)


def speculation_with(kind: str, feature: str, version: str) -> Combination | None:
    """Return what speaks against a kind of speculation beside a feature (``pipeline``, ``beams``, ...), or None."""
    found = (row.seen_from(version) for row in _rows() if row.name == f"{kind}_with_{feature}" and row.holds(version))
    return next(found, None)


@cache
def _rows() -> tuple[Combination, ...]:
    return rows("combinations", "combinations", Combination)
