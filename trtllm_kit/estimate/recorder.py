"""Takes notes of a simulation's steps and makes an ``Outcome`` of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import inf

from trtllm_kit.estimate.outcome import Moment, Outcome, Served, Steps
from trtllm_kit.estimate.run import Run
from trtllm_kit.estimate.scheduler import Job
from trtllm_kit.estimate.spread import spread, spread_of

MOST_MOMENTS = 200
"""Points of a timeline; of longer runs every second, fourth and so on is kept."""
PIECES = 4
"""Parts of a run of generation steps in which the gap counts as the same."""


class Recorder:
    """Notes of one simulation; figures begin at the first counted request."""

    def __init__(self, counted: range, host: tuple[float, float] = (0.0, 0.0)) -> None:
        """Count requests of those numbers; ``host`` seconds pass before and after all steps of a request."""
        self._before, self._after = host
        self._counted = counted
        self._left = len(counted)
        self._answers = 0
        self._start = inf
        self._end = 0.0
        self._served: list[Served] = []
        self._refused: Counter[str] = Counter()
        self._gaps: list[tuple[float, int]] = []
        self._tokens = 0.0
        self._kinds = (_Sums(), _Sums())
        self._over_time = _OverTime()
        self._pauses = 0

    def arrive(self, number: int, time: float) -> None:
        """Note that a client sends a request."""
        if number in self._counted:
            self._start = min(self._start, time)

    @property
    def complete(self) -> bool:
        """Every counted request was answered or refused."""
        return not self._left

    def refuse(self, number: int, why: str) -> None:
        """Note a request that can never run."""
        self._refused[why] += 1
        self._left -= number in self._counted

    def read(self, run: Run) -> None:
        """Note a step of a server that reads prompts for others."""
        if run.end > self._start:
            self._kinds[0].add(run)

    def step(self, run: Run) -> None:
        """Note steps."""
        if run.end <= self._start:
            return
        self._tokens += run.tokens
        self._pauses += run.paused
        self._gaps += _gaps(run)
        self._kinds[0 if run.prompt_tokens else 1].add(run)
        self._over_time.add(run)

    def end(self, job: Job, arrival: float) -> None:
        """Note an answer."""
        self._answers += job.last > self._start
        if job.number not in self._counted:
            return
        self._left -= 1
        self._end = max(self._end, job.last)
        request = job.request
        self._served.append(
            Served(
                number=job.number,
                arrival=arrival - self._before,
                scheduled=job.scheduled,
                first=job.first + self._after,
                last=job.last + self._after,
                prompt=request.prompt,
                answer=request.answer,
                reused=job.reused,
                pauses=job.pauses,
                longest_gap=job.gap,
            )
        )

    def outcome(self, evicted_blocks: int) -> Outcome:
        """Return what was found."""
        served, over_time = self._served, self._over_time
        return Outcome(
            served=tuple(served),
            refused=tuple(sorted(self._refused.items())),
            ttft=spread_of(one.ttft for one in served),
            tpot=spread_of(one.tpot for one in served if one.answer > 1),
            gap=spread(self._gaps),
            e2e=spread_of(one.e2e for one in served),
            queue=spread_of(one.queue for one in served),
            seconds=max(0.0, self._end - self._start) if served else 0.0,
            answers=self._answers,
            output_tokens=round(self._tokens),
            prompt_steps=self._kinds[0].steps(),
            generation_steps=self._kinds[1].steps(),
            pauses=self._pauses,
            evicted_blocks=evicted_blocks,
            mean_active=over_time.mean(over_time.active),
            mean_queued=over_time.mean(over_time.queued),
            most_queued=over_time.most_queued,
            mean_held=over_time.mean(over_time.held),
            most_held=over_time.most_held,
            timeline=tuple(over_time.moments),
        )


def host_of(clock: object) -> tuple[float, float]:
    """Return the seconds of a request before and after all its steps that a clock knows of; 0 where it knows none."""
    return getattr(clock, "request_seconds", 0.0), getattr(clock, "reply_seconds", 0.0)


def _gaps(run: Run) -> Iterator[tuple[float, int]]:
    """Yield the gaps between pieces of answers, with counts; in a run of steps they grow in a straight line."""
    yield from ((run.end - job.heard, 1) for job in run.began if job.first < run.end and job.pauses)
    if not run.sequences:
        return
    if run.steps < PIECES or run.last_seconds < 1.01 * run.first_seconds:
        yield run.seconds / run.steps, run.steps * run.sequences
        return
    mean, slope = run.seconds / run.steps, run.last_seconds - run.first_seconds
    for piece in range(PIECES):
        steps = run.steps * (piece + 1) // PIECES - run.steps * piece // PIECES
        yield mean + slope * ((piece + 0.5) / PIECES - 0.5), steps * run.sequences


class _Sums:
    """Sums over the steps of a kind."""

    def __init__(self) -> None:
        self.count = 0
        self.seconds = self.sequences = self.context = 0.0
        self.prompt_tokens = self.prompts = self.looked_back = 0

    def add(self, run: Run) -> None:
        self.count += run.steps
        self.seconds += run.seconds
        self.sequences += run.steps * run.sequences
        self.context += run.steps * (run.state.kv_tokens - run.sequences * run.steps / 2)
        self.prompt_tokens += run.prompt_tokens
        self.prompts += run.prompts
        self.looked_back += run.looked_back

    def steps(self) -> Steps:
        count = self.count or 1
        return Steps(
            self.count,
            self.seconds,
            self.sequences / count,
            self.context / count,
            self.prompt_tokens / count,
            self.prompts / count,
            self.looked_back / (self.prompt_tokens or 1),
        )


class _OverTime:
    """What the engine held, weighted by time, and points of it."""

    def __init__(self) -> None:
        self.seconds = self.active = self.queued = self.held = 0.0
        self.most_queued = 0
        self.most_held = 0.0
        self.moments: list[Moment] = []
        self._every = 1
        self._seen = 0

    def add(self, run: Run) -> None:
        state, seconds = run.state, run.seconds
        held = state.kv_held / state.kv_blocks if state.kv_blocks else 0.0
        self.seconds += seconds
        self.active += seconds * state.active
        self.queued += seconds * state.queued
        self.held += seconds * held
        self.most_queued = max(self.most_queued, state.queued)
        self.most_held = max(self.most_held, held)
        self._seen += 1
        if self._seen % self._every == 0:
            self._keep(run, held)

    def mean(self, total: float) -> float:
        return total / self.seconds if self.seconds else 0.0

    def _keep(self, run: Run, held: float) -> None:
        state = run.state
        blocks = state.kv_blocks or 1
        filled = state.kv_tokens / (blocks * state.tokens_per_block)
        cached = state.kv_cached / blocks
        self.moments.append(Moment(state.time, state.active, state.queued, held, filled, cached, run.prompt_tokens))
        if len(self.moments) >= MOST_MOMENTS:
            self.moments = self.moments[1::2]
            self._every *= 2
