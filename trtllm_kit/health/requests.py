"""Triton's own request counters, and the counters that only a restart can set back. Pure.

Source: metrics.cc and metric_model_reporter.cc of the Triton server, and what a real one (2.51) shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from trtllm_kit.health.metrics import engine_steps
from trtllm_kit.health.snapshot import Labels, Reading, Snapshot
from trtllm_kit.light import dataclass

FAILURES = "nv_inference_request_failure"
SUCCESSES = "nv_inference_request_success"
NOT_THE_ENGINE = frozenset(("REJECTED", "CANCELED"))
"""Reasons of a failure that lie with the queue or the client. BACKEND, OTHER and any other are the engine's."""
_COUNTERS = (
    SUCCESSES,
    FAILURES,
    "nv_inference_count",
    "nv_inference_exec_count",
    "nv_inference_request_duration_us",
    "nv_llm_input_token_len_count",
    "nv_llm_output_token_len_count",
)


@dataclass(frozen=True)
class Ended:
    """Requests of one model that have ended since the server started."""

    failed: float
    """By a fault of the engine."""
    succeeded: float
    """NaN when the page does not tell. A decoupled model's request counts as soon as the model has taken it."""


def ended_requests(snapshot: Snapshot) -> Mapping[str, Ended]:
    """Count the requests that have ended, by model and version; a model without failure counters is not listed."""
    failed: dict[str, float] = {}
    for labels, value in snapshot.series.get(FAILURES, {}).items():
        names = dict(labels)
        counts = names.get("reason") not in NOT_THE_ENGINE
        failed[_model(names)] = failed.get(_model(names), 0.0) + (value if counts else 0.0)
    succeeded: dict[str, float] = {}
    for labels, value in snapshot.series.get(SUCCESSES, {}).items():
        model = _model(dict(labels))
        succeeded[model] = succeeded.get(model, 0.0) + value
    return {model: Ended(failed[model], succeeded.get(model, math.nan)) for model in sorted(failed)}


def _model(labels: Mapping[str, str]) -> str:
    """Name model and version alone: on a GPU Triton splits a model's counters by ``gpu_uuid``."""
    return "/".join(labels[name] for name in ("model", "version") if name in labels)


def fallen(before: Snapshot, after: Snapshot) -> Iterator[tuple[str, float, float]]:
    """List the counters that are smaller after than before, as (name, before, after)."""
    earlier = engine_steps(before)
    for subject, now in engine_steps(after).items():
        then = earlier.get(subject)
        if isinstance(then, Reading) and isinstance(now, Reading) and now.value < then.value:
            yield _name(now.source, subject), then.value, now.value
    for family in _COUNTERS:
        old, new = before.series.get(family, {}), after.series.get(family, {})
        for labels in sorted(old.keys() & new.keys()):
            if new[labels] < old[labels]:
                yield _name(family, _all(labels)), old[labels], new[labels]


def _all(labels: Labels) -> str:
    return "/".join(value for _, value in labels)


def _name(source: str, subject: str) -> str:
    return f"{source} of {subject}" if subject else source
