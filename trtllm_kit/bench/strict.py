"""What a file must hold to be a result: everything that is shown of it, of the right kind. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Any

from trtllm_kit.bench.result import KIND, RATES, VERSION, histograms_of

_SHARES = ("mean", "p50", "p90", "p99", "p99.9", "most")
_OPTIONAL_RATES = (*RATES, "kept_share", "output_tokens_per_second_per_gpu", "nth_tokens_per_second",
                   "cost_per_million_output_tokens", "watts", "joules_per_output_token")  # fmt: skip


def require_result(document: object) -> dict[str, Any]:
    """Return a document that is one of a run; raises ``ValueError`` with the place of what is not."""
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise ValueError("it is no result of trtkit bench")
    if document.get("version") != VERSION:
        raise ValueError(f"version {document.get('version')!r}, and {VERSION} is read")
    _require_kinds(document, "", dict, ("asked", "figures", "client", "repeats", "histograms"))
    _require_kinds(document, "", list, ("requests",))
    _require_figures(document["figures"])
    _require_repeats(document["repeats"])
    if document["client"]:  # an import has none
        _require_numbers(document["client"], "client", ("median", "p99", "woken", "busy"))
        _require_kinds(document["client"], "client.", str, ("bottleneck",))
    for request in document["requests"]:
        _require_request(request)
    if "saturation" in document:
        wanted = ("users", "requests_per_second", "fraction", "rate")
        _require_numbers(document["saturation"], "saturation", wanted)
    if "server" in document:
        _require_server(document["server"])
    histograms_of(document)
    return document


def _require_figures(figures: Mapping[str, Any]) -> None:
    _require_numbers(figures, "figures", ("asked", "answered", "seconds", "output_tokens", "pieces"))
    _require_numbers(figures, "figures", [key for key in _OPTIONAL_RATES if key in figures])
    _require_kinds(figures, "figures.", dict, ("failures", "tokens_counted_by", "latencies"))
    _require_kinds(figures, "figures.", list, ("why",))
    for key in ("failures", "tokens_counted_by"):
        _require_numbers(figures[key], f"figures.{key}", figures[key])
    if not all(isinstance(one, str) for one in figures["why"]):
        raise ValueError("figures.why holds what is no text")
    for name, held in figures["latencies"].items():
        place = f"figures.latencies.{name}"
        _require_numbers(held, place, ("count",))
        _require_numbers(held, place, [key for key in _SHARES if key in held])


def _require_repeats(repeats: Mapping[str, Any]) -> None:
    _require_numbers(repeats, "repeats", ("count",))
    for name, held in repeats.items():
        if name != "count":
            _require_numbers(held, f"repeats.{name}", ("mean", "plus_minus"))


def _require_request(request: object) -> None:
    wanted = ["intended", "ended"]
    if isinstance(request, dict) and "first" in request:
        wanted += ["first", "longest_gap"]
    _require_numbers(request, "requests", wanted)


def _require_server(server: object) -> None:
    """Raise where readings are not as many as their times; a time may be before the run, a value missing."""
    if not isinstance(server, dict):
        raise ValueError(f"server is {str(server)[:40]!r}")
    _require_kinds(server, "server.", list, ("seconds",))
    _require_kinds(server, "server.", dict, ("series",))
    _require_kinds(server, "server.", str, ("reason",))
    _require_numbers(server, "server", ("failed",))
    if not all(_is_number(at, least=-inf) for at in server["seconds"]):
        raise ValueError("server.seconds holds what is no time")
    for name, values in server["series"].items():
        if not isinstance(values, list) or len(values) != len(server["seconds"]):
            raise ValueError(f"server.series.{name} has not a value for each of {len(server['seconds'])} times")
        if not all(value is None or _is_number(value, least=-inf) for value in values):
            raise ValueError(f"server.series.{name} holds what is no number")


def _require_kinds(held: Mapping[str, Any], place: str, kind: type, keys: tuple[str, ...]) -> None:
    for key in keys:
        if not isinstance(held.get(key), kind):
            raise ValueError(f"{place}{key} is missing, or of another kind")


def _require_numbers(held: object, place: str, keys: Iterable[str]) -> None:
    if not isinstance(held, dict):
        raise ValueError(f"{place} holds {str(held)[:40]!r}")
    for key in keys:
        if not _is_number(held.get(key)):
            raise ValueError(f"{place}.{key} is {str(held.get(key))[:40]!r}, and a number of at least 0 is read")


def _is_number(value: object, least: float = 0.0) -> bool:
    """Whether it is a number that a run may measure: beyond 1e15 there are neither seconds nor tokens."""
    return isinstance(value, int | float) and not isinstance(value, bool) and max(least, -1e15) <= value < 1e15
