"""Which model architectures a release loads."""

from __future__ import annotations

from functools import cache
from typing import Literal

from trtllm_kit.upstream.facts import Fact, rows

World = Literal["llm-api", "trtllm-build"]
"""The PyTorch backend, or engines."""


class Family(Fact):
    """One architecture that one world loads."""

    architecture: str
    """As in ``config.json``'s ``architectures``."""
    world: World


def family_support(architecture: str, world: World, version: str) -> Family | None:
    """Return the row that says this release loads the architecture, or None when none does."""
    found = (row for row in _rows() if row.architecture == architecture and row.world == world)
    return next((row.seen_from(version) for row in found if row.holds(version)), None)


@cache
def _rows() -> tuple[Family, ...]:
    return rows("families", "families", Family)
