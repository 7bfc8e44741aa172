"""Asked, default, effective: what a release makes of the plan's settings without a word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import trtllm_kit.plan.effective as module
from tests.support.specs import hardware, llama_8b, profile
from trtllm_kit.plan.effective import Effective, effective
from trtllm_kit.plan.settle import settle
from trtllm_kit.upstream.rewrites import rewrites

AUTO = {"speculation.kind": "auto", "speculation.draft_tokens": 7}
NGRAM = {"speculation": {"kind": "ngram", "draft_tokens": 7}}
GATE = {"speculation": {"kind": "ngram", "draft_tokens": 3, "acceptance_threshold": 0.6, "acceptance_window": 32}}
INT8 = {"quantization.weights": "int8_wo", "quantization.kv_cache": "int8"}
FP8_CACHE = {"quantization.weights": "int4_wo", "quantization.kv_cache": "fp8"}
ENGINE = {"toolchain": "trtllm-build"}


def rows(release: str, changes: dict[str, Any] | None = None, memory: float = 80.0) -> dict[str, Effective]:
    """Plan 8B and return the settings that become others, by key and effective value."""
    loaded = profile({"trtllm_version": release} | (changes or {}))
    plan = settle(llama_8b(), loaded, hardware(1, memory))
    return {f"{row.key} {row.effective}": row for row in effective(plan, loaded)}


@pytest.mark.parametrize(
    ("changes", "key", "since", "until"),
    [
        (NGRAM | ENGINE, "limits.max_seq_len 4103", "0.16.0", "main"),
        (ENGINE | {"limits.max_batch_size": 1}, "limits.max_num_tokens 4096", "0.12.0", "main"),
        (ENGINE | {"limits.max_num_tokens": 16}, "limits.max_num_tokens 32", "0.21.0", "main"),
        (NGRAM | ENGINE | {"limits.max_batch_size": 2048}, "limits.max_num_tokens 16384", "1.2.1", "main"),
        (ENGINE, "kv_cache.enable_block_reuse false unless --use_paged_context_fmha enable", "0.18.2", "0.19.0"),
        (ENGINE | INT8, "kv_cache.enable_block_reuse false", "0.19.0", "0.16.0"),
        (ENGINE | FP8_CACHE, "scheduler.chunked_prefill false", "1.2.1", "0.16.0"),
        (NGRAM, "engine.overlap_scheduler false", "1.2.1", "1.4.0rc0"),
        ({"speculation": {"kind": "mtp", "draft_tokens": 1}}, "speculation.draft_tokens 1", "1.1.0", "1.0.0"),
        (AUTO, "engine.overlap_scheduler false", "1.0.0", "1.4.0rc0"),
        (GATE, "speculation.acceptance_threshold off until the server is started again", "1.2.1", "1.1.0"),
        ({}, "limits.max_batch_size 32", "1.0.0", "1.1.0"),
        ({}, "kv_cache.free_gpu_memory_fraction 0.9 of what the first pass leaves", "1.1.0", "0.21.0"),
    ],
)  # fmt: skip
def test_a_release_changes_a_setting_and_another_does_not(
    changes: dict[str, Any], key: str, since: str, until: str
) -> None:
    """The effective value stands under the release that makes it so, and not under one that does not."""
    assert key in rows(since, changes)
    other = {**changes, "toolchain": "llm-api"} if until == "main" and "toolchain" in changes else changes
    assert key not in rows(until, other)


@pytest.mark.parametrize(("batch", "tokens"), [(4, "5"), (5, "3")])
def test_the_draft_length_that_auto_takes_stands_beside_the_asked_one(batch: int, tokens: str) -> None:
    """AUTO drafts 5 tokens up to a batch of 4 and 3 beyond it, whatever the profile asks."""
    found = rows("1.2.1", AUTO | {"limits.max_batch_size": batch})[f"speculation.draft_tokens {tokens}"]
    assert ("7", "near") == (found.asked, found.certainty)


def test_requests_that_are_served_one_after_another_are_counted() -> None:
    """Without max_tokens each request reserves max_seq_len: of 32 slots those run that the cache holds whole."""
    key = "limits.max_batch_size"
    few = rows("1.2.1", {"limits.max_seq_len": 32768}, 24)
    found = [row.effective for row in few.values() if row.key == key]
    assert ["1 at once without max_tokens in the request (32,768 tokens reserved for each)"] == found
    assert [] == [row for row in rows("1.2.1", {"limits.max_seq_len": 2048}).values() if row.key == key]


def test_asked_and_default_stand_beside_the_effective_value() -> None:
    """What the profile sets is asked; what it leaves has only a default."""
    asked = rows("1.1.0", {"kv_cache.free_gpu_memory_fraction": 0.8})
    left = rows("1.1.0")
    key = "kv_cache.free_gpu_memory_fraction {} of what the first pass leaves"
    assert ("0.8", "0.9") == (asked[key.format("0.8")].asked, asked[key.format("0.8")].default)
    assert (None, "0.9") == (left[key.format("0.9")].asked, left[key.format("0.9")].default)


def test_every_row_of_the_table_is_asked_for() -> None:
    """No rewrite stands in the table that the report never shows."""
    source = Path(str(module.__file__)).read_text("utf-8")
    assert [] == sorted({row.name for row in rewrites() if f'"{row.name}"' not in source})
