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
    backend: Literal["", "_autodeploy"] = ""
    """The backend of the LLM API that loads it, where it is not the PyTorch one."""


class WithAttentionDp(Fact):
    """An architecture whose tensor ranks can have requests of their own."""

    architecture: str


class WithContextParallel(Fact):
    """An architecture whose engines can cut the tokens of a sequence over ranks."""

    architecture: str


class Unlisted(Fact):
    """An architecture that no list of supported models read names."""

    architecture: str


def family_support(architecture: str, world: World, version: str) -> Family | None:
    """Return the row that says this release loads the architecture, or None when none does."""
    found = (row for row in _rows(architecture) if row.world == world)
    return next((row.seen_from(version) for row in found if row.holds(version)), None)


def attention_dp_support(architecture: str, version: str) -> WithAttentionDp | None:
    """Return the row that says this release runs the architecture with attention data parallelism, or None."""
    found = (row for row in rows("families", "attention_dp", WithAttentionDp) if row.architecture == architecture)
    return next((row.seen_from(version) for row in found if row.holds(version)), None)


def context_parallel_support(architecture: str, version: str) -> WithContextParallel | None:
    """Return the row that says engines of this release cut the architecture's sequences over ranks, or None."""
    found = (
        row for row in rows("families", "context_parallel", WithContextParallel) if row.architecture == architecture
    )
    return next((row.seen_from(version) for row in found if row.holds(version)), None)


def unlisted(architecture: str) -> Unlisted | None:
    """Return the row that says no release read lists the architecture; None when that was not looked at."""
    return next((row for row in rows("families", "unlisted", Unlisted) if row.architecture == architecture), None)


@cache
def _rows(architecture: str) -> tuple[Family, ...]:
    in_code = rows("families", "families", Family, architecture=architecture)
    return in_code + rows("families_listed", "families", Family, architecture=architecture)
