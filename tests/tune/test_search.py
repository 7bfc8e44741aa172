"""The search: nothing is lost, bounds are bounds, what shares a simulation has the same figures, the best is found."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from tests.support.specs import hardware
from tests.tune.searches import PlainClock, asked, in_turn, searched, small_search
from trtllm_kit.estimate.outcome import Slo
from trtllm_kit.tune.candidates import shapes
from trtllm_kit.tune.parallel import Task, see, see_all
from trtllm_kit.tune.points import Seen, missed, plainness, worth
from trtllm_kit.tune.question import Objective, Question
from trtllm_kit.tune.search import Hopeful, Search
from trtllm_kit.tune.simulated import LONG, SHORT, Effort, Load


def look(search: Search, hopeful: Hopeful, effort: Effort = LONG) -> Task:
    """Return the simulation of a configuration."""
    share = -(-hopeful.concurrency // hopeful.candidate.replicas)
    subject = search.subject_of(hopeful)
    return Task(subject, hopeful.bounds.clock, search.question, Load(share), effort)


def test_every_configuration_is_simulated_or_has_what_stopped_it() -> None:
    """Nothing disappears: each is a point, or stands in the list with its constraint."""
    search = small_search()
    out = {one.candidate for one in search.stopped if one.candidate is not None}
    tried = {point.candidate for point in search.points}
    assert {hopeful.candidate for hopeful in search.hopefuls} <= out | tried
    assert all(one.refusal.constraint and one.refusal.compared for one in search.stopped)


def test_no_simulation_is_better_than_the_bounds() -> None:
    """First token, later tokens and rate of every simulated configuration are within its closed-form bounds."""
    search = small_search()
    forecasts = {hopeful.candidate: hopeful.forecast for hopeful in search.hopefuls}
    for point in search.points:
        bound = forecasts[point.candidate]
        assert bound.least_ttft_s <= point.seen.ttft.p95 * (1 + 1e-9)
        assert bound.least_tpot_s <= point.seen.tpot.mean * (1 + 1e-9)
        assert point.tokens_per_s <= bound.most_tokens_per_s * (1 + 1e-9)


def test_configurations_that_share_a_simulation_have_the_same_figures() -> None:
    """Limits that are never reached change nothing: the first and last of every group are seen alike."""
    search = small_search()
    groups: dict[object, list[Hopeful]] = {}
    for hopeful in search.hopefuls:
        groups.setdefault(search.alike(hopeful), []).append(hopeful)
    shared = [group for group in groups.values() if len(group) > 1]
    assert len(shared) > 10
    for group in shared[::7]:
        first, last = (see(look(search, hopeful, SHORT)) for hopeful in (group[0], group[-1]))
        assert first == last


@pytest.mark.parametrize("objective", ["throughput", "latency", "cost"])
def test_the_winner_is_as_good_as_the_best_of_all_simulated(objective: Objective) -> None:
    """With fewer simulations than configurations, the search ends where simulating every one would."""
    question = Question(256, 64, concurrency=8, objective=objective, weights=("fp8",))
    search = searched(question, most=24)
    winner = search.winner()
    assert winner is not None
    groups = {search.alike(hopeful): hopeful for hopeful in search.hopefuls}
    assert len(groups) > search.simulated
    best = max(worth(search.point(groups[key], seen), objective) for key, seen in every_one().items())
    assert worth(winner, objective) >= best * 0.97


@cache
def every_one() -> dict[object, Seen]:
    """Simulate every configuration at 8 requests, those that share a simulation once; no objective changes it."""
    search = searched(Question(256, 64, concurrency=8, weights=("fp8",)), most=1)
    groups = {search.alike(hopeful): hopeful for hopeful in search.hopefuls}
    return {key: see(look(search, hopeful)) for key, hopeful in groups.items()}


def test_the_same_question_has_the_same_answer() -> None:
    """Two searches agree in every point and everything that stopped."""
    question = Question(128, 32, concurrency=4)
    one, other = searched(question), searched(question)
    assert one.points == other.points
    assert [(stop.words(), stop.refusal) for stop in one.stopped] == [
        (stop.words(), stop.refusal) for stop in other.stopped
    ]


def test_simulations_on_several_cores_are_those_of_one() -> None:
    """How many processes there are changes no figure, and not their order."""
    search = small_search()
    tasks = [look(search, hopeful, SHORT) for hopeful in search.hopefuls[:320:8]]
    assert in_turn(tasks) == see_all(tasks)


def test_a_promise_is_kept_by_the_winner_and_broken_by_what_is_out_for_it() -> None:
    """The winner's own simulation keeps every limit, here half of what others need, and those are out for it."""
    middle = sorted(point.seen.tpot.p95 for point in small_search().points)[len(small_search().points) // 2]
    search = searched(Question(256, 64, concurrency=16, slo=Slo(tpot=middle)))
    winner = search.winner()
    assert winner is not None
    assert {} == missed(winner.seen, search.question.slo)
    out = Counter(one.refusal.constraint for one in search.stopped)
    assert out["tpot"]


def test_where_nothing_is_within_reach_the_nearest_is_found() -> None:
    """A promise below every bound has no winner, and the configuration that misses it by least."""
    search = searched(Question(256, 64, concurrency=4, slo=Slo(tpot=0.0001)))
    assert search.winner() is None
    nearest = search.nearest()
    assert nearest is not None
    least = min(point.seen.tpot.p95 for point in search.points if point.certain)
    assert least == nearest.seen.tpot.p95


def test_a_rate_beyond_what_the_replicas_answer_is_refused() -> None:
    """2,000 requests a second are more than two GPUs answer by any bound; 2 are answered by one GPU."""
    fast, slow = (searched(Question(256, 64, rate=rate), most=12) for rate in (2000.0, 2.0))
    assert fast.winner() is None
    assert "rate" in {one.refusal.constraint for one in fast.stopped}
    winner = slow.winner()
    assert winner is not None
    assert 1 == winner.candidate.gpus


def test_without_a_load_the_search_finds_the_most_that_keeps_the_promise() -> None:
    """The load found keeps the promise, and one of its shape a step higher does not, or gains nothing."""
    search = searched(Question(256, 64, slo=Slo(tpot=0.0095)), most=16)
    winner = search.winner()
    assert winner is not None
    assert winner.concurrency > 2
    alike = [
        point
        for point in search.points
        if point.certain
        and point.candidate.shape == winner.candidate.shape
        and point.candidate.replicas == winner.candidate.replicas
        and point.concurrency > winner.concurrency
    ]
    assert all(
        missed(point.seen, search.question.slo) or point.tokens_per_s < winner.tokens_per_s * 1.01 for point in alike
    )


def test_a_larger_load_takes_a_larger_batch() -> None:
    """The smallest batch that costs nothing grows with the requests at once: 4 of them need no 32 places."""
    batches = []
    for load in (2, 8, 32):
        winner = searched(Question(256, 64, concurrency=load), most=24).winner()
        assert winner is not None
        batches.append(winner.candidate.max_batch_size * winner.candidate.replicas)
    assert sorted(set(batches)) == batches
    assert batches[0] <= 4


def test_a_gpu_that_is_not_needed_is_left_idle_for_the_least_cost() -> None:
    """For cost one GPU at one request is better than two that halve its time by less than half."""
    search = searched(Question(256, 64, concurrency=1, objective="cost"))
    winner = search.winner()
    assert winner is not None
    assert 1 == winner.candidate.gpus


def test_replicas_that_share_a_load_unevenly_count_for_what_they_get() -> None:
    """Three requests over two replicas are one and a half times what the fuller of them makes, not twice."""
    search = searched(Question(256, 64, concurrency=3), most=12)
    seen = search.points[0].seen
    pairs = [search.point(one, seen) for one in search.hopefuls if one.candidate.replicas == 2]
    assert {1.5} == {point.copies for point in pairs}
    assert 1.5 * seen.tokens_per_s == pairs[0].tokens_per_s


def test_shapes_of_several_machines_are_compared() -> None:
    """Each machine's shapes carry its name, and its own figures."""
    what = asked(Question(256, 64, concurrency=4))
    other = hardware(1).model_copy(update={"name": "other"})
    both = replace(what, machines={**what.machines, "other": other})
    search = Search(both, PlainClock, in_turn, 20)
    search.run(shapes(both.model, both.loaded.profile, "unified_hf", both.machines.values(), both.question))
    assert {"test", "other"} == {hopeful.candidate.shape.machine for hopeful in search.hopefuls}


@pytest.mark.parametrize("concurrency", [1, 6, 48])
def test_answers_a_second_times_their_seconds_are_the_requests_under_way(concurrency: int) -> None:
    """Little's law holds for what is reported of users who wait for their answers, queue and emptying or not."""
    search = small_search()
    hopeful, load = search.hopefuls[0], Load(concurrency)
    task = Task(search.subject_of(hopeful), hopeful.bounds.clock, search.question, load, SHORT)
    seen = see(task)
    assert concurrency == pytest.approx(seen.requests_per_s * seen.e2e.mean)
    long = see(replace(task, effort=Effort(1000)))
    assert long.tokens_per_s == pytest.approx(seen.tokens_per_s, rel=0.03)


def test_arrivals_that_are_kept_up_with_are_all_answered() -> None:
    """A rate below what the engine can is the rate of answers; of one above it, what the engine can is."""
    search = small_search()
    hopeful = max(search.hopefuls, key=lambda one: one.candidate.max_batch_size)
    task = Task(search.subject_of(hopeful), hopeful.bounds.clock, search.question, Load(64, 1e9), LONG)
    flooded = see(task)
    kept_up = see(replace(task, load=Load(8, flooded.requests_per_s / 2)))
    assert (flooded.requests_per_s / 2, 0.0) == (kept_up.requests_per_s, kept_up.lag)
    assert kept_up.requests_per_s * search.question.mean_output == kept_up.tokens_per_s
    closed = see(replace(task, load=Load(hopeful.candidate.max_batch_size), effort=LONG))
    assert closed.requests_per_s == pytest.approx(flooded.requests_per_s, rel=0.1)


def test_of_all_that_keep_up_with_a_rate_the_plainest_wins() -> None:
    """Two requests a second are answered by all that keep up: the winner takes the fewest GPUs, and asks least."""
    search = searched(Question(256, 64, rate=2.0))
    winner = search.winner()
    assert winner is not None
    kept_up = [point for point in search.kept if point.seen.lag == 0]
    assert {2.0} == {round(point.requests_per_s, 9) for point in kept_up}
    assert min(plainness(point.candidate)[:5] for point in kept_up) == plainness(winner.candidate)[:5]
