"""The named metrics: what each number is, where it is read, and when it cannot be believed. Pure.

A metric looks at one snapshot and answers by subject (a model and its version, or the whole server) with a
``Reading``, or with a ``NoReading`` that says why there is no number to compare. A number that is not finite or
contradicts another one never becomes a ``Reading``, so no rule can find it healthy.

Families and their meaning: custom_metrics_reporter.cc of TensorRT-LLM's Triton backend (``nv_trt_llm_*``) and
metrics.cc of the Triton server (``nv_gpu_*``); ``queued`` and ``heartbeat`` are of trtkit's own model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from trtllm_kit.health.ranges import format_number
from trtllm_kit.health.snapshot import Labels, Measured, NoReading, Reading, Snapshot, Trouble, Unit

REQUESTS = "nv_trt_llm_request_metrics"
KV_BLOCKS = "nv_trt_llm_kv_cache_block_metrics"
BATCHER = "nv_trt_llm_inflight_batcher_metrics"
GENERAL = "nv_trt_llm_general_metrics"
GPU_UTILIZATION = "nv_gpu_utilization"
TYPE_LABEL = {
    REQUESTS: "request_type",
    KV_BLOCKS: "kv_cache_block_type",
    BATCHER: "inflight_batcher_specific_metric",
    GENERAL: "general_type",
}
"""The label that tells the series of one family and model apart."""
WHOLE_SERVER = ""
MAX_AGE_SECONDS = 120.0
"""A value older than this by its own time stamp is stale: four intervals of the slowest exporter known (30 s)."""
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Metric:
    """One named metric."""

    name: str
    unit: Unit
    read: Callable[[Snapshot], Measured]
    summary: str


def kv_cache_usage(snapshot: Snapshot) -> Measured:
    """Read the share of the KV cache blocks in use, 0 to 1: the server's own ``fraction``, else ``used / max``.

    Without blocks there is no share, except before the engine's first step: until then the backend reports zeros.
    """
    steps = engine_steps(snapshot)

    def read(blocks: Mapping[str, float], source: str, subject: str) -> Reading | NoReading:
        known = {name: blocks[name] for name in ("fraction", "used", "free", "max") if name in blocks}
        if known and not any(known.values()) and _is_zero(steps.get(subject)):
            return Reading(0.0, Unit.RATIO, source, detail="no step has been made yet")
        return _kv_cache_usage(known, source)

    return _by_subject(snapshot, KV_BLOCKS, "fraction", read)


def _kv_cache_usage(known: Mapping[str, float], source: str) -> Reading | NoReading:
    if (bad := _unbelievable(known, KV_BLOCKS)) is not None:
        return bad
    for part in ("used", "free"):
        if known.get(part, 0.0) > known.get("max", math.inf):
            return _contradiction(f"{_n(known[part])} blocks {part} of {_n(known['max'])}", KV_BLOCKS)
    if known.get("max") == 0:
        return NoReading(Trouble.MISSING, "the KV cache has 0 blocks, so no share of it is in use", source)
    if "fraction" in known:
        return _ratio(known["fraction"], source)
    if "used" not in known or "max" not in known:
        return NoReading(Trouble.MISSING, "the page has neither fraction nor used and max", source)
    detail = f"{_n(known['used'])} of {_n(known['max'])} blocks"
    series = source.replace('"fraction"', '"used|max"')
    return Reading(known["used"] / known["max"], Unit.RATIO, series, detail=detail)


def queue_depth(snapshot: Snapshot) -> Measured:
    """Count the requests that wait in front of the executor (``queued``; upstream's ``waiting`` is not the queue)."""
    return _by_subject(snapshot, REQUESTS, "queued", _count_of("queued", REQUESTS))


def active_requests(snapshot: Snapshot) -> Measured:
    """Count the requests the executor holds."""
    return _by_subject(snapshot, REQUESTS, "active", _active_requests)


def _active_requests(requests: Mapping[str, float], source: str, subject: str) -> Reading | NoReading:
    reading = _count_of("active", REQUESTS)(requests, source, subject)
    if isinstance(reading, NoReading) or "max" not in requests:
        return reading
    most = requests["max"]
    if reading.value > most:
        return _contradiction(f"{_n(reading.value)} requests active of at most {_n(most)}", REQUESTS)
    return _unbelievable({"max": most}, REQUESTS) or reading


def scheduled_requests(snapshot: Snapshot) -> Measured:
    """Count the requests in the executor's last step."""
    return _by_subject(snapshot, REQUESTS, "scheduled", _count_of("scheduled", REQUESTS))


def paused_requests(snapshot: Snapshot) -> Measured:
    """Count the requests paused to free KV cache blocks."""
    return _by_subject(snapshot, BATCHER, "paused_requests", _count_of("paused_requests", BATCHER))


def gpu_utilization(snapshot: Snapshot) -> Measured:
    """Average the share of time in which a kernel ran, 0 to 1, over all GPUs; the detail has the extremes."""
    values = snapshot.series.get(GPU_UTILIZATION, {})
    if not values:
        return {WHOLE_SERVER: NoReading(Trouble.MISSING, "the page has no such series", GPU_UTILIZATION)}
    for labels, value in sorted(values.items()):
        name = dict(labels).get("gpu_uuid", "a GPU")
        if (bad := _unbelievable({name: value}, GPU_UTILIZATION)) is not None:
            return {WHOLE_SERVER: bad}
        if value > 1 + _ROUNDING:
            return {WHOLE_SERVER: _contradiction(f"{name} is busy {_n(value)} of the time", GPU_UTILIZATION)}
    numbers = list(values.values())
    detail = f"{_n(min(numbers))} to {_n(max(numbers))} over {len(numbers)} GPUs" if len(numbers) > 1 else "1 GPU"
    mean = math.fsum(numbers) / len(numbers)
    reading = Reading(mean, Unit.RATIO, GPU_UTILIZATION, detail=detail)
    return {WHOLE_SERVER: _with_age(reading, snapshot.age_seconds(GPU_UTILIZATION))}


def busy(snapshot: Snapshot) -> bool | NoReading:
    """Whether any model holds a request; when none surely does, the reason why it is not known."""
    measured = active_requests(snapshot).values()
    if any(isinstance(reading, Reading) and reading.value > 0 for reading in measured):
        return True
    return next((reading for reading in measured if isinstance(reading, NoReading)), False)


def engine_steps(snapshot: Snapshot) -> Measured:
    """Read what moves with every step of the engine: ``iteration_counter``, else the ``timestamp`` of the last step."""
    return _by_subject(snapshot, GENERAL, "iteration_counter", _engine_steps)


def _engine_steps(general: Mapping[str, float], source: str, subject: str) -> Reading | NoReading:
    name = "iteration_counter" if "iteration_counter" in general else "timestamp"
    return _count_of(name, GENERAL)(general, source.replace("iteration_counter", name), subject)


def heartbeat(snapshot: Snapshot) -> Measured:
    """Read when each model last renewed its series, seconds since 1970; only trtkit's model says so."""
    return _by_subject(snapshot, GENERAL, "heartbeat", _count_of("heartbeat", GENERAL))


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("kv_cache_usage", Unit.RATIO, kv_cache_usage, "share of the KV cache blocks in use"),
        Metric("queue_depth", Unit.COUNT, queue_depth, "requests waiting in front of the executor"),
        Metric("active_requests", Unit.COUNT, active_requests, "requests the executor holds"),
        Metric("scheduled_requests", Unit.COUNT, scheduled_requests, "requests in the last step"),
        Metric("paused_requests", Unit.COUNT, paused_requests, "requests paused to free KV cache blocks"),
        Metric("gpu_utilization", Unit.RATIO, gpu_utilization, "share of time in which a kernel ran, mean of all GPUs"),
    )
}
"""Every metric a rule may name."""

_Reader = Callable[[Mapping[str, float], str, str], Reading | NoReading]
"""Reads the series of one subject: values by type, the source to name, the subject."""


def _by_subject(snapshot: Snapshot, family: str, wanted: str, read: _Reader) -> Measured:
    """Group a family's series by model and version and read each group; ``wanted`` names the series in the source."""
    label = TYPE_LABEL[family]
    groups: dict[str, dict[str, float]] = {}
    for labels, value in snapshot.series.get(family, {}).items():
        kind, subject = _split(labels, label)
        groups.setdefault(subject, {})[kind] = value
    source = f'{family}{{{label}="{wanted}"}}'
    if not groups:
        return {WHOLE_SERVER: NoReading(Trouble.MISSING, "the page has no such family", source)}
    age = snapshot.age_seconds(family)
    return {subject: _with_age(read(groups[subject], source, subject), age) for subject in sorted(groups)}


def _split(labels: Labels, label: str) -> tuple[str, str]:
    """Return the value of one label, and the other labels' values as the name of the subject."""
    kind = ""
    rest = []
    for name, value in labels:
        if name == label:
            kind = value
        else:
            rest.append(value)
    return kind, "/".join(rest)


def _count_of(name: str, family: str) -> _Reader:
    def read(values: Mapping[str, float], source: str, _: str) -> Reading | NoReading:
        if name not in values:
            return NoReading(Trouble.MISSING, "the page has no such series", source)
        bad = _unbelievable({name: values[name]}, family)
        return bad or Reading(values[name], Unit.COUNT, source)

    return read


def _is_zero(reading: Reading | NoReading | None) -> bool:
    return isinstance(reading, Reading) and reading.value == 0


def _ratio(value: float, source: str) -> Reading | NoReading:
    if value > 1 + _ROUNDING:
        return _contradiction(f"the share in use is {_n(value)}, above 1", source)
    return Reading(value, Unit.RATIO, source)


def _unbelievable(values: Mapping[str, float], source: str) -> NoReading | None:
    """Refuse numbers that are not finite, or negative where only a count or a share can be."""
    for name, value in values.items():
        if not math.isfinite(value):
            return NoReading(Trouble.NOT_A_NUMBER, f"{name} is {value}", source)
        if value < 0:
            return _contradiction(f"{name} is {_n(value)}, below 0", source)
    return None


def _contradiction(reason: str, source: str) -> NoReading:
    return NoReading(Trouble.CONTRADICTING, reason, source)


def _with_age(reading: Reading | NoReading, age_seconds: float) -> Reading | NoReading:
    """Note how old a value is; too old is no reading."""
    if isinstance(reading, NoReading) or not age_seconds:
        return reading
    if age_seconds > MAX_AGE_SECONDS:
        reason = f"the value is {age_seconds:.0f} s old, more than {MAX_AGE_SECONDS:.0f} s"
        return NoReading(Trouble.STALE, reason, reading.source)
    return replace(reading, age_seconds=age_seconds)


_n = format_number
