"""Contradictions that no single metric shows: an exporter that was set up wrongly, or counts nothing. Pure.

Source: reports of users whose pages looked well: labels that read "undefined", and counters of the engine at 0 while
the ensemble in front of it answered.
"""

from __future__ import annotations

from collections.abc import Sequence

from trtllm_kit.health.families import GENERAL, REQUESTS, SUCCESS
from trtllm_kit.health.snapshot import NoReading, Snapshot, Trouble

_FEWEST = 10
"""Requests that must have ended before a count of none is a contradiction."""


def undefined_labels(snapshot: Snapshot) -> NoReading | None:
    """Look for series of the engine whose label reads "undefined": they belong to no model that can be named."""
    for family in sorted(snapshot.series):
        if family.startswith(("trtllm_", "nv_trt_llm_")):
            for labels in snapshot.series[family]:
                name = next((name for name, value in labels if value == "undefined"), None)
                if name is not None:
                    return NoReading(Trouble.CONTRADICTING, f'the label {name} of {family} reads "undefined"', family)
    return None


def dead_counters(samples: Sequence[Snapshot]) -> NoReading | None:
    """Look whether requests were answered between the samples while the engine reports that it never made a step."""
    good = [sample for sample in samples if sample.ok]
    if len(good) < 2 or REQUESTS not in good[-1].series:
        return None
    general = good[-1].series.get(GENERAL, {})
    steps = [value for labels, value in general.items() if ("general_type", "iteration_counter") in labels]
    answered = sum(good[-1].series.get(SUCCESS, {}).values()) - sum(good[0].series.get(SUCCESS, {}).values())
    if not steps or any(steps) or not answered >= _FEWEST:
        return None
    reason = f"{answered:.0f} requests were answered and the engine counts no step"
    return NoReading(Trouble.CONTRADICTING, reason, GENERAL)
