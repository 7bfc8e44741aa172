"""The named metrics: what each number is, where it is read, and when it cannot be believed. Pure.

A metric looks at one snapshot and answers by subject (a model and its version, or the whole server) with a
``Reading``, or with a ``NoReading`` that says why there is no number to compare. A number that is not finite or
contradicts another one never becomes a ``Reading``, so no rule can find it healthy.

Families and their meaning: custom_metrics_reporter.cc of TensorRT-LLM's Triton backend (``nv_trt_llm_*``) and
metrics.cc of the Triton server (``nv_gpu_*``); ``queued`` and ``heartbeat`` are of trtkit's own model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from trtllm_kit.health import gpus
from trtllm_kit.health.families import (
    BATCHER,
    GENERAL,
    KV_BLOCKS,
    REQUESTS,
    TYPE_LABEL,
    read_elsewhere,
    waiting_for_ensemble,
)
from trtllm_kit.health.ranges import format_number
from trtllm_kit.health.snapshot import Labels, Measured, NoReading, Reading, Snapshot, Trouble, Unit, once
from trtllm_kit.light import dataclass

GPU_UTILIZATION = gpus.UTILIZATION[0][0]
WHOLE_SERVER = gpus.WHOLE_SERVER
MAX_AGE_SECONDS = 120.0
"""A value older than this by its own time stamp is stale: four intervals of the slowest exporter known (30 s)."""
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Metric:
    """One named metric."""

    name: str
    unit: Unit
    read: Callable[[Snapshot], Measured]
    summary: str


@once
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


@once
def queue_depth(snapshot: Snapshot) -> Measured:
    """Count the requests that wait in front of the executor (``queued``; upstream's ``waiting`` is not the queue).

    Upstream's backend exports none; behind an ensemble it is what the ensemble has in flight less what is active.
    """
    held = waiting_for_ensemble(snapshot)

    def read(requests: Mapping[str, float], source: str, subject: str) -> Reading | NoReading:
        if "queued" in requests or held is None or "active" not in requests:
            return _count_of("queued", REQUESTS)(requests, source, subject)
        active = _active_requests(requests, source, subject)
        if isinstance(active, NoReading):
            return active
        detail = f"{_n(held)} in flight less {_n(active.value)} active"
        return Reading(max(0.0, held - active.value), Unit.COUNT, "nv_inference_request_success", detail=detail)

    return _by_subject(snapshot, REQUESTS, "queued", read)


@once
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


@once
def scheduled_requests(snapshot: Snapshot) -> Measured:
    """Count the requests in the executor's last step."""
    return _by_subject(snapshot, REQUESTS, "scheduled", _count_of("scheduled", REQUESTS))


@once
def paused_requests(snapshot: Snapshot) -> Measured:
    """Count the requests paused to free KV cache blocks."""
    return _by_subject(snapshot, BATCHER, "paused_requests", _count_of("paused_requests", BATCHER))


@once
def slots_usage(snapshot: Snapshot) -> Measured:
    """Read the requests the executor holds over the most it may hold: at 1 every further one waits, seen or not."""
    return _by_subject(snapshot, REQUESTS, "active|max", _slots_usage)


def _slots_usage(requests: Mapping[str, float], source: str, subject: str) -> Reading | NoReading:
    active = _active_requests(requests, source, subject)
    most = requests.get("max")
    if isinstance(active, NoReading):
        return active
    if not most:
        return NoReading(Trouble.MISSING, "how many it may hold is not known", source)
    return Reading(active.value / most, Unit.RATIO, source, detail=f"{_n(active.value)} of {_n(most)}")


def _of_gpus(read: Callable[[Snapshot], Measured]) -> Callable[[Snapshot], Measured]:
    """Note the age of what is read of GPUs."""

    @once
    def aged(snapshot: Snapshot) -> Measured:
        return {gpu: with_age_of(snapshot, one, one.source.split("|")) for gpu, one in read(snapshot).items()}

    return aged


def busy(snapshot: Snapshot) -> bool | NoReading:
    """Whether any model holds a request; when none surely does, the reason why it is not known."""
    measured = active_requests(snapshot).values()
    if any(isinstance(reading, Reading) and reading.value > 0 for reading in measured):
        return True
    return next((reading for reading in measured if isinstance(reading, NoReading)), False)


@once
def engine_steps(snapshot: Snapshot) -> Measured:
    """Read what moves with every step of the engine: ``iteration_counter``, else the ``timestamp`` of the last step."""
    return _by_subject(snapshot, GENERAL, "iteration_counter", _engine_steps)


def _engine_steps(general: Mapping[str, float], source: str, subject: str) -> Reading | NoReading:
    name = "iteration_counter" if "iteration_counter" in general else "timestamp"
    return _count_of(name, GENERAL)(general, source.replace("iteration_counter", name), subject)


@once
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
        Metric("slots_usage", Unit.RATIO, slots_usage, "requests the executor holds over the most it may hold"),
        *(Metric(name, unit, _of_gpus(read), what) for name, (unit, read, what) in gpus.READERS.items()),
    )
}
"""Every metric a rule may name."""

_Reader = Callable[[Mapping[str, float], str, str], Reading | NoReading]
"""Reads the series of one subject: values by type, the source to name, the subject."""


def _by_subject(snapshot: Snapshot, family: str, wanted: str, read: _Reader) -> Measured:
    """Group a family's series by model and version and read each group; ``wanted`` names the series in the source.

    A server without that family may be another one, whose families tell the same of its one model.
    """
    source = f'{family}{{{TYPE_LABEL[family]}="{wanted}"}}'
    groups = _GROUPS[family](snapshot)
    if not groups:
        other = read_elsewhere(snapshot, family)
        if other is None:
            return {WHOLE_SERVER: NoReading(Trouble.MISSING, "the page has no such family", source)}
        names, families = other
        source = "|".join(families[kind] for kind in wanted.split("|") if kind in families) or source
        found = with_age_of(snapshot, read(names, source, WHOLE_SERVER), list(families.values()))
        return {WHOLE_SERVER: found}
    age = snapshot.age_seconds(family)
    return {subject: _with_age(read(groups[subject], source, subject), age) for subject in groups}


def _groups_of(family: str) -> Callable[[Snapshot], Mapping[str, Mapping[str, float]]]:
    """Return what groups a family: values by type of each model and version, in their order."""
    label = TYPE_LABEL[family]

    @once
    def groups(snapshot: Snapshot) -> Mapping[str, Mapping[str, float]]:
        found: dict[str, dict[str, float]] = {}
        for labels, value in snapshot.series.get(family, {}).items():
            kind, subject = _split(labels, label)
            found.setdefault(subject, {})[kind] = value
        return dict(sorted(found.items()))

    return groups


_GROUPS = {family: _groups_of(family) for family in TYPE_LABEL}


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


def with_age_of(snapshot: Snapshot, reading: Reading | NoReading, families: Sequence[str]) -> Reading | NoReading:
    """Note how old what was read of some families is, by the oldest; too old is no reading."""
    return _with_age(reading, max(map(snapshot.age_seconds, families), default=0.0))


def _with_age(reading: Reading | NoReading, age_seconds: float) -> Reading | NoReading:
    """Note how old a value is; too old is no reading."""
    if isinstance(reading, NoReading) or not age_seconds:
        return reading
    if age_seconds > MAX_AGE_SECONDS:
        reason = f"the value is {age_seconds:.0f} s old, more than {MAX_AGE_SECONDS:.0f} s"
        return NoReading(Trouble.STALE, reason, reading.source)
    return replace(reading, age_seconds=age_seconds)


_n = format_number
