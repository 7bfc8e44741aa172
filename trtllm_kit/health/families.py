"""The families that tell the same thing on different servers: Triton's backend, trtllm-serve, Dynamo. Pure.

trtllm-serve and Dynamo report one number a family where Triton's backend has one family with types; here each family of
the backend is put together from what another server shows. Sources: custom_metrics_reporter.cc of the Triton backend,
tensorrt_llm/metrics/collector.py, Dynamo's frontend metrics; ``sources.iteration_stats`` uses the same names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from trtllm_kit.health.snapshot import Snapshot

REQUESTS = "nv_trt_llm_request_metrics"
KV_BLOCKS = "nv_trt_llm_kv_cache_block_metrics"
BATCHER = "nv_trt_llm_inflight_batcher_metrics"
GENERAL = "nv_trt_llm_general_metrics"
TYPE_LABEL = {
    REQUESTS: "request_type",
    KV_BLOCKS: "kv_cache_block_type",
    BATCHER: "inflight_batcher_specific_metric",
    GENERAL: "general_type",
}
"""The label that tells the series of one family and model apart."""
SUCCESS, FAILURE = "nv_inference_request_success", "nv_inference_request_failure"

ELSEWHERE: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    REQUESTS: {
        "active": ("trtllm_num_requests_running", "dynamo_frontend_inflight_requests"),
        "max": ("trtllm_max_num_active_requests",),
        "queued": ("trtllm_num_requests_waiting", "dynamo_frontend_queued_requests"),
        "scheduled": ("trtllm_num_scheduled_requests",),
    },
    KV_BLOCKS: {
        "max": ("trtllm_kv_cache_max_blocks",),
        "used": ("trtllm_kv_cache_used_blocks",),
        "free": ("trtllm_kv_cache_free_blocks",),
        "fraction": ("trtllm_kv_cache_utilization",),
    },
    BATCHER: {"paused_requests": ("trtllm_num_paused_requests",)},
    GENERAL: {"iteration_counter": ("trtkit_iterations_total",)},
}
"""Types of each family, and the families that have the same number on other servers."""


def read_elsewhere(snapshot: Snapshot, family: str) -> tuple[dict[str, float], dict[str, str]] | None:
    """Return what other servers' families say of the types of one family, and which say it; None when none does.

    Counts of several engines behind one page add up; of shares the largest stands for all.
    """
    values: dict[str, float] = {}
    families: dict[str, str] = {}
    for kind, names in ELSEWHERE[family].items():
        for name in names:
            series = snapshot.series.get(name)
            if series and kind not in values:
                numbers = list(series.values())
                values[kind] = _largest(numbers) if kind == "fraction" else math.fsum(numbers)
                families[kind] = name
    return (values, families) if values else None


def _largest(numbers: list[float]) -> float:
    return next((number for number in numbers if math.isnan(number)), max(numbers))


def waiting_for_ensemble(snapshot: Snapshot) -> float | None:
    """Count the requests between the ensemble's beginning and its end; None where there is no such ensemble.

    Triton counts a request of the first model as it begins, and one of the ensemble as it ends.
    """
    begun, ended = _of_model(snapshot, SUCCESS, "preprocessing"), _of_model(snapshot, SUCCESS, "ensemble")
    if begun is None or ended is None:
        return None
    return max(0.0, begun - ended - (_of_model(snapshot, FAILURE, "ensemble") or 0.0))


def _of_model(snapshot: Snapshot, family: str, model: str) -> float | None:
    numbers = [value for labels, value in snapshot.series.get(family, {}).items() if ("model", model) in labels]
    total = math.fsum(numbers)
    return total if numbers and math.isfinite(total) else None
