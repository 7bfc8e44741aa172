"""Which number formats a release's model matrix names for an architecture."""

from __future__ import annotations

from functools import cache

from trtllm_kit.upstream.facts import Fact, rows
from trtllm_kit.upstream.precision import Part


class Listed(Fact):
    """The formats of one line of the matrix; 16 bit has no column."""

    architecture: str
    part: Part
    formats: tuple[str, ...]


def listed_formats(architecture: str, part: Part, version: str) -> Listed | None:
    """Return the line of an architecture as that release has it, or None when the matrix has none."""
    found = (row for row in _rows() if row.architecture == architecture and row.part == part)
    return next((row.seen_from(version) for row in found if row.holds(version)), None)


@cache
def _rows() -> tuple[Listed, ...]:
    return rows("model_formats", "listed", Listed)
