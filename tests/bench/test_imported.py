"""Results of other tools, under our names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trtllm_kit.bench.compare import compare, gate_of
from trtllm_kit.bench.history import read_foreign
from trtllm_kit.bench.page import page_of
from trtllm_kit.bench.report import latency_rows, notes, rate_rows
from trtllm_kit.bench.strict import require_result
from trtllm_kit.errors import CannotDo


def aiperf(scale: float = 1.0) -> dict[str, Any]:
    """Return a result as AIPerf writes it."""

    def times(value: float) -> dict[str, Any]:
        value *= scale
        return {"unit": "ms", "avg": value, "p50": value, "p90": value * 2, "p99": value * 3, "max": value * 4}

    return {
        "request_latency": times(6000),
        "time_to_first_token": times(800),
        "inter_token_latency": times(50),
        "output_token_throughput": {"unit": "tokens/sec", "avg": 1274.6},
        "request_throughput": {"unit": "requests/sec", "avg": 13.2},
        "request_count": {"unit": "requests", "avg": 200.0},
        "benchmark_duration": {"unit": "sec", "avg": 15.2},
        "total_osl": {"unit": "tokens", "avg": 19370.0},
        "error_summary": [{"error_details": {"code": 499}, "count": 81}, {"error_details": {"code": 500}, "count": 3}],
    }


def guidellm() -> dict[str, Any]:
    """Return a report as GuideLLM writes it."""

    def good(value: float) -> dict[str, Any]:
        shares = {"p50": value, "p90": value, "p99": value * 2, "p999": value * 3}
        return {"successful": {"mean": value, "max": value * 4, "percentiles": shares, "total_sum": value * 10}}

    metrics = {
        "request_totals": {"successful": 10, "errored": 2, "total": 12},
        "time_to_first_token_ms": good(100),
        "inter_token_latency_ms": good(20),
        "time_per_output_token_ms": good(25),
        "request_latency": good(3),
        "output_tokens_per_second": good(400),
        "requests_per_second": good(3),
        "output_token_count": good(128),
    }
    return {"benchmarks": [{"metrics": metrics, "duration": 4.0}]}


def read(tmp_path: Path, document: object) -> list[dict[str, Any]]:
    """Return what is imported of a file."""
    path = tmp_path / "foreign.json"
    path.write_text(json.dumps(document))
    return read_foreign(path)


def test_aiperf_is_read_in_seconds_and_under_our_names(tmp_path: Path) -> None:
    """Milliseconds become seconds, inter-token latency TPOT, and errors failed requests; it can be shown."""
    (run,) = read(tmp_path, aiperf())
    figures = require_result(run)["figures"]
    assert (284, 200, {"error": 84}, 19370) == tuple(
        figures[key] for key in ("asked", "answered", "failures", "output_tokens")
    )
    assert (0.8, 0.05, 18.0) == pytest.approx(
        (figures["latencies"]["ttft"]["p50"], figures["latencies"]["tpot"]["mean"], figures["latencies"]["e2e"]["p99"])
    )
    assert "p99.9" not in figures["latencies"]["ttft"]
    assert 3 == len(latency_rows(run))
    assert rate_rows(run)
    assert any("AIPerf" in note for note in notes(run))
    assert "nothing to draw" in page_of(run, "x")


def test_guidellm_is_read_by_what_its_words_mean(tmp_path: Path) -> None:
    """Its time per output token is over all tokens, its request latency is in seconds, and p999 is p99.9."""
    (run,) = read(tmp_path, guidellm())
    held = require_result(run)["figures"]["latencies"]
    assert (0.02, 0.025, 3.0, 0.3) == pytest.approx(
        (held["tpot"]["p50"], held["tpot_with_first"]["p50"], held["e2e"]["p50"], held["ttft"]["p99.9"])
    )
    assert (12, 400.0) == (run["figures"]["asked"], run["figures"]["output_tokens_per_second"])


def test_imported_runs_can_be_compared(tmp_path: Path) -> None:
    """A gate holds for them as for our own."""
    (a,), (b,) = read(tmp_path, aiperf()), read(tmp_path, aiperf(1.5))
    assert ["ttft.p99"] == [row.name for row in compare(a, b, gate_of("ttft.p99=10%")).broken]


@pytest.mark.parametrize("document", [{}, [1], {"benchmarks": [3]}, {"request_latency": {"unit": "weeks", "avg": 3}}])
def test_other_files_are_refused(tmp_path: Path, document: object) -> None:
    """What neither tool writes is told of."""
    with pytest.raises(CannotDo):
        read(tmp_path, document)
