"""A run's document as rows for reading, and as CSV. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

from trtllm_kit.bench.figures import SHARES
from trtllm_kit.bench.result import name_of
from trtllm_kit.units import format_seconds

COLUMNS = ("latency", "mean", *(name_of(share) for share in SHARES), "most", "of")
TITLES = {
    "ttft": "first token",
    "tpot": "later tokens (TPOT)",
    "tpot_with_first": "whole / tokens",
    "gap": "gap between pieces",
    "e2e": "whole answer",
    "late": "sent late by",
}
CSV_COLUMNS = ("number", "intended", "sent", "first", "last", "ended", "prompt", "answer", "pieces", "longest_gap",
               "warm", "failure", "why")  # fmt: skip
_RATES = {
    "requests_per_second": "answers/s",
    "goodput": "answers/s within the SLO",
    "output_tokens_per_second": "output tokens/s",
    "output_tokens_per_second_per_gpu": "output tokens/s of each GPU",
    "user_tokens_per_second": "tokens/s that a user sees",
    "nth_tokens_per_second": "tokens/s from the first to the nth",
    "cost_per_million_output_tokens": "price of a million output tokens",
    "watts": "watts of the GPUs by their counters",
    "joules_per_output_token": "joules an output token",
}


def latency_rows(document: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the latencies, a row each."""
    rows = []
    for name, held in document["figures"]["latencies"].items():
        values = [
            precise(held[key]) if key in held else "" for key in ("mean", *(name_of(share) for share in SHARES), "most")
        ]
        rows.append((TITLES.get(name, name), *values, f"{held['count']:,}"))
    return rows


def precise(seconds: float) -> str:
    """Print a latency with three digits, e.g. ``"5.03 ms"``."""
    return f"{seconds * 1e3:.3g} ms" if 0 < seconds < 0.9995 else format_seconds(seconds)


def rate_rows(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the rates, with the interval of repeats where there are several."""
    figures, repeats = document["figures"], document["repeats"]
    rows = []
    for name, title in _RATES.items():
        if name in figures:
            spread = repeats.get(name)
            beside = f" ± {spread['plus_minus']:.3g} (95 %, {repeats['count']} repeats)" if spread else ""
            rows.append((title, f"{figures[name]:,.2f}{beside}"))
    return rows


def notes(document: Mapping[str, Any]) -> list[str]:
    """Return what must be known beside the figures: what failed, who was late, what tokens were counted by."""
    figures, client = document["figures"], document["client"]
    found = [f"{figures['answered']:,} of {figures['asked']:,} requests answered in {figures['seconds']:.1f} s"]
    if document.get("interrupted"):
        found.insert(0, "WARNING: the run was interrupted: these are its figures up to then, and not those of the load")
    if figures["failures"]:
        kinds = ", ".join(f"{count} {kind}" for kind, count in figures["failures"].items())
        found.append(f"failed, and in no latency: {kinds}; e.g. {'; '.join(figures['why'][:2])}")
    if "kept_share" in figures:
        found.append(f"{figures['kept_share']:.1%} of the requests kept the SLO {document['asked'].get('slo', '')}")
    counted = figures["tokens_counted_by"]
    if counted:
        found.append("tokens counted by " + ", ".join(f"{kind} ({count:,})" for kind, count in counted.items()))
    if figures["pieces"] and figures["output_tokens"] > 1.05 * figures["pieces"]:
        each = figures["output_tokens"] / figures["pieces"]
        found.append(f"a piece of a stream holds {each:.1f} tokens on average: gaps are between pieces, not tokens")
    found += _client(client) if client else [f"imported from {document['asked'].get('tool', 'elsewhere')}"]
    if "saturation" in document:
        held = document["saturation"]
        found.append(
            f"saturation: {held['requests_per_second']:.2f} answers/s with {held['users']} users; "
            f"run at {held['fraction']:.0%} of it, {held['rate']:.2f} a second"
        )
        if not held.get("reached", True):
            found.append(f"WARNING: throughput still grew at {held['users']} users: the saturation lies beyond")
    held = document.get("server") or {}
    if "server" in document and not held.get("failed") and not held.get("seconds"):
        found.append("the server's metrics were not read once: the run was over before")
    if held.get("failed"):
        found.append(f"{held['failed']} readings of the server's metrics failed: {held['reason']}")
    return found


def _client(client: Mapping[str, Any]) -> list[str]:
    late = ", ".join(f"{client[key] * 1e3:.2f} ms ({key})" for key in ("median", "p99"))
    found = [
        f"client: pieces stamped late by at most {late}, woken late by {client['woken'] * 1e3:.1f} ms (p99), "
        f"busy {client['busy']:.0%}"
    ]
    if client["bottleneck"]:
        found.append(f"WARNING: the client was the bottleneck, and the figures are its own too: {client['bottleneck']}")
    return found


def csv_of(document: Mapping[str, Any]) -> str:
    """Return every request as a line of CSV, times in seconds."""
    out = io.StringIO()
    writer = csv.DictWriter(out, CSV_COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for request in document["requests"]:
        writer.writerow({name: _plain(request.get(name, "")) for name in CSV_COLUMNS})
    return out.getvalue()


def _plain(value: Any) -> Any:
    """Keep a text of the server from being a formula of a spreadsheet."""
    return f"'{value}" if isinstance(value, str) and value[:1] in tuple("=+-@") else value
