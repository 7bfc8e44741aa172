"""The ``nv_trt_llm_*`` families on Triton's metrics page, from the runtime's own statistics.

Names and labels are those of TensorRT-LLM's C++ backend, so dashboards and alerts written for it go on working.
``request_type="queued"`` is ours: upstream's ``waiting`` is active minus scheduled, and its queue is not exported.
``general_type="heartbeat"`` is ours too: when this process is gone Triton shows its last numbers for ever.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import triton_python_backend_utils as pb_utils

from lifeline import metric_calls
from runtime import Felt, Finish, Statistics

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

BUCKETS: tuple[float, ...] = (10, 50, 100, 500, 1000)

FELT: tuple[tuple[str, str, str, str, tuple[float, ...]], ...] = (
    (
        "trtllm_time_to_first_token_seconds",
        "Time from a streamed request to its first text",
        "time_to_first_token",
        "first_token",
        (0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0),
    ),
    (
        "trtllm_time_per_output_token_seconds",
        "Time of each token of a stream after its first text",
        "time_per_output_token",
        "each_token",
        (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 1.0, 3.0),
    ),
)
"""Name, description, value of the label ``response_metric_type``, field of ``Felt``, upper bounds in seconds."""


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
            (self._histogram(name, description, value, BUCKETS), attrgetter(source))
            for name, description, value, source in HISTOGRAMS
        ]
        self._felt = [
            (self._histogram(name, description, value, buckets), attrgetter(source))
            for name, description, value, source, buckets in (FELT if extended else ())
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

    def observe(self, finish: Finish, felt: Felt | None = None) -> None:
        """Count an answer's lengths, and of a stream the times that its client felt."""
        with metric_calls():
            for metric, read in self._histograms:
                metric.observe(read(finish))
            for metric, read in self._felt if felt is not None else ():
                seconds = read(felt)
                if seconds is not None:
                    metric.observe(seconds)

    def _histogram(self, name: str, description: str, value: str, buckets: Sequence[float]) -> Any:
        kind, label = pb_utils.MetricFamily.HISTOGRAM, {"response_metric_type": value}
        return self._metric(kind, name, description, label, buckets=list(buckets))

    def _metric(self, kind: Any, name: str, description: str, label: Mapping[str, str], **buckets: Any) -> Any:
        if name not in self._families:
            self._families[name] = pb_utils.MetricFamily(name=name, description=description, kind=kind)
        return self._families[name].Metric(labels={**self._labels, **label}, **buckets)
