"""A server as a Prometheus that scrapes it has seen it: its series over some minutes, instead of a state of our own.

Source: the HTTP API page of the Prometheus documentation (``/api/v1/query_range``). Between two scrapes Prometheus
repeats the last value; a target that went away has none.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from trtllm_kit.health.access import ANYBODY, Access
from trtllm_kit.health.snapshot import Labels, Outcome, Snapshot
from trtllm_kit.health.sources.http_get import get

SPAN_SECONDS, STEP_SECONDS = 300, 60
_OF_PROMETHEUS = frozenset(("__name__", "job", "instance"))
_SERIES = dict[str, dict[Labels, float]]


def instance_of(url: str) -> str:
    """Return what Prometheus calls the server of a URL: host and port."""
    return url.partition("://")[2].partition("/")[0]


def read_range(via: str, url: str, timeout_seconds: float, access: Access = ANYBODY) -> tuple[Snapshot, ...]:
    """Read the samples of the last five minutes, oldest first; one that says why, when there are none."""
    wall, monotonic = time.time(), time.monotonic()
    instance = instance_of(url)
    query = "%7Binstance%3D%22" + _quoted(instance) + "%22%7D"
    where = f"{via.rstrip('/')}/api/v1/query_range?query={query}"
    where += f"&start={wall - SPAN_SECONDS:.3f}&end={wall:.3f}&step={STEP_SECONDS}"
    answer = get(where, timeout_seconds, access=access)
    took = time.monotonic() - monotonic

    def none(outcome: Outcome, reason: str) -> tuple[Snapshot, ...]:
        return (Snapshot(outcome, f"Prometheus: {reason}", wall, monotonic, took, answer.status),)

    if answer.outcome is not Outcome.OK:
        return none(Outcome.GARBAGE if answer.outcome in _ITS_OWN else answer.outcome, answer.reason)
    moments = _moments(answer.body)
    if moments is None:
        return none(Outcome.GARBAGE, "the answer is no range of series")
    if not moments or wall - max(moments) > 2 * STEP_SECONDS:
        return none(Outcome.GARBAGE, f"it has no series of instance {instance} of now")
    if any(value == 0 for value in moments[max(moments)].get("up", {}).values()):
        return none(Outcome.BROKEN, f"it cannot read {instance} (up is 0)")
    return tuple(
        Snapshot(Outcome.OK, "", at, monotonic - (wall - at), took, 200, series=moments[at]) for at in sorted(moments)
    )


_ITS_OWN = frozenset((Outcome.REFUSED, Outcome.TIMEOUT, Outcome.BROKEN, Outcome.HTTP_ERROR, Outcome.CERTIFICATE))
"""What befalls Prometheus says nothing of the server."""


def _quoted(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter in ".-_" else f"%{ord(letter):02X}" for letter in text)


def _moments(body: bytes) -> dict[float, _SERIES] | None:
    """Return the series of each moment; None for what is no answer of that kind."""
    try:
        rows = json.loads(body)["data"]["result"]
        moments: dict[float, _SERIES] = {}
        for row in rows:
            name, labels = _name(row["metric"])
            for at, value in row["values"]:
                moments.setdefault(float(at), {}).setdefault(name, {})[labels] = float(value)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None
    return moments


def _name(metric: Mapping[str, Any]) -> tuple[str, Labels]:
    labels = sorted((str(name), str(value)) for name, value in metric.items() if name not in _OF_PROMETHEUS)
    return str(metric["__name__"]), tuple(labels)
