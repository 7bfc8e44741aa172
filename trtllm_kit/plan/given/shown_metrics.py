"""A rule about expressions of Prometheus: metrics that a release's servers do not show (PF50)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trtllm_kit.findings import Finding, Severity
from trtllm_kit.plan.given.finding import found
from trtllm_kit.upstream.failures import failure
from trtllm_kit.upstream.tables import Entry, entries

_METRIC = re.compile(r"\b(?:nv_trt_llm_|nv_llm_|nv_inference_|nv_cache_|trtllm_)\w+")
_OF_HISTOGRAM = re.compile(r"_(?:bucket|sum|count)$")
_OF_ENGINES = ("nv_trt_llm_", "nv_llm_")
"""Families of the backend that runs engines."""


def shown_metrics(expression: str, release: str) -> Iterator[Finding]:
    """PF50: names of an expression that some release's servers show, and this one's do not."""
    for name in dict.fromkeys(_METRIC.findall(expression)):
        family = name if _rows(name) else _OF_HISTOGRAM.sub("", name)
        rows = _rows(family)
        if not rows or any(_shown(row, release) for row in rows):
            continue
        spans = ", ".join(dict.fromkeys(_span(row) for row in rows))
        gone = failure("engine_flow_gone", release) if family.startswith(_OF_ENGINES) else None
        why = f"; the backend that shows it {gone.note}" if gone is not None else ""
        yield found(
            "PF50",
            Severity.WARNING,
            f"No server of release {release} shows {name}.",
            f"{family}: {spans}{why}",
            "trtkit deploy --target monitoring, for rules of that release",
        )


def _rows(name: str) -> list[Entry]:
    known = (*entries("metrics"), *(row for row in entries("triton") if row.key.startswith("nv_")))
    return [row for row in known if row.key == name]


def _shown(row: Entry, release: str) -> bool:
    """Whether a server shows a family; what the backend of engines shows leaves with it."""
    gone = row.key.startswith(_OF_ENGINES) and failure("engine_flow_gone", release) is not None
    return row.holds(release) and not gone


def _span(row: Entry) -> str:
    start = f"from {row.since}" if row.since else "from the first release"
    return start + (f" to before {row.until}" if row.until else " on")
