"""What a release does to settings by itself, without an error."""

from __future__ import annotations

from typing import Literal

from trtllm_kit.upstream.facts import Fact, rows

World = Literal["trtllm-build", "llm-api"]
Name = Literal[
    "length_with_drafts", "tokens_cut", "tokens_for_drafts", "tokens_of_a_block", "paged_context_off",
    "paged_context_default", "overlap_off", "drafts_of_mtp", "drafts_of_auto", "limits_reset", "speculation_off",
    "reserved_to_the_end", "profiling_pass",
]  # fmt: skip


class Rewrite(Fact):
    """One setting that becomes another."""

    name: Name
    world: World
    note: str


def rewrite(name: Name, world: str, version: str) -> Rewrite | None:
    """Return what that release does under a name; None when it does not, or not in that world."""
    named = (row for row in rewrites() if row.name == name and row.world == world and row.holds(version))
    return next((row.seen_from(version) for row in named), None)


def rewrites() -> tuple[Rewrite, ...]:
    """Return every row of the table."""
    return rows("rewrites", "rewrites", Rewrite)
