"""The load that a configuration is best at, where none is asked: up as long as it gains, down until it holds."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, floor
from typing import TYPE_CHECKING

from trtllm_kit.tune.candidates import Candidate
from trtllm_kit.tune.points import Point, best, missed, worth
from trtllm_kit.tune.simulated import LONG

if TYPE_CHECKING:
    from trtllm_kit.tune.search import Hopeful, Search

CLIMBERS, STEPS_OF_A_CLIMB, STEP = 6, 8, 2**0.25
"""Shapes whose load is searched, tries of each, and the factor between two loads."""


def climb(search: Search) -> None:
    """Simulate the best shapes at loads around the forecast's, up to the most that keeps the promise."""
    known = {hopeful.candidate: hopeful for hopeful in search.hopefuls}
    order, slo = search.own_first(), search.question.slo
    tried: set[tuple[object, int]] = set()
    for _ in range(CLIMBERS):
        left = [
            point
            for point in search.points
            if point.certain and (point.candidate.shape, point.candidate.replicas) not in tried
        ]
        kept = [point for point in left if not missed(point.seen, slo)]
        start = best(kept or left, search.question.objective, order)
        if start is None:
            break
        tried.add((start.candidate.shape, start.candidate.replicas))
        _climb_from(search, start, known)


def _climb_from(search: Search, start: Point, known: dict[Candidate, Hopeful]) -> None:
    """Go up in load while the promise holds and the objective gains, or down until it holds."""
    asked, at = search.question, start
    up = not missed(start.seen, asked.slo)
    for _ in range(STEPS_OF_A_CLIMB):
        load = ceil(at.concurrency * STEP) if up else min(floor(at.concurrency / STEP), at.concurrency - 1)
        wanted = _with_places(at.candidate, load, known)
        if wanted is None or load < 1:
            return
        hopeful = replace(known[wanted], concurrency=load)
        seen = search.see([hopeful], LONG)[0]
        search.simulated += 1
        search.add(hopeful, seen, certain=True)
        after, holds = search.points[-1], not missed(seen, asked.slo)
        if up and (not holds or worth(after, asked.objective) <= worth(at, asked.objective)):
            return
        if not up and holds:
            return
        at = after


def _with_places(candidate: Candidate, load: int, known: dict[Candidate, Hopeful]) -> Candidate | None:
    """Return the candidate whose batch has a place for each request, the smallest; None without one."""
    share, own = ceil(load / candidate.replicas), _without_batch(candidate)
    alike = [other for other in known if other.slots >= share and _without_batch(other) == own]
    return min(alike, key=lambda other: other.slots, default=None)


def _without_batch(candidate: Candidate) -> tuple[object, ...]:
    one = candidate
    return one.shape, one.replicas, one.max_num_tokens, one.chunked_prefill, one.kv_fraction, one.policy
