"""Results of AIPerf and GuideLLM as documents of a run, so that they can be kept, shown and compared. Pure.

Their figures are put under the names of ours by what they are: the inter-token latency of both is the time from first
to last token over the tokens after the first, our TPOT, and GuideLLM's time per output token is over all of them.
Source: AIPerf's guide to its profile exports (``profile_export_aiperf.json``), and reports of GuideLLM 0.3 to 0.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trtllm_kit.bench.result import KIND, VERSION

_AIPERF = {"ttft": "time_to_first_token", "tpot": "inter_token_latency", "e2e": "request_latency"}
_GUIDELLM = {
    "ttft": ("time_to_first_token_ms", 1e-3),
    "tpot": ("inter_token_latency_ms", 1e-3),
    "tpot_with_first": ("time_per_output_token_ms", 1e-3),
    "e2e": ("request_latency", 1.0),
}
_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}


def imported(document: object) -> list[dict[str, Any]]:
    """Return the runs in another tool's result, one a benchmark; raises ``ValueError`` for what is none."""
    if isinstance(document, dict) and isinstance(document.get("benchmarks"), list):
        return [_guidellm(one) for one in document["benchmarks"]]
    if isinstance(document, dict) and isinstance(document.get("request_latency"), dict):
        return [_aiperf(document)]
    raise ValueError("it is neither AIPerf's profile_export_aiperf.json nor a report of GuideLLM")


def _aiperf(document: Mapping[str, Any]) -> dict[str, Any]:
    answered = round(_number(document, "request_count", "avg") or 0)
    failed = sum(int(one.get("count", 0)) for one in document.get("error_summary") or [])
    latencies = {}
    for name, key in _AIPERF.items():
        held = document.get(key)
        if isinstance(held, dict):
            factor = _UNITS.get(str(held.get("unit")))
            if factor is None:
                raise ValueError(f"{key} is in {held.get('unit')!r}")
            latencies[name] = _latency(answered, held, held, ("avg", "max"), factor)
    rates = {
        "output_tokens_per_second": _number(document, "output_token_throughput", "avg"),
        "requests_per_second": _number(document, "request_throughput", "avg"),
        "user_tokens_per_second": _number(document, "output_token_throughput_per_user", "avg"),
    }
    tokens = _number(document, "total_input_tokens", "avg") or _number(document, "total_isl", "avg") or 0
    output = _number(document, "total_output_tokens", "avg") or _number(document, "total_osl", "avg") or 0
    seconds = _number(document, "benchmark_duration", "avg") or 0.0
    return _run("AIPerf", (answered, failed), seconds, (tokens, output), rates, latencies)


def _guidellm(benchmark: object) -> dict[str, Any]:
    metrics = benchmark.get("metrics") if isinstance(benchmark, dict) else None
    if not isinstance(metrics, dict) or not isinstance(benchmark, dict):
        raise ValueError("a benchmark without metrics")
    totals = metrics.get("request_totals") or {}
    answered = int(totals.get("successful") or 0)
    latencies = {}
    for name, (key, factor) in _GUIDELLM.items():
        held = (metrics.get(key) or {}).get("successful")
        if isinstance(held, dict):
            latencies[name] = _latency(answered, held, held.get("percentiles") or {}, ("mean", "max"), factor)
    rates = {
        key: _number(metrics.get(key) or {}, "successful", "mean")
        for key in ("output_tokens_per_second", "requests_per_second")
    }
    counts = [
        _number(metrics.get(key) or {}, "successful", "total_sum") or 0
        for key in ("prompt_token_count", "output_token_count")
    ]
    seconds = benchmark.get("duration")
    known = float(seconds) if isinstance(seconds, int | float) else 0.0
    requests = answered, int(totals.get("errored") or 0)
    return _run("GuideLLM", requests, known, (counts[0], counts[1]), rates, latencies)


def _latency(
    count: int, held: Mapping[str, Any], shares: Mapping[str, Any], names: tuple[str, str], factor: float
) -> dict[str, float]:
    """Return a latency in seconds, with those of its percentiles that are there."""
    pairs = [("mean", held.get(names[0])), ("most", held.get(names[1]))]
    pairs += [(ours, shares.get(ours.replace(".", ""))) for ours in ("p50", "p90", "p99", "p99.9")]
    return {"count": count} | {name: float(value) * factor for name, value in pairs if isinstance(value, int | float)}


def _number(document: Mapping[str, Any], *path: str) -> float | None:
    value: Any = document
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return float(value) if isinstance(value, int | float) else None


def _run(
    tool: str,
    requests: tuple[int, int],
    seconds: float,
    tokens: tuple[float, float],
    rates: Mapping[str, float | None],
    latencies: dict[str, dict[str, float]],
) -> dict[str, Any]:
    answered, failed = requests
    figures = {
        "asked": answered + failed,
        "answered": answered,
        "failures": {"error": failed} if failed else {},
        "why": [],
        "seconds": seconds,
        "prompt_tokens": round(tokens[0]),
        "output_tokens": round(tokens[1]),
        "tokens_counted_by": {},
        "pieces": 0,
        "latencies": latencies,
    }
    figures |= {name: value for name, value in rates.items() if value is not None}
    return {
        "kind": KIND,
        "version": VERSION,
        "asked": {"tool": tool},
        "figures": figures,
        "repeats": {"count": 1},
        "client": {},
        "histograms": {},
        "requests": [],
    }
