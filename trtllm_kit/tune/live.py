"""Which drafts a running server accepted, position by position, from the counters it shows."""

from __future__ import annotations

from collections.abc import Mapping

from trtllm_kit.errors import RequestFailed
from trtllm_kit.estimate.draft import acceptance_of_counts
from trtllm_kit.health.snapshot import Labels, Snapshot
from trtllm_kit.health.sources.prometheus_text import scrape

DRAFTED, ACCEPTED = "trtllm_spec_decode_drafted_tokens_total", "trtllm_spec_decode_accepted_tokens_total"
POSITION = "token_position"
TIMEOUT_SECONDS = 4.0


def acceptance_at(url: str, timeout_seconds: float = TIMEOUT_SECONDS) -> tuple[float, ...]:
    """Return the chance of each draft position that a metrics page tells of; raises ``RequestFailed``."""
    return acceptance_of(scrape(url, timeout_seconds), url)


def acceptance_of(snapshot: Snapshot, url: str) -> tuple[float, ...]:
    """Return the chance of each draft position in a snapshot.

    Raises ``RequestFailed`` when there is no page, when it lacks the counters, or when nothing was drafted yet.
    """
    if not snapshot.ok:
        raise RequestFailed(
            f"no metrics at {url}", why=snapshot.reason, hint="name the page, e.g. http://HOST:8000/prometheus/metrics"
        )
    drafted, accepted = (_by_position(snapshot.series.get(family, {})) for family in (DRAFTED, ACCEPTED))
    positions = sorted(drafted.keys() & accepted.keys())
    chances = acceptance_of_counts([drafted[at] for at in positions], [accepted[at] for at in positions])
    if not chances:
        raise RequestFailed(
            f"{url} tells nothing of drafts",
            why=f"{len(drafted)} positions of {DRAFTED}, {len(accepted)} of {ACCEPTED}, nothing drafted at the first",
            hint="set enable_iter_perf_stats, and ask again after some requests",
        )
    return chances


def _by_position(series: Mapping[Labels, float]) -> dict[int, int]:
    """Return counts by position; series of several engines are added up."""
    found: dict[int, int] = {}
    for labels, value in series.items():
        at = dict(labels).get(POSITION, "")
        if at.isdecimal():
            found[int(at)] = found.get(int(at), 0) + round(value)
    return found
