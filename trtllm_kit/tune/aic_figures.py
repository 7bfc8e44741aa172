"""An estimate on aiconfigurator-core's step times: whose figures they are, and what is not in them."""

from __future__ import annotations

from dataclasses import replace

from trtllm_kit.estimate.answer import Estimate
from trtllm_kit.estimate.transfer import TERM
from trtllm_kit.tune.aic import AicClock
from trtllm_kit.tune.apart import LINKS, SENT

OWN = (SENT, LINKS)
"""Figures of the links between servers, which are the kit's on any clock."""


def by_tables(found: Estimate, clock: AicClock) -> Estimate:
    """Return an estimate made on a clock's tables with their package as the source; it states no intervals."""
    figures = tuple(
        one if one.name in OWN else replace(one, low=None, high=None, source=clock.source) for one in found.figures
    )
    parts = tuple(part if part.name == TERM else replace(part, source=clock.source) for part in found.parts)
    notes = [f"step times are those of {clock.source}: it states no interval, and no time outside the engine"]
    if clock.subject.speculation is not None:
        notes.append("its tables have no time for making drafts: only the check of them is in the steps")
    return replace(found, figures=figures, parts=parts, notes=(*found.notes, *notes))
