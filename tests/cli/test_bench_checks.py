"""Options of the bench that contradict each other or would change nothing."""

from __future__ import annotations

from typing import Any

import pytest

from trtllm_kit.bench.client import Address, address_of
from trtllm_kit.cli.bench_checks import header_of, require_sense
from trtllm_kit.errors import UsageError

NOTHING: dict[str, Any] = dict.fromkeys(
    ("concurrency", "rate", "ramp", "load_fraction", "scenario", "trace", "api", "isl", "arrivals", "metrics_url",
     "gpu_hour_price", "gpus")
) | {"shortest": 1.0, "shared_prefix": 0, "prefixes": 1, "turns": 1}  # fmt: skip


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"scenario": "coding", "turns": 5}, "--turns with --scenario"),
        ({"scenario": "coding", "shared_prefix": 9}, "--shared-prefix with --scenario"),
        ({"trace": "t.jsonl", "rate": 2.0}, "--rate with --trace"),
        ({"trace": "t.jsonl", "isl": 2}, "--isl with --trace"),
        ({"arrivals": "gamma:2"}, "--arrivals gamma:2 without --rate"),
        ({"arrivals": "constant", "load_fraction": 0.5}, "--arrivals constant without --rate"),
        ({"isl": 10, "shared_prefix": 20}, "--shared-prefix 20 of prompts of 10 tokens"),
        ({"prefixes": 4}, "--prefixes 4 without --shared-prefix"),
        ({"metrics_url": "ftp://here"}, "--metrics-url ftp://here"),
        ({"gpu_hour_price": 2.0}, "--gpu-hour-price without --gpus"),
        ({"shortest": float("nan")}, "--shortest nan"),
    ],
)
def test_what_would_change_nothing_is_refused(given: dict[str, Any], named: str) -> None:
    """The option is named with its value."""
    with pytest.raises(UsageError) as refused:
        require_sense(NOTHING | given)
    assert named == refused.value.what


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"scenario": "multi-turn", "rate": 2.0, "arrivals": "constant"},
        {"scenario": "coding", "isl": 800, "concurrency": 8},
        {"trace": "t.jsonl", "concurrency": 8},
        {"isl": 20, "shared_prefix": 20, "prefixes": 4, "turns": 3},
        {"load_fraction": 0.5, "metrics_url": "HTTPS://here/metrics?x=1"},
    ],
)
def test_what_makes_a_run_is_taken(given: dict[str, Any]) -> None:
    """Legal loads pass, while the same with an option that nothing reads does not."""
    require_sense(NOTHING | given)
    with pytest.raises(UsageError):
        require_sense(NOTHING | given | {"shortest": float("nan")})


@pytest.mark.parametrize("text", ["sk-secret1", "Bearer sk-secret1:", "X: sk-secret1\r\nY: 1", "Host: sk-secret1"])
def test_a_header_that_is_none_is_refused_without_its_value(text: str) -> None:
    """No word of the error holds what may be a key."""
    with pytest.raises(UsageError) as refused:
        header_of(text)
    assert "secret1" not in str(refused.value)


def test_an_address_is_what_its_url_says() -> None:
    """Ports have their defaults, IPv6 keeps its brackets, a path is spelt for a request, a scheme in any case."""
    assert Address("h", 8001, secure=False) == address_of("GRPC://h")
    assert "[::1]:80" == address_of("http://[::1]").place
    assert "/a%20b" == address_of("https://h/a b/").prefix


@pytest.mark.parametrize("url", ["http://me:secret1@h", "http://h/v1?key=secret1", "http://h#secret1"])
def test_what_would_not_be_sent_is_no_address(url: str) -> None:
    """Keys and questions in a URL are refused, and not shown."""
    with pytest.raises(UsageError) as refused:
        address_of(url)
    assert "secret1" not in str(refused.value)
