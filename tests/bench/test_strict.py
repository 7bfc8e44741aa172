"""A file that somebody changed is told of when it is read, and breaks nothing where it is shown."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.bench.test_result import result
from trtllm_kit.bench.compare import compare
from trtllm_kit.bench.history import read_foreign
from trtllm_kit.bench.page import page_of
from trtllm_kit.bench.report import csv_of, latency_rows, notes, rate_rows
from trtllm_kit.bench.strict import require_result
from trtllm_kit.errors import ResultUnfit

GONE = object()


def whole() -> dict[str, Any]:
    """Return a result with everything in it that one can have, but few requests and buckets."""
    document = result()
    document["requests"] = [document["requests"][0], document["requests"][-1]]
    for held in document["histograms"].values():
        held["buckets"] = held["buckets"][:2]
        held["count"] = sum(count for _, count in held["buckets"])
    document["server"] = {"seconds": [-0.5, 1.0], "series": {"kv_cache": [1.0, None]}, "failed": 0, "reason": ""}
    document["saturation"] = {"users": 2, "requests_per_second": 1.0, "fraction": 0.5, "rate": 0.5, "reached": True}
    document["repeats"] |= {"goodput": {"mean": 1.0, "plus_minus": 0.1}}
    return document


def places(held: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in a document."""
    inner = held.items() if isinstance(held, dict) else enumerate(held) if isinstance(held, list) else ()
    for key, value in inner:
        yield (*path, key)
        yield from places(value, (*path, key))


def changed(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """Return a whole result with another value in one place."""
    document = held = copy.deepcopy(whole())
    for key in path[:-1]:
        held = held[key]
    if value is GONE:
        del held[path[-1]]
    else:
        held[path[-1]] = value
    return document


def show(document: dict[str, Any]) -> None:
    """Make all that is made of a result."""
    page_of(document, "run")
    for made in (notes, rate_rows, latency_rows, csv_of):
        made(document)
    compare(document, document, {})


def test_a_whole_result_is_read() -> None:
    """What the bench writes is what it reads, with nothing changed or left out."""
    read = require_result(whole())
    assert whole() == read
    show(read)


@pytest.mark.parametrize(
    "value", [GONE, None, "x", [], -1, 1e308], ids=["gone", "null", "text", "list", "negative", "huge"]
)
def test_what_is_read_can_be_shown(value: Any) -> None:
    """Every value in turn is missing or of another kind: the result is refused, or can be shown and compared."""
    refused = 0
    for path in places(whole()):
        document = changed(path, value)
        try:
            require_result(document)
        except ValueError:
            refused += 1
            continue
        show(document)
    assert refused > 20


def test_an_import_is_as_strict(tmp_path: Any) -> None:
    """Another tool's result with a figure that is no number becomes no run."""
    file = tmp_path / "aiperf.json"
    latency = {"unit": "ms", "avg": float("nan"), "p50": 2, "max": 3}
    file.write_text(json.dumps({"request_latency": latency, "request_count": {"avg": 2}}))
    with pytest.raises(ResultUnfit):
        read_foreign(file)
