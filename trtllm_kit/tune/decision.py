"""From the best points of a search to a plan that holds: each is planned in full, and the first without errors wins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from trtllm_kit.findings import errors
from trtllm_kit.plan.decide import make_plan
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.remedies import with_changes
from trtllm_kit.spec.load import LoadedProfile
from trtllm_kit.tune.candidates import Candidate, candidate_changes
from trtllm_kit.tune.pareto import front
from trtllm_kit.tune.points import Point, missed_words, plainness, worth
from trtllm_kit.tune.room import Asked, Refusal
from trtllm_kit.tune.search import Search
from trtllm_kit.tune.stopped import Stopped, by_constraint


@dataclass(frozen=True, slots=True)
class Planned:
    """A point with the plan of its profile."""

    point: Point
    loaded: LoadedProfile
    """The profile with the point's keys."""
    changes: Mapping[str, Any]
    """Those keys, dotted."""
    plan: Plan


@dataclass(frozen=True)
class Decision:
    """What a search decided."""

    search: Search
    winner: Planned | None
    """None when no configuration keeps the promise."""
    nearest: Planned | None
    """Where there is no winner, the configuration that misses by least; None when nothing runs at all."""
    blocking: str
    """Where there is no winner, what stands in the way, with the numbers compared; empty otherwise."""

    @property
    def asked(self) -> Asked:
        """What was asked."""
        return self.search.asked

    @property
    def shown(self) -> Planned | None:
        """The winner, or what comes nearest."""
        return self.winner or self.nearest

    @property
    def front(self) -> list[Point]:
        """Points that none beats in both tokens/s/GPU and tokens/s/user: of those that keep the promise, if any do.

        Of one shape, count of replicas and load, which limits alone tell apart, the first is kept.
        """
        points = front(
            self.search.kept or self.search.points,
            across=lambda point: point.tokens_per_s_per_user,
            up=lambda point: point.tokens_per_s_per_gpu,
        )
        alike: dict[object, Point] = {}
        for point in points:
            alike.setdefault((point.candidate.shape, point.candidate.replicas, point.concurrency), point)
        return list(alike.values())


def decide(search: Search) -> Decision:
    """Plan the best point that keeps the promise; a plan with errors is out, and the next is taken."""
    while (point := search.winner()) is not None:
        planned = plan_of(search.asked, point)
        found = errors(planned.plan.findings)
        if not found:
            return Decision(search, planned, None, "")
        _take_out(search, point.candidate, Refusal(found[0].rule, found[0].message, found[0].compared))
    while (point := search.nearest()) is not None:
        planned = plan_of(search.asked, point)
        found = errors(planned.plan.findings)
        if not found:
            return Decision(search, None, planned, missed_words(point.seen, search.question.slo))
        _take_out(search, point.candidate, Refusal(found[0].rule, found[0].message, found[0].compared))
    return Decision(search, None, None, _in_the_way(search))


def plan_of(asked: Asked, point: Point) -> Planned:
    """Return the plan of a point's own profile."""
    candidate = point.candidate
    share = ceil(point.concurrency / candidate.replicas)
    held = min(share, candidate.slots, candidate.holds(asked.question.tokens))
    changes = candidate_changes(candidate, asked.loaded.profile, asked.question, held)
    loaded = with_changes(asked.loaded, changes)
    return Planned(point, loaded, changes, make_plan(asked.model, loaded, asked.machines[candidate.shape.machine]))


def _take_out(search: Search, candidate: Candidate, refusal: Refusal) -> None:
    search.points = [point for point in search.points if point.candidate != candidate]
    search.stopped.append(Stopped(candidate.shape, candidate, refusal))


def _in_the_way(search: Search) -> str:
    """Say what stopped most, where nothing could be simulated at all."""
    found = by_constraint(search.stopped)
    if not found:
        return "there was no configuration to try"
    why = found[0].example.refusal
    return f"{why.message} {why.compared} ({found[0].example.words()})"


def runners_up(decision: Decision, count: int) -> list[Point]:
    """Return the best other points that keep the promise, one for each shape and number of replicas, best first."""
    objective, seen = decision.search.question.objective, set()
    if decision.winner is not None:
        own = decision.winner.point.candidate
        seen.add((own.shape, own.replicas))
    kept = decision.search.kept or decision.search.points
    ordered = sorted(kept, key=lambda point: (-round(worth(point, objective), 6), plainness(point.candidate)))
    found: list[Point] = []
    for point in ordered:
        key = (point.candidate.shape, point.candidate.replicas)
        if key not in seen and len(found) < count:
            seen.add(key)
            found.append(point)
    return found
