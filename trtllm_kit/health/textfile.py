"""The verdict for node_exporter's textfile collector, through prometheus-client, whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trtllm_kit.errors import storage_error
from trtllm_kit.health.verdict import Verdict

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


def registry_of(verdicts: Sequence[Verdict]) -> CollectorRegistry:
    """Return the verdicts as gauges: the state of each target, of each finding, and every number that was judged."""
    from prometheus_client import CollectorRegistry, Gauge

    registry = CollectorRegistry()
    state = Gauge(
        "trtkit_health_state",
        "Exit code of the verdict: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.",
        ["target"],
        registry=registry,
    )
    taken = Gauge(
        "trtkit_health_checked_timestamp_seconds", "When the newest sample was taken.", ["target"], registry=registry
    )
    finding = Gauge(
        "trtkit_health_finding_state", "Exit code of a finding.", ["target", "check", "subject"], registry=registry
    )
    value = Gauge(
        "trtkit_health_value", "A number that was judged, in base units.", ["target", "metric"], registry=registry
    )
    for verdict in verdicts:
        target = verdict.name or verdict.url
        state.labels(target).set(verdict.state.exit_code)
        taken.labels(target).set(verdict.taken_at)
        for one in reversed(verdict.findings):  # the gravest comes first, and of two of one name it stands
            finding.labels(target, one.rule, one.subject).set(one.state.exit_code)
        for measure in verdict.measures:
            if measure.value is not None:
                value.labels(target, measure.label).set(measure.value)
    return registry


def write_textfile(path: str, verdicts: Sequence[Verdict]) -> None:
    """Replace the file by the verdicts. Raises ``StorageError``."""
    from prometheus_client import write_to_textfile

    try:
        write_to_textfile(path, registry_of(verdicts))
    except OSError as error:
        error.filename, error.filename2 = path, None  # not that of the partial file beside it
        raise storage_error(error, "writing the verdict for the textfile collector") from None
