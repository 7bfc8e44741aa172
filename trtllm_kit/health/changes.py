"""The named metrics that compare two moments: counters, histograms, what a sticky number does. Pure.

Each has a tally, a few numbers of one snapshot by subject, which is small enough to be kept between runs, and a
function from an earlier and a later tally to a reading. A counter that fell tells of a restart, and nothing is read
across it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from trtllm_kit.health import gpus
from trtllm_kit.health.ranges import format_number
from trtllm_kit.health.snapshot import NoReading, Reading, Snapshot, Trouble, Unit, once
from trtllm_kit.light import dataclass

Tally = tuple[float, ...]
"""Numbers of one subject at one moment; of a histogram: count, sum, then bound and count of each bucket."""
Tallies = Mapping[str, Tally]

LEAST_DRAFTED = 100
"""Drafted tokens below which an acceptance is chance."""
LEAST_BLOCKS = 100
LEAST_REQUESTS = 20
"""Observations below which a quantile is chance."""
APPLICATION_XIDS = frozenset((13, 31, 43, 45, 68, 109))
"""Faults of a program, not of the GPU: the list that NVIDIA's device plugin for Kubernetes ignores."""
LEAST_WAITING = 1.0
"""Mean number of waiting requests below which a ratio to the compute time means nothing: a burst waits for a moment,
and a decoupled model's compute time is only that of taking requests over."""
LEAST_QUEUE_SECONDS = 240.0
"""Seconds below which a queue is a moment: it is judged over five minutes."""
_n = format_number


@dataclass(frozen=True)
class Change:
    """One named metric of two moments."""

    name: str
    unit: Unit
    count: Callable[[Snapshot], Tallies]
    between: Callable[[Tally, Tally, float], Reading | NoReading]
    """Takes the earlier tally, the later one and the seconds between."""
    families: tuple[str, ...]
    """Where it is read, the first one there is."""
    summary: str
    grows: bool = True
    """Whether its numbers only grow while the server runs."""
    baseline: bool = False
    """Whether a rule compares how far it is from its own mean over a day, as a share of that."""


def _sum_of(families: Sequence[str], snapshot: Snapshot) -> float | None:
    """Add up the series of the first family that is there."""
    for name in families:
        values = snapshot.series.get(name)
        if values:
            return math.fsum(values.values())
    return None


def _pair(first: Sequence[str], second: Sequence[str]) -> Callable[[Snapshot], Tallies]:
    """Count two sums of the whole server."""

    @once
    def count(snapshot: Snapshot) -> Tallies:
        one, other = _sum_of(first, snapshot), _sum_of(second, snapshot)
        return {} if one is None or other is None else {gpus.WHOLE_SERVER: (one, other)}

    return count


_DRAFTED: tuple[str, ...] = ("trtllm_spec_decode_num_draft_tokens_total", "trtllm_spec_decode_num_draft_tokens")
_DRAFTED += ("trtllm_spec_decode_drafted_tokens_total",)
_ACCEPTED: tuple[str, ...] = ("trtllm_spec_decode_num_accepted_tokens_total", "trtllm_spec_decode_num_accepted_tokens")
_ACCEPTED += ("trtllm_spec_decode_accepted_tokens_total",)
_REUSED, _MISSED = ("trtllm_kv_cache_reused_blocks_total",), ("trtllm_kv_cache_missed_blocks_total",)


def _acceptance(before: Tally, after: Tally, _seconds: float) -> Reading | NoReading:
    """Divide accepted by drafted tokens."""
    drafted, accepted = after[0] - before[0], after[1] - before[1]
    if drafted < LEAST_DRAFTED:
        return NoReading(Trouble.QUIET, f"{_n(drafted)} tokens drafted, {LEAST_DRAFTED} tell", _DRAFTED[0])
    if accepted > drafted:
        reason = f"{_n(accepted)} tokens accepted of {_n(drafted)} drafted"
        return NoReading(Trouble.CONTRADICTING, reason, _ACCEPTED[0])
    detail = f"{_n(accepted)} of {_n(drafted)} tokens"
    return Reading(accepted / drafted, Unit.RATIO, _ACCEPTED[0], detail=detail)


def _reuse(before: Tally, after: Tally, _seconds: float) -> Reading | NoReading:
    """Divide the reused blocks of the KV cache by those looked for."""
    reused, missed = after[0] - before[0], after[1] - before[1]
    if reused + missed < LEAST_BLOCKS:
        return NoReading(Trouble.QUIET, f"{_n(reused + missed)} blocks looked for, {LEAST_BLOCKS} tell", _REUSED[0])
    detail = f"{_n(reused)} of {_n(reused + missed)} blocks"
    return Reading(reused / (reused + missed), Unit.RATIO, _REUSED[0], detail=detail)


TTFT = ("trtllm_time_to_first_token_seconds", "nv_inference_first_response_histogram_ms")
"""Of what is on Triton's page; the engine's own first, for Triton's counts a whole answer as a first response."""
_TTFT = (*TTFT, "dynamo_frontend_time_to_first_token_seconds")
_TOKEN_GAP = ("trtllm_time_per_output_token_seconds", "dynamo_frontend_inter_token_latency_seconds")


def _histogram(families: Sequence[str]) -> Callable[[Snapshot], Tallies]:
    """Count a histogram of the whole server, seconds; series of several models are added up."""

    @once
    def count(snapshot: Snapshot) -> Tallies:
        for name in families:
            counts, sums = snapshot.series.get(f"{name}_count"), snapshot.series.get(f"{name}_sum")
            if counts and sums:
                scale = 1e-3 if name.endswith("_ms") else 1.0
                bounds = _buckets(snapshot, f"{name}_bucket")
                flat = [number for bound in sorted(bounds) for number in (bound * scale, bounds[bound])]
                return {gpus.WHOLE_SERVER: (math.fsum(counts.values()), math.fsum(sums.values()) * scale, *flat)}
        return {}

    return count


def _buckets(snapshot: Snapshot, family: str) -> dict[float, float]:
    found: dict[float, float] = {}
    for labels, value in snapshot.series.get(family, {}).items():
        try:
            bound = float(dict(labels).get("le", ""))
        except ValueError:
            continue
        if math.isfinite(bound):
            found[bound] = found.get(bound, 0.0) + value
    return found


def _mean(before: Tally, after: Tally, _seconds: float) -> Reading | NoReading:
    """Divide the seconds by the requests."""
    requests = after[0] - before[0]
    if requests < LEAST_REQUESTS:
        return _too_few(requests, _TTFT[0])
    mean = (after[1] - before[1]) / requests
    return Reading(mean, Unit.SECONDS, _TTFT[0], detail=f"mean of {_n(requests)} requests {_n(mean)} s")


def _too_few(requests: float, source: str) -> NoReading:
    return NoReading(Trouble.QUIET, f"{_n(requests)} observations, {LEAST_REQUESTS} tell", source)


def _tail(before: Tally, after: Tally, _seconds: float) -> Reading | NoReading:
    """Divide the 99th percentile by the median."""
    if after[0] - before[0] < LEAST_REQUESTS:
        return _too_few(after[0] - before[0], _TTFT[0])
    middle, late = _quantile(before, after, 0.5), _quantile(before, after, 0.99)
    if middle is None or late is None or middle <= 0:
        return NoReading(Trouble.MISSING, "its buckets do not bound it", _TTFT[0])
    detail = f"p99 {_n(late)} s, p50 {_n(middle)} s"
    return Reading(late / middle, Unit.FACTOR, _TTFT[0], detail=detail)


def _gap(before: Tally, after: Tally, _seconds: float) -> Reading | NoReading:
    """Read the 99th percentile of the time between two tokens, seconds."""
    gaps = after[0] - before[0]
    if gaps < LEAST_REQUESTS:
        return _too_few(gaps, _TOKEN_GAP[0])
    late = _quantile(before, after, 0.99)
    if late is None:
        return NoReading(Trouble.MISSING, "its buckets do not bound it", _TOKEN_GAP[0])
    return Reading(late, Unit.SECONDS, _TOKEN_GAP[0], detail=f"p99 of {_n(gaps)}")


def _quantile(before: Tally, after: Tally, share: float) -> float | None:
    """Return a quantile as ``histogram_quantile`` of Prometheus has it; None without buckets."""
    wanted = share * (after[0] - before[0])
    low = under = 0.0
    for place in range(2, len(after), 2):
        bound, count = after[place], after[place + 1] - before[place + 1]
        if count >= wanted:
            return low + (bound - low) * ((wanted - under) / (count - under) if count > under else 1.0)
        low, under = bound, count
    return low or None


_QUEUE, _COMPUTE = "nv_inference_queue_duration_us", "nv_inference_compute_infer_duration_us"


@once
def _queue_times(snapshot: Snapshot) -> Tallies:
    """Count the seconds in Triton's queue and those of computing, by model and version."""
    found: dict[str, list[float]] = {}
    for place, family in enumerate((_QUEUE, _COMPUTE)):
        for labels, value in snapshot.series.get(family, {}).items():
            names = dict(labels)
            model = "/".join(names[key] for key in ("model", "version") if key in names)
            found.setdefault(model, [0.0, 0.0])[place] += value / 1e6
    return {model: tuple(times) for model, times in found.items()}


def _queue_to_compute(before: Tally, after: Tally, seconds: float) -> Reading | NoReading:
    """Divide the time in Triton's queue by the time of computing."""
    queued, computed = after[0] - before[0], after[1] - before[1]
    if seconds < LEAST_QUEUE_SECONDS:
        reason = f"a queue is judged over {LEAST_QUEUE_SECONDS:.0f} s or more, and {seconds:.0f} s were watched"
        return NoReading(Trouble.QUIET, reason, _QUEUE)
    if queued < LEAST_WAITING * seconds:
        reason = f"{_n(queued / seconds)} requests waited on average, {_n(LEAST_WAITING)} tell"
        return NoReading(Trouble.QUIET, reason, _QUEUE)
    detail = f"{_n(queued)} s queued, {_n(computed)} s computed"
    return Reading(queued / max(computed, 1e-6 * seconds), Unit.FACTOR, _QUEUE, detail=detail)


@once
def _link_errors(snapshot: Snapshot) -> Tallies:
    """Count the errors of all links of each GPU, behind which kinds there are: others are no zeros."""
    kinds = [gpus.by_gpu(snapshot, families)[1] for families in gpus.NVLINK]
    names = {gpu for values in kinds for gpu in values}
    there = {gpu: [number for number, values in enumerate(kinds) if gpu in values] for gpu in names}
    return {gpu: (float(sum(1 << one for one in of)), *(kinds[one][gpu] for one in of)) for gpu, of in there.items()}


def _grown(source: str) -> Callable[[Tally, Tally, float], Reading | NoReading]:
    def between(before: Tally, after: Tally, _seconds: float) -> Reading | NoReading:
        if before[0] != after[0]:
            return NoReading(Trouble.MISSING, "the two samples have other kinds of these counters", source)
        return Reading(math.fsum(after[1:]) - math.fsum(before[1:]), Unit.COUNT, source)

    return between


@once
def _xids(snapshot: Snapshot) -> Tallies:
    """Take the number of the last fault of each GPU; it stays until the next."""
    return {gpu: (value,) for gpu, value in gpus.by_gpu(snapshot, gpus.XID)[1].items()}


def _new_xid(before: Tally, after: Tally, _seconds: float) -> Reading | NoReading:
    """Tell whether another fault than before is the last one: 1, else 0; a fault of a program does not count."""
    new = after != before and after[0] != 0 and int(after[0]) not in APPLICATION_XIDS
    return Reading(float(new), Unit.COUNT, gpus.XID[0][0], detail=f"Xid {int(after[0])}" if after[0] else "")


_FIRST_TOKEN = _histogram(_TTFT)

CHANGES: Mapping[str, Change] = {
    change.name: change
    for change in (
        Change(
            "spec_acceptance", Unit.RATIO, _pair(_DRAFTED, _ACCEPTED), _acceptance, (*_ACCEPTED, *_DRAFTED),
            "share of the drafted tokens that the model accepted",
        ),
        Change(
            "reuse_rate", Unit.RATIO, _pair(_REUSED, _MISSED), _reuse, (*_REUSED, *_MISSED),
            "share of the KV cache blocks looked for that were there",
        ),
        Change(
            "ttft_jitter", Unit.FACTOR, _FIRST_TOKEN, _mean, _TTFT,
            "how far the mean time to first token is from its own mean over a day, as a share of that", baseline=True,
        ),
        Change(
            "ttft_tail", Unit.FACTOR, _FIRST_TOKEN, _tail, _TTFT,
            "99th percentile of the time to first token over its median",
        ),
        Change(
            "inter_token_gap", Unit.SECONDS, _histogram(_TOKEN_GAP), _gap, _TOKEN_GAP,
            "99th percentile of the time between two tokens",
        ),
        Change(
            "queue_to_compute", Unit.FACTOR, _queue_times, _queue_to_compute, (_QUEUE, _COMPUTE),
            "time in Triton's own queue over the time of computing",
        ),
        Change(
            "nvlink_errors", Unit.COUNT, _link_errors, _grown(gpus.NVLINK[0][0][0]),
            tuple(name for families in gpus.NVLINK for name, _ in families), "errors of a GPU's NVLinks",
        ),
        Change(
            "gpu_faults", Unit.COUNT, _xids, _new_xid, tuple(name for name, _ in gpus.XID),
            "whether the GPU reported another fault (Xid) of its own", grows=False,
        ),
    )
}  # fmt: skip
"""Every metric of two moments that a rule may name."""


_OF_GPUS = frozenset(("nvlink_errors", "gpu_faults"))


def counts_requests(snapshot: Snapshot) -> bool:
    """Whether anything is on the page that grows with requests; after a start some servers show none of it at first."""
    names = (name for change in CHANGES.values() if change.name not in _OF_GPUS for name in change.families)
    return any(name in snapshot.series or f"{name}_count" in snapshot.series for name in names)


def compare(change: Change, before: Tally, after: Tally, seconds: float) -> Reading | NoReading | None:
    """Read a change between two tallies; None where nothing can be read across them, because the server restarted."""
    for value in (*before, *after):
        if not math.isfinite(value):
            return NoReading(Trouble.NOT_A_NUMBER, f"it is {value}", change.families[0])
    if any(value < 0 for value in after):
        return NoReading(Trouble.CONTRADICTING, f"it is {_n(min(after))}, below 0", change.families[0])
    if len(before) != len(after) or (change.grows and any(new < old for old, new in zip(before, after, strict=True))):
        return None
    return change.between(before, after, seconds)
