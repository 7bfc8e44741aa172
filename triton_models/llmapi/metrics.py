"""The ``nv_trt_llm_*`` families on Triton's metrics page, from the runtime's own statistics.

Names and labels are those of TensorRT-LLM's C++ backend, so dashboards and alerts written for it go on working.
``request_type="queued"`` is ours: upstream's ``waiting`` is active minus scheduled, and its queue is not exported.
``general_type="heartbeat"`` is ours too: when this process is gone Triton shows its last numbers for ever.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import triton_python_backend_utils as pb_utils

from lifeline import metric_calls
from runtime import Finish, Statistics

Family = tuple[str, str, str, Mapping[str, str]]
"""Name, description, label, and for each value of the label the field of ``Statistics`` that it shows."""

GAUGES: tuple[Family, ...] = (
    (
        "nv_trt_llm_request_metrics",
        "TRT LLM request metrics",
        "request_type",
        {
            "active": "active",
            "max": "max_active",
            "scheduled": "scheduled",
            "context": "context",
            "waiting": "waiting",
            "queued": "queued",
        },
    ),
    (
        "nv_trt_llm_runtime_memory_metrics",
        "TRT LLM runtime memory metrics",
        "memory_type",
        {"cpu": "cpu_bytes", "gpu": "gpu_bytes", "pinned": "pinned_bytes"},
    ),
    (
        "nv_trt_llm_kv_cache_block_metrics",
        "TRT LLM KV cache block metrics",
        "kv_cache_block_type",
        {
            "max": "kv_max_blocks",
            "free": "kv_free_blocks",
            "used": "kv_used_blocks",
            "tokens_per": "tokens_per_block",
            "reused": "kv_reused_blocks",
            "fraction": "kv_fraction",
        },
    ),
    (
        "nv_trt_llm_inflight_batcher_metrics",
        "TRT LLM inflight_batcher-specific metrics",
        "inflight_batcher_specific_metric",
        {
            "total_context_tokens": "context_tokens",
            "generation_requests": "generation_requests",
            "micro_batch_id": "micro_batch_id",
            "paused_requests": "paused",
        },
    ),
    (
        "nv_trt_llm_general_metrics",
        "General TRT LLM metrics",
        "general_type",
        {"timestamp": "timestamp_us", "iteration_counter": "iteration"},
    ),
)

OWN = ("queued",)
"""Label values of those families that upstream's backend does not have."""

HEARTBEAT = ("nv_trt_llm_general_metrics", "General TRT LLM metrics", "general_type", "heartbeat")
"""Name, description, label and its value: when the series were last renewed, in seconds since 1970."""

COUNTERS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    (
        "nv_trt_llm_disaggregated_serving_metrics",
        "TRT LLM disaggregated serving metrics",
        "disaggregated_serving_type",
        ("kv_cache_transfer_ms", "request_count"),
    ),
)
"""Stay at 0, as upstream's do in a server that is not disaggregated."""

GROWING: tuple[tuple[str, str, str, str, str], ...] = (
    (
        "trtllm_spec_decode_num_draft_tokens_total",
        "Tokens drafted by speculative decoding",
        "speculation",
        "drafted",
        "drafted_tokens",
    ),
    (
        "trtllm_spec_decode_num_accepted_tokens_total",
        "Drafted tokens that the model accepted",
        "speculation",
        "accepted",
        "accepted_tokens",
    ),
)
"""Name, description, label, its value, and the field of ``Statistics`` that counts from the start."""

HISTOGRAMS: tuple[tuple[str, str, str, str], ...] = (
    ("nv_llm_input_token_len", "LLM input token length", "total_input_tokens", "prompt_tokens"),
    ("nv_llm_output_token_len", "LLM output token length", "total_output_tokens", "output_tokens"),
)
"""Name, description, value of the label ``response_metric_type``, field of ``Finish``."""

BUCKETS = (10, 50, 100, 500, 1000)


class Metrics:
    """The families of one model. A call costs some 44 µs for each series, so update a few times a second."""

    def __init__(self, model: str, version: str, *, extended: bool = True) -> None:
        """Make every series; ``extended`` those too that upstream's C++ backend does not have."""
        family = pb_utils.MetricFamily
        self._labels = {"model": model, "version": version}
        self._families: dict[str, Any] = {}  # kept: a family must outlive its metrics
        self._gauges = [
            (self._metric(family.GAUGE, name, description, {label: value}), attrgetter(source))
            for name, description, label, values in GAUGES
            for value, source in values.items()
            if extended or value not in OWN
        ]
        name, description, label, value = HEARTBEAT
        self._heartbeat = self._metric(family.GAUGE, name, description, {label: value}) if extended else None
        self._counters = [
            self._metric(family.COUNTER, name, description, {label: value})
            for name, description, label, values in COUNTERS
            for value in values
        ]
        self._growing = [
            [self._metric(family.COUNTER, name, description, {label: value}), attrgetter(source), 0]
            for name, description, label, value, source in (GROWING if extended else ())
        ]
        self._histograms = [
            (self._metric(family.HISTOGRAM, name, description, {"response_metric_type": value}), attrgetter(source))
            for name, description, value, source in HISTOGRAMS
        ]

    def update(self, statistics: Statistics | None) -> None:
        """Show the executor's state; not a number when nothing is known, for an engine that ended is not idle.

        The heartbeat tells that this is being done: it moves with every call, whatever became of the engine.
        """
        with metric_calls():
            for metric, read in self._gauges:
                metric.set(math.nan if statistics is None else read(statistics))
            if self._heartbeat is not None:
                self._heartbeat.set(time.time())
            for row in self._growing if statistics is not None else ():
                metric, read, before = row
                row[2] = max(before, read(statistics))
                if row[2] > before:
                    metric.increment(row[2] - before)

    def observe(self, finish: Finish) -> None:
        """Count an answer's lengths."""
        with metric_calls():
            for metric, read in self._histograms:
                metric.observe(read(finish))

    def _metric(self, kind: Any, name: str, description: str, label: Mapping[str, str]) -> Any:
        if name not in self._families:
            self._families[name] = pb_utils.MetricFamily(name=name, description=description, kind=kind)
        buckets = {"buckets": list(BUCKETS)} if kind == pb_utils.MetricFamily.HISTOGRAM else {}
        return self._families[name].Metric(labels={**self._labels, **label}, **buckets)
