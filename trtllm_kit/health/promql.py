"""Each named metric as one PromQL expression, read from the families that Triton and the DCGM exporter show. Pure.

``metrics``, ``gpus`` and ``changes`` say what each number is; this says the same to Prometheus. Metrics of GPUs that
Triton does not report come from the exporter, which is another scrape job: they speak of every GPU that it reports.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache

from trtllm_kit.health import gpus
from trtllm_kit.health.changes import (
    APPLICATION_XIDS,
    CHANGES,
    LEAST_BLOCKS,
    LEAST_DRAFTED,
    LEAST_REQUESTS,
    LEAST_WAITING,
    TTFT,
)
from trtllm_kit.health.families import BATCHER, GENERAL, KV_BLOCKS, REQUESTS, TYPE_LABEL
from trtllm_kit.health.rules import WINDOW_SECONDS

LOAD = "engine_load"
"""How full an engine is, 0 to 1: the larger of its KV cache's use and its requests over the most it may hold."""
FAMILIES: Mapping[str, str] = {
    name: "|".join(f"{family}(_count)?" for family in change.families) for name, change in CHANGES.items()
}
"""Of metrics of two moments, the names of their series, as a regular expression."""
_MODEL = "job, instance, model, version"
_SERVER = "job, instance"
_GPU = "gpu_uuid"
_BASELINE = "1d:5m"
"""A day, in steps of five minutes."""
_FROM_EXPORTER = frozenset(
    (
        "gpu_temperature", "gpus_throttled", "gpus_power_capped", "gpu_ecc_errors", "gpu_remap_failures", "gpu_faults",
        "nvlink_errors",
    )
)  # fmt: skip


def elsewhere(metric: str) -> bool:
    """Whether a metric comes from the GPU exporter, and not from the server's own page."""
    return metric in _FROM_EXPORTER


def recorded(metric: str, job: str | None, window_seconds: int = WINDOW_SECONDS) -> str:
    """Return the name under which a metric is recorded, with a selector of its job unless that is None.

    A metric of two moments with another window than the usual one has a name of its own.
    """
    name = f"trtkit_{metric}" if window_seconds == WINDOW_SECONDS else f"trtkit_{metric}_{window_seconds}s"
    return name if job is None or elsewhere(metric) else f"{name}{only(job)}"


@cache
def expressions(job: str, window_seconds: int = WINDOW_SECONDS) -> Mapping[str, str]:
    """Return the PromQL of every metric that a rule may name, and of ``engine_load``, for one scrape job.

    Units are those of ``rules.ALL``; one series a server and model, without the label that tells types apart.
    """
    return _of_servers(job) | _of_gpus(job) | _of_exporter(window_seconds) | _of_changes(job, window_seconds)


def _of_servers(job: str) -> dict[str, str]:
    """Return the server's own; numbers that contradict each other are none (NaN), as in ``metrics``.

    An engine that has made no step yet reports blocks of which none are used, and not how many there are.
    """
    used, most = _typed(KV_BLOCKS, "used", job), _typed(KV_BLOCKS, "max", job)
    unused = f"{used} == 0 and on ({_MODEL}) {_typed(GENERAL, 'iteration_counter', job)} == 0"
    active, room = _typed(REQUESTS, "active", job), _typed(REQUESTS, "max", job)
    held = f"{active} / ({room} > 0)"
    kv_cache = recorded("kv_cache_usage", job)
    share = f"{used} / ({most} > 0) or {unused} or ({used} > {most}) * NaN"
    return {
        "kv_cache_usage": f"{_typed(KV_BLOCKS, 'fraction', job)} or {share}",
        "queue_depth": _typed(REQUESTS, "queued", job),
        "active_requests": f"{active} unless {active} > {room} or ({active} > {room}) * NaN",
        "scheduled_requests": _typed(REQUESTS, "scheduled", job),
        "paused_requests": _typed(BATCHER, "paused_requests", job),
        "slots_usage": f"{held} or {active} > {room}",
        LOAD: f"max without (model, version) ({kv_cache} >= ({held}) or {held} or {kv_cache})",
    }


def _of_gpus(job: str) -> dict[str, str]:
    """Return Triton's own readings of its GPUs."""
    used, drawn = f"nv_gpu_utilization{only(job)}", f"nv_gpu_power_usage{only(job)}"
    memory = f"nv_gpu_memory_used_bytes{only(job)} / (nv_gpu_memory_total_bytes{only(job)} > 0)"
    return {
        "gpu_utilization": f"avg without ({_GPU}) ({used})",
        "gpu_imbalance": f"max without ({_GPU}) ({used}) - min without ({_GPU}) ({used})",
        "gpu_memory_usage": f"max without ({_GPU}) ({memory})",
        "gpu_power_usage": f"max without ({_GPU}) ({drawn} / (nv_gpu_power_limit{only(job)} > 0))",
    }


def _of_exporter(window_seconds: int) -> dict[str, str]:
    """Return the exporter's readings, of each host; a reason for a low clock is a bit of a number."""
    reasons = _first(gpus.CLOCK_REASONS)
    heat = " or ".join(
        _bit(reasons, bit) for bit in (gpus.SW_THERMAL, gpus.HW_THERMAL, gpus.HW_SLOWDOWN, gpus.HW_POWER_BRAKE)
    )
    grown = [f"increase({families[0][0]}[{window_seconds}s])" for families in gpus.NVLINK]
    errors = " + ignoring (__name__) ".join(grown)
    xid = gpus.XID[0][0]
    new = f"changes({xid}[{window_seconds}s]) > bool 0"
    own = " unless ".join([f"({xid} != 0)", *(f"({xid} == {number})" for number in sorted(APPLICATION_XIDS))])
    return {
        "gpu_temperature": f"max by ({_SERVER}) ({_first(gpus.TEMPERATURE)})",
        "gpus_throttled": f"count by ({_SERVER}) ({heat}) or 0 * count by ({_SERVER}) ({reasons})",
        "gpus_power_capped": f"count by ({_SERVER}) ({_bit(reasons, gpus.SW_POWER_CAP)}) "
        f"or 0 * count by ({_SERVER}) ({reasons})",
        "gpu_ecc_errors": f"max by ({_SERVER}) ({_first(gpus.ECC)})",
        "gpu_remap_failures": f"max by ({_SERVER}) ({_first(gpus.REMAP_FAILED)})",
        "gpu_faults": f"({new}) and ({own}) or 0 * {xid}",
        "nvlink_errors": errors,
    }


def _of_changes(job: str, window_seconds: int) -> dict[str, str]:
    """Return counters and histograms of the servers, between two moments."""
    window = f"[{window_seconds}s]"
    accepted, drafted = (
        _grown(f"trtllm_spec_decode_num_{kind}_tokens_total", job, window) for kind in ("accepted", "draft")
    )
    reused, missed = (_grown(f"trtllm_kv_cache_{kind}_blocks_total", job, window) for kind in ("reused", "missed"))
    gap = "trtllm_time_per_output_token_seconds"
    queued, computed = (
        f"sum by ({_MODEL}) (increase(nv_inference_{kind}_duration_us{only(job)}{window}))"
        for kind in ("queue", "compute_infer")
    )
    waited = f"({queued} >= {LEAST_WAITING * window_seconds * 1e6:.0f})"
    return {
        "spec_acceptance": f"{accepted} / ({drafted} >= {LEAST_DRAFTED})",
        "reuse_rate": f"{reused} / (({reused} + {missed}) >= {LEAST_BLOCKS})",
        "ttft_jitter": _first_there(job, {family: _swing(family, job, window) for family in TTFT}),
        "ttft_tail": _first_there(job, {family: _tail(family, job, window) for family in TTFT}),
        "inter_token_gap": f"{_quantile(0.99, gap, job, window)} "
        f"and on ({_SERVER}) {_grown(f'{gap}_count', job, window)} >= {LEAST_REQUESTS}",
        "queue_to_compute": f"{waited} / clamp_min({computed}, {window_seconds})",
    }


def _first_there(job: str, by_family: Mapping[str, str]) -> str:
    """Select what is read from the first family that a server shows, as ``changes`` does."""
    (own, read), (_, instead) = by_family.items()
    return f"{read} or ({instead}) unless on ({_SERVER}) {own}_count{only(job)}"


def _swing(family: str, job: str, window: str) -> str:
    """Compare a histogram's mean with its own over a day."""
    requests = _grown(f"{family}_count", job, window)
    mean = f"({_grown(f'{family}_sum', job, window)} / ({requests} >= {LEAST_REQUESTS}))"
    return f"abs({mean} / avg_over_time({mean}[{_BASELINE}]) - 1)"


def _tail(family: str, job: str, window: str) -> str:
    """Divide a histogram's 99th percentile by its median."""
    late, middle = (_quantile(share, family, job, window) for share in (0.99, 0.5))
    return f"{late} / {middle} and on ({_SERVER}) {_grown(f'{family}_count', job, window)} >= {LEAST_REQUESTS}"


def _grown(family: str, job: str, window: str) -> str:
    return f"sum by ({_SERVER}) (increase({family}{only(job)}{window}))"


def _quantile(share: float, family: str, job: str, window: str) -> str:
    return f"histogram_quantile({share}, sum by ({_SERVER}, le) (increase({family}_bucket{only(job)}{window})))"


def _first(families: Sequence[gpus.Family]) -> str:
    """Select the first of the exporter's names for a quantity that is there."""
    names = [name for name, _ in families if name.startswith("DCGM")]
    return f"({' or '.join(names)})" if len(names) > 1 else names[0]


def _bit(number: str, bit: int) -> str:
    """Select the numbers in which a bit is set."""
    return f"floor({number} / {bit}) % 2 == 1"


def _typed(family: str, kind: str, job: str) -> str:
    """Select one type of a family, without the label that says so."""
    label = TYPE_LABEL[family]
    return f"max without ({label}) ({family}{only(job, **{label: kind})})"


def only(job: str, **labels: str) -> str:
    """Return a selector of labels; texts are quoted as PromQL quotes them, which JSON does alike for ASCII."""
    return "{" + ",".join(f"{name}={json.dumps(value)}" for name, value in ({"job": job} | labels).items()) + "}"
