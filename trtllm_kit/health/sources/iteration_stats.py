"""The iteration records that trtllm-serve hands out at ``/metrics``, each once, as families of its Prometheus page.

Source: the records of commands/trtllm-serve and the executor's statistics, releases 1.0 to main. The newest record
tells what is now, and the counters in it are sums since the start. The page is drained by whoever reads it first: give
each reader but one the Prometheus page instead.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from trtllm_kit.health.snapshot import Labels, Snapshot

Families = dict[str, dict[Labels, float]]
_NONE: Labels = ()
_FIELDS = {
    "trtllm_num_requests_running": ("numActiveRequests",),
    "trtllm_num_requests_waiting": ("numQueuedRequests",),
    "trtllm_max_num_active_requests": ("maxNumActiveRequests",),
    "trtllm_kv_cache_max_blocks": ("kvCacheStats", "maxNumBlocks"),
    "trtllm_kv_cache_free_blocks": ("kvCacheStats", "freeNumBlocks"),
    "trtllm_kv_cache_used_blocks": ("kvCacheStats", "usedNumBlocks"),
    "trtllm_num_scheduled_requests": ("inflightBatchingStats", "numScheduledRequests"),
    "trtllm_num_paused_requests": ("inflightBatchingStats", "numPausedRequests"),
    "trtllm_kv_cache_reused_blocks_total": ("kvCacheStats", "reusedBlocks"),
    "trtllm_kv_cache_missed_blocks_total": ("kvCacheStats", "missedBlocks"),
    "trtkit_iterations_total": ("iter",),
}
"""Families, and where a record has their number."""


def kept_records(before: Snapshot) -> tuple[Families, Families]:
    """Return what an earlier sample knew of the iterations, and when that was so, seconds since 1970.

    An idle engine makes none, so what was true of it still is. Of a busy one the numbers grow old.
    """
    kept = {name: dict(before.series[name]) for name in _FIELDS if name in before.series}
    if not any(kept.get("trtllm_num_requests_running", {}).values()):
        return kept, {}
    stamps = {
        name: before.timestamps.get(name) or dict.fromkeys(values, before.wall_seconds) for name, values in kept.items()
    }
    return kept, {name: dict(values) for name, values in stamps.items()}


def read_records(body: bytes) -> tuple[Families, str]:
    """Return the newest record as families, and what is wrong with the body; an empty list is neither."""
    try:
        records = json.loads(body)
    except (ValueError, RecursionError):
        return {}, "the answer begins like a list of iterations and is no JSON"
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        return {}, "the answer is no list of iterations"
    if not records:
        return {}, ""
    found: Families = {}
    for family, path in _FIELDS.items():
        value = _at(records[-1], path)
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[family] = {_NONE: _number(value)}
    return (found, "") if found else ({}, "the records of iterations hold none of the known numbers")


def _number(value: float) -> float:
    """Return an integer beyond all floats as infinite, which nobody believes."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _at(record: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = record
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value
