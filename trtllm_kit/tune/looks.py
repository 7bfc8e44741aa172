"""Which configurations are simulated: the most promising shortly, the best of those at length."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from trtllm_kit.tune.climb import climb
from trtllm_kit.tune.points import Seen, missed, plainness, worth
from trtllm_kit.tune.room import Refusal
from trtllm_kit.tune.simulated import LONG, SHORT, Effort
from trtllm_kit.tune.stopped import Stopped

if TYPE_CHECKING:
    from trtllm_kit.tune.search import Groups, Hopeful, Key, Search

MOST_REQUESTS = 40_000
"""Requests of all short simulations together: of large loads fewer are simulated."""
FEWEST = 12
"""Short simulations, whatever their requests: forecasts alone are no ground to choose by."""
MOST_FINAL_REQUESTS, FEWEST_FINALISTS = 9_000, 4
"""Requests of one round of long ones, and how many of these there are whatever their requests."""
VARIANTS = 6
"""Limits around one shape that are simulated before those of others have had their turn."""
MOST_LOOKS = 3
"""Rounds of long simulations, when none before keeps the promise."""
NEARLY = 1.1
"""Factor by which a short simulation may miss a promise and still be looked at again."""


def simulate_best(search: Search) -> None:
    """Simulate the most promising shortly, then the best of them at length; what is not simulated is told of."""
    every: Groups = {}
    for hopeful in search.hopefuls:
        every.setdefault(search.alike(hopeful), []).append(hopeful)
    groups = _chosen(search, every)
    for place, (key, group) in enumerate(every.items(), start=1):
        if key not in groups:
            words = f"place {place:,} of {len(every):,} by forecast, {len(groups)} are simulated"
            refusal = Refusal("rank", "Others promise more, and it was not simulated.", words)
            search.stopped += [Stopped(hopeful.candidate.shape, hopeful.candidate, refusal) for hopeful in group]
    search.simulated = len(groups)
    seen = dict(zip(groups, search.see([group[0] for group in groups.values()], SHORT), strict=True))
    looked_at = _look_again(search, groups, seen)
    for key, group in groups.items():
        for hopeful in group:
            search.add(hopeful, seen[key], certain=key in looked_at)
    if search.question.concurrency is None and search.question.rate is None:
        climb(search)


def _chosen(search: Search, every: Groups) -> Groups:
    """Return the groups to simulate: the first, but of one shape and count of replicas no more than ``VARIANTS``.

    What is left of the requests that all may have together goes to further variants.
    """
    variants: Counter[object] = Counter()
    first: list[Key] = []
    further: list[Key] = []
    for key, group in every.items():
        kind = (group[0].candidate.shape, group[0].candidate.replicas)
        variants[kind] += 1
        (first if variants[kind] <= VARIANTS else further).append(key)
    chosen: Groups = {}
    requests = 0
    for key in (*first, *further):
        requests += _cost(search, every[key][0], SHORT)
        if len(chosen) >= search.most_simulated or (len(chosen) >= FEWEST and requests > MOST_REQUESTS):
            break
        chosen[key] = every[key]
    return chosen


def _look_again(search: Search, groups: Groups, seen: dict[Key, Seen]) -> set[Key]:
    """Simulate the best at length, and the next best as long as none of them keeps the promise."""
    order = sorted(groups, key=lambda key: _standing(search, groups[key][0], seen[key]))
    looked_at: set[Key] = set()
    for _ in range(MOST_LOOKS):
        some = _next(search, order[len(looked_at) :], groups)
        seen |= zip(some, search.see([groups[key][0] for key in some], LONG), strict=True)
        looked_at |= set(some)
        if any(not missed(seen[key], search.question.slo) for key in some):
            break
    return looked_at


def _next(search: Search, order: list[Key], groups: Groups) -> list[Key]:
    """Return the first of an order, as many as their requests allow."""
    some: list[Key] = []
    requests = 0
    for key in order[: search.finalists]:
        requests += _cost(search, groups[key][0], LONG)
        if len(some) >= FEWEST_FINALISTS and requests > MOST_FINAL_REQUESTS:
            break
        some.append(key)
    return some


def _standing(search: Search, hopeful: Hopeful, seen: Seen) -> tuple[float, float, tuple[float, ...]]:
    """Return what a first look says of a configuration, the best first: its miss, its worth, how little it asks for.

    At a given rate all that keep up are worth the same, and the plainest of them are looked at again.
    """
    point = search.point(hopeful, seen)
    miss = max(missed(seen, search.question.slo).values(), default=1.0)
    value = float(f"{worth(point, search.question.objective):.6g}")
    return (miss if miss > NEARLY else 1.0), -value, plainness(point.candidate)


def _cost(search: Search, hopeful: Hopeful, effort: Effort) -> int:
    """Return what a simulation takes, in requests whose prompt is read in one step.

    One that comes at a time of its own counts twice: it breaks a run of steps, as its end does.
    """
    pieces = -(-search.question.mean_input // hopeful.candidate.max_num_tokens)
    load = search.load(hopeful)
    return effort.requests(load) * (1 + pieces) // (2 if load.rate is None else 1)
