"""Search: every legal configuration bounded in closed form, the most promising simulated, the best one planned.

Whatever is left out keeps the constraint that stopped it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import ceil

from trtllm_kit.estimate.subject import Subject
from trtllm_kit.estimate.work import Clock
from trtllm_kit.tune import candidates as choices
from trtllm_kit.tune.bounds import Bounds, Forecast, limits_refusal, prompt_refusal
from trtllm_kit.tune.candidates import Candidate, Shape
from trtllm_kit.tune.looks import simulate_best
from trtllm_kit.tune.parallel import Task, see_all
from trtllm_kit.tune.pareto import front
from trtllm_kit.tune.points import Point, Seen, best, missed, missed_words, power_limit
from trtllm_kit.tune.question import Question
from trtllm_kit.tune.room import Asked, Refusal, Room, room_of
from trtllm_kit.tune.simulated import Effort, Load
from trtllm_kit.tune.stopped import Stopped

MOST_SIMULATED = 200
FINALISTS = 24
"""Of the simulated, those that are simulated again at length."""
LEAST_BAD = 64
"""Where nothing is within reach, how many are looked at to find the nearest."""
SeeAll = Callable[[Sequence[Task]], list[Seen]]


@dataclass(frozen=True, slots=True, eq=False)
class Hopeful:
    """A configuration that its bounds let through, at the load it is to be simulated at."""

    candidate: Candidate
    bounds: Bounds
    forecast: Forecast
    concurrency: int
    promise: float
    """What the objective makes of the forecast; more is better."""
    miss: float
    """Largest factor by which the forecast misses a promise; 1 when it keeps all."""


Key = tuple[object, ...]
Groups = dict[Key, list[Hopeful]]


@dataclass
class Search:
    """One search and what it found."""

    asked: Asked
    clock_of: Callable[[Subject], Clock]
    see_all: SeeAll = see_all
    most_simulated: int = MOST_SIMULATED
    finalists: int = FINALISTS
    stopped: list[Stopped] = field(default_factory=list)
    hopefuls: list[Hopeful] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    _out_of_reach: list[tuple[float, Hopeful]] = field(default_factory=list)
    """What bounds refuse, with the factor by which a promise is missed at least."""
    bounded: int = 0
    """Configurations whose memory and limits are legal, and that were bounded in closed form."""
    simulated: int = 0
    """Simulations that were run; configurations that a simulation cannot tell apart share one."""

    @property
    def question(self) -> Question:
        """What is asked."""
        return self.asked.question

    @property
    def kept(self) -> list[Point]:
        """Simulated points that keep the promise."""
        return [point for point in self.points if not missed(point.seen, self.question.slo)]

    def run(self, shapes: list[Shape]) -> None:
        """Bound every configuration of the shapes, then simulate the most promising."""
        for shape in shapes:
            room = room_of(self.asked, shape)
            if isinstance(room, Refusal):
                self.stopped.append(Stopped(shape, None, room))
            else:
                self._bound(room)
        if not self.hopefuls:
            self._take_the_least_bad()
        self.hopefuls.sort(key=lambda one: (one.miss > 1, one.miss if one.miss > 1 else 0.0, -one.promise))
        ahead = self._of_the_front()
        self.hopefuls.sort(key=lambda one: one not in ahead)  # stable: the order stays within both groups
        simulate_best(self)

    def _take_the_least_bad(self) -> None:
        """Where every configuration is out of reach by its bounds, let those through that come nearest."""
        self._out_of_reach.sort(key=lambda one: one[0])
        self.hopefuls = [hopeful for _, hopeful in self._out_of_reach[:LEAST_BAD]]
        again = {hopeful.candidate for hopeful in self.hopefuls}
        self.stopped = [one for one in self.stopped if one.candidate not in again]

    def _of_the_front(self) -> set[Hopeful]:
        """Return configurations, one of each shape and count of replicas, that none is forecast to beat in both speeds.

        They are simulated whatever the objective, so that the front is more than the neighbourhood of the winner.
        """
        first: dict[tuple[Shape, int], Hopeful] = {}
        for hopeful in self.hopefuls:
            first.setdefault((hopeful.candidate.shape, hopeful.candidate.replicas), hopeful)
        found = front(
            first.values(),
            across=lambda one: 1 / one.forecast.tpot_s,
            up=lambda one: one.forecast.tokens_per_s / one.candidate.gpus,
        )
        return set(found[: self.most_simulated // 2])

    def winner(self) -> Point | None:
        """Return the best point that keeps the promise; None when none does."""
        order = self.own_first()
        return best([point for point in self.kept if point.certain], self.question.objective, order)

    def nearest(self) -> Point | None:
        """Return the simulated point that misses the promise by least; None when nothing could be simulated."""
        looked_at = [point for point in self.points if point.certain]
        if not looked_at:
            return None
        slo = self.question.slo
        return min(looked_at, key=lambda point: max(missed(point.seen, slo).values(), default=1.0))

    def own_first(self) -> dict[Candidate, int]:
        """Order configurations alike in everything else: the profile's own settings before others."""
        profile = self.asked.loaded.profile
        return {
            point.candidate: sum(
                (
                    point.candidate.policy != profile.scheduler.policy,
                    point.candidate.chunked_prefill != profile.scheduler.chunked_prefill,
                    point.candidate.kv_fraction != profile.kv_cache.free_gpu_memory_fraction,
                )
            )
            for point in self.points
        }

    def _bound(self, room: Room) -> None:
        bounds = Bounds(room, self.clock_of(room.subject), self.question)
        for candidate, refusal in self._candidates(room):
            if refusal is not None:
                self.stopped.append(Stopped(room.shape, candidate, refusal))
                continue
            self.bounded += 1
            concurrency, forecast = self._at_best_load(bounds, candidate)
            hopeful = self._hopeful(candidate, bounds, forecast, concurrency)
            beyond = bounds.beyond(forecast)
            if not beyond:
                self.hopefuls.append(hopeful)
                continue
            factor, why = max(beyond.values(), key=lambda one: one[0])
            self.stopped.append(Stopped(room.shape, candidate, why))
            self._out_of_reach.append((factor, hopeful))

    def _candidates(self, room: Room) -> Iterator[tuple[Candidate, Refusal | None]]:
        """Yield every configuration of a shape, with what in its own sizes stops it."""
        profile, shape = self.asked.loaded.profile, room.shape
        machine = self.asked.machines[shape.machine]
        fractions = sorted({choices.USUAL_FRACTION, profile.kv_cache.free_gpu_memory_fraction})
        replicas = choices.replica_counts(machine, shape.ranks)
        batches = choices.ladder(choices.BATCHES, profile.limits.max_batch_size)
        steps = choices.ladder(choices.STEP_TOKENS, profile.limits.max_num_tokens)
        for batch, step, fraction in product(batches, steps, fractions):
            sized = limits_refusal(room, batch, step, fraction)
            budget = room.kv_budget(batch, step, fraction)
            tokens = 0 if sized else room.kv_tokens(budget, self.question.tokens)
            whole = sized or prompt_refusal(self.question.input_tokens, step)
            policies = self._policies(tokens, shape.split.places(batch))
            for (chunked, refused), policy, count in product(((True, sized), (False, whole)), policies, replicas):
                yield Candidate(shape, count, batch, step, chunked, fraction, policy, tokens), refused

    def _policies(self, kv_tokens: int, places: int) -> tuple[str, ...]:
        """Return the policies that make a difference: only the profile's own where every request has its blocks."""
        own = self.asked.loaded.profile.scheduler.policy
        return (own,) if kv_tokens >= places * self.question.tokens else choices.POLICIES

    def _at_best_load(self, bounds: Bounds, candidate: Candidate) -> tuple[int, Forecast]:
        """Return the load to simulate a configuration at, with its forecast there."""
        asked = self.question
        if asked.concurrency is not None:
            return asked.concurrency, bounds.forecast(candidate, asked.concurrency)
        if asked.rate is not None:
            load = bounds.concurrency_at(candidate, asked.rate)
            return load, bounds.forecast(candidate, load)
        load = candidate.replicas * bounds.places(candidate)  # smaller loads are those of smaller batches
        return load, bounds.forecast(candidate, load)

    def _hopeful(self, candidate: Candidate, bounds: Bounds, forecast: Forecast, concurrency: int) -> Hopeful:
        promise, miss = self._promise(candidate, forecast), self._miss(forecast)
        return Hopeful(candidate, bounds, forecast, concurrency, promise, miss)

    def _promise(self, candidate: Candidate, forecast: Forecast) -> float:
        asked, machine = self.question, self.asked.machines[candidate.shape.machine]
        per_gpu = forecast.tokens_per_s / candidate.gpus
        if asked.objective == "throughput":
            return forecast.tokens_per_s
        if asked.objective == "latency":
            return 1 / (forecast.ttft_s + forecast.tpot_s * asked.mean_output)
        if asked.objective == "cost":
            return per_gpu / (asked.price_of(candidate.shape.machine) or 1.0)
        return per_gpu / (power_limit(machine) or 1.0)

    def _miss(self, forecast: Forecast) -> float:
        slo = self.question.slo
        seen = {
            "ttft": forecast.ttft_s,
            "tpot": forecast.tpot_s,
            "e2e": forecast.ttft_s + forecast.tpot_s * self.question.mean_output,
        }
        return max((seen[name] / limit for name, limit in slo.limits.items() if name in seen), default=1.0)

    def see(self, hopefuls: list[Hopeful], effort: Effort) -> list[Seen]:
        """Simulate configurations, each at its load."""
        tasks = [
            Task(self.subject_of(one), one.bounds.clock, self.question, self.load(one), effort) for one in hopefuls
        ]
        return self.see_all(tasks)

    def load(self, hopeful: Hopeful) -> Load:
        """Return what the fullest replica of a configuration gets to do."""
        replicas, rate = hopeful.candidate.replicas, self.question.rate
        share = ceil(hopeful.concurrency / replicas)
        return Load(share, None if rate is None else rate / replicas)

    def subject_of(self, hopeful: Hopeful) -> Subject:
        """Return one replica of a configuration as it is timed."""
        return subject_with(hopeful.bounds.room, hopeful.candidate)

    def alike(self, hopeful: Hopeful) -> Key:
        """Return what a simulation can tell of a configuration: limits that are never reached change nothing."""
        candidate, asked = hopeful.candidate, self.question
        load = self.load(hopeful)
        under_way = load.concurrency if load.rate is None else candidate.slots
        slots = min(candidate.slots, 2 * under_way)  # the place of one who leaves is free a step later
        roomy = candidate.kv_tokens >= slots * (asked.tokens + 2 * hopeful.bounds.room.subject.tokens_per_block)
        most = slots * (asked.input_tokens + 1)
        return (
            candidate.shape,
            load,
            slots,
            min(candidate.max_num_tokens, most),
            candidate.chunked_prefill or candidate.max_num_tokens >= most,
            None if roomy else (candidate.kv_tokens, candidate.policy),
        )

    def point(self, hopeful: Hopeful, seen: Seen, *, certain: bool = False) -> Point:
        """Return a configuration with what was seen of it."""
        candidate = hopeful.candidate
        machine = self.asked.machines[candidate.shape.machine]
        load = self.load(hopeful)
        copies = candidate.replicas if load.rate is not None else hopeful.concurrency / load.concurrency
        price = self.question.price_of(candidate.shape.machine)
        return Point(candidate, hopeful.concurrency, copies, seen, power_limit(machine), price, certain)

    def add(self, hopeful: Hopeful, seen: Seen, *, certain: bool) -> None:
        """Keep what a simulation saw; ``certain`` says that it was a long one."""
        point, slo = self.point(hopeful, seen, certain=certain), self.question.slo
        self.points.append(point)
        broken = missed(seen, slo)
        if broken:
            worst = max(broken, key=lambda name: broken[name])
            refusal = Refusal(worst, f"Simulated, it misses {worst}.", missed_words(seen, slo))
            self.stopped.append(Stopped(hopeful.candidate.shape, hopeful.candidate, refusal))


def subject_with(room: Room, candidate: Candidate) -> Subject:
    """Return one replica of a shape under a candidate's limits."""
    return replace(
        room.subject,
        max_batch_size=candidate.max_batch_size,
        max_num_tokens=candidate.max_num_tokens,
        chunked_prefill=candidate.chunked_prefill,
        scheduler_policy=candidate.policy,
        kv_tokens=candidate.kv_tokens,
    )
