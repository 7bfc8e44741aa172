"""What stopped configurations: counted by constraint, and each by itself for who wants to see all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from trtllm_kit.tune.candidates import Candidate, Shape
from trtllm_kit.tune.room import Refusal


@dataclass(frozen=True, slots=True)
class Stopped:
    """A shape, or one configuration of it, that is out, and why."""

    shape: Shape
    candidate: Candidate | None
    refusal: Refusal

    def words(self) -> str:
        """Name what is out."""
        return self.shape.words() if self.candidate is None else self.candidate.words()


@dataclass(frozen=True, slots=True)
class Constraint:
    """One thing that stopped configurations."""

    name: str
    shapes: int
    """Shapes that it stopped under every limit."""
    configurations: int
    """Single configurations that it stopped."""
    example: Stopped
    """The first of them in the order of the search."""


def by_constraint(stopped: Iterable[Stopped]) -> list[Constraint]:
    """Return what stopped how many, the most first."""
    counts: dict[str, list[int]] = {}
    first: dict[str, Stopped] = {}
    for one in stopped:
        name = one.refusal.constraint
        count = counts.setdefault(name, [0, 0])
        count[one.candidate is not None] += 1
        first.setdefault(name, one)
    found = [Constraint(name, shapes, others, first[name]) for name, (shapes, others) in counts.items()]
    return sorted(found, key=lambda one: (-one.configurations, -one.shapes))


COLUMNS = (
    "machine", "weights", "kv_cache", "tensor", "pipeline", "expert", "attention_dp", "context", "draft_tokens",
    "replicas", "max_batch_size", "max_num_tokens", "chunked_prefill", "kv_fraction", "policy", "constraint", "message",
    "compared",
)  # fmt: skip
"""Of the rows that ``rows`` yields."""


def rows(stopped: Iterable[Stopped]) -> Iterator[list[Any]]:
    """Yield every configuration that is out, one row each; of a whole shape the limits are empty."""
    for one in stopped:
        shape, candidate, why = one.shape, one.candidate, one.refusal
        limits: list[Any] = [None] * 6
        if candidate is not None:
            limits = [
                candidate.replicas,
                candidate.max_batch_size,
                candidate.max_num_tokens,
                candidate.chunked_prefill,
                candidate.kv_fraction,
                candidate.policy,
            ]
        ranks = [shape.tensor, shape.pipeline, shape.expert, shape.attention_dp, shape.context, shape.draft_tokens]
        formats = [shape.weights, shape.kv_cache]
        yield [shape.machine, *formats, *ranks, *limits, why.constraint, why.message, why.compared]
