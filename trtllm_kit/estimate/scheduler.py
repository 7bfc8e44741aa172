"""What a step takes in: admission by blocks and slots, chunks of prompts by tokens, pauses when blocks run out.

A cell is what is scheduled on its own: requests of one pipeline micro-batch on one rank of attention data parallelism;
without either a replica has one. The rules are those of TensorRT-LLM's in-flight batching: generating requests come
first, prompts fill the rest of the step in the order of arrival, and a prompt is cut at whole blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from trtllm_kit.estimate.kv_blocks import Pool, Stretch
from trtllm_kit.estimate.pace import SINGLE, Pace
from trtllm_kit.estimate.workload import Request, Segment
from trtllm_kit.light import dataclass


class Job:
    """One request on its way through the engine; times are seconds of the engine's clock."""

    __slots__ = (
        "_text", "admitted", "arrival", "blocks", "born", "cached", "cell", "ends", "first", "gap", "heard", "last",
        "number", "own", "pace", "past", "path", "pauses", "prompt", "request", "reused", "round", "scheduled", "told",
        "unread",
    )  # fmt: skip

    def __init__(self, number: int, request: Request, arrival: float) -> None:
        """Begin waiting."""
        self.number = number
        self.request = request
        self.arrival = arrival
        self.prompt = request.prompt
        """Tokens to compute before it generates: the prompt, after a pause also what was generated."""
        self.told = 0
        """Tokens of the answer when it began to generate, or was paused."""
        self.unread = request.prompt
        self.past = 0
        """Tokens of ``prompt`` that are computed."""
        self.cached = False
        """Keys and values of the prompt came from another server, with the answer's first token."""
        self.path: list[Stretch] = []
        self.own = 0
        """Blocks that are this request's alone."""
        self.blocks = 0
        """All its blocks."""
        own = request.prompt - sum(segment.tokens for segment in request.shared)
        self._text = (*request.shared, Segment(-2 * number - 2, own)) if own else request.shared
        self.pace: Pace = SINGLE
        self.born = self.ends = -1
        """Rounds of the engine at which it began to generate, and at which its last token comes."""
        self.round = 0
        """Number of the gap before which it heard nothing."""
        self.scheduled = self.first = self.last = inf
        self.heard = 0.0
        """When it got its last token before a pause."""
        self.gap = 0.0
        """The longest time between two pieces of the answer."""
        self.reused = 0
        """Tokens of the prompt that were cached already when it was first admitted."""
        self.pauses = 0
        self.cell: Cell
        """Where it is active."""
        self.admitted = -1
        """Which admission it was, of all the engine made; the last pauses first."""

    @property
    def generates(self) -> bool:
        """Whether it is past its prompt and not at its end."""
        return self.born >= 0

    def context(self, tick: int) -> int:
        """Return the tokens it has cached at a round, as long as it generates."""
        return self.prompt + self.pace.after(tick - self.born)

    def emitted(self, tick: int) -> int:
        """Return the tokens of its answer at a round."""
        if not self.generates:
            return self.told
        return min(self.request.answer, self.told + self.pace.after(tick - self.born))

    def chain(self) -> tuple[Segment, ...]:
        """Return the text so far as segments; what no other request knows has keys of its own."""
        if not self.told:
            return self._text
        return (*self._text, Segment(self.request.answer_key or -2 * self.number - 1, self.told))


@dataclass(frozen=True)
class Rules:
    """What a cell is scheduled by."""

    slots: int
    """Requests at once."""
    tokens: int
    """Tokens of a step."""
    width: int
    """Tokens that a generating request brings to a step."""
    rate: float | None
    """Tokens that it gets from a step on average; None where that is drawn."""
    chunked: bool
    """Prompts are cut."""
    pauses: bool
    """Requests are admitted without blocks for their whole answer, and paused when blocks run out."""


class Cell:
    """Requests that are scheduled together, and the blocks they take from."""

    def __init__(self, pool: Pool, rules: Rules) -> None:
        """Begin empty."""
        self.pool = pool
        self.slots = rules.slots
        self.tokens = rules.tokens
        self.width = rules.width
        self.rate = rules.rate
        self.chunked = rules.chunked
        self.pauses = rules.pauses
        self.active: dict[int, Job] = {}
        """In the order of admission; those that leave are no longer here."""
        self.reading: list[Job] = []
        self.generating = 0
        self.leaving: list[Job] = []
        """At their end, with slot and blocks until the next step is over."""
        self.settled = 0.0
        """Tokens that requests wrote beyond their rate, or stayed below it, by the time they left; until it is read."""
        self._lead = 0.0
        """Sum of the contexts of the generating ones, taken back to round 0: at one rate they grow in a line."""

    @property
    def taken(self) -> int:
        """Slots that are not free."""
        return len(self.active) + len(self.leaving)

    @property
    def latest(self) -> Job:
        """The active request that was admitted last."""
        return self.active[next(reversed(self.active))]

    def context(self, tick: int) -> int:
        """Return the sum of cached tokens of the generating requests at a round."""
        if self.rate is not None:
            return int(self._lead + self.rate * self.generating * tick)
        return sum(job.context(tick) for job in self.active.values() if job.generates)

    def admit(self, job: Job) -> bool:
        """Give a request a slot and its blocks; False when there are not enough."""
        if self.taken >= self.slots:
            return False
        pool, need = self.pool, self.need(job)
        match = pool.match(job.chain())
        if need - match.blocks + match.unused > pool.room:
            if self.active or self.leaving or need > pool.room:
                return False
            match = pool.match(())
        pool.hold(match.path)
        pool.take(need - match.blocks)
        job.path, job.own, job.blocks = match.path, need - match.blocks, need
        block = pool.tokens_per_block
        job.past = min(match.blocks, (job.prompt - 1) // block) * block
        if not job.pauses:
            job.reused = job.past
        if job.cached:
            job.past = job.prompt
        job.unread = job.prompt - job.past
        job.cell = self
        self.active[job.number] = job
        self.reading.append(job)
        return True

    def need(self, job: Job) -> int:
        """Return the blocks a request must get to be admitted: for its whole answer, or for its next step alone."""
        tokens = job.prompt + 1 if self.pauses else job.request.prompt + job.request.most
        return self.pool.blocks_of(tokens + self.width - 1)

    def schedule(self) -> list[tuple[Job, int]]:
        """Return which prompts are read in the next step, and how many tokens of each.

        A prompt that is read whole and is longer than a step, as after a pause, gets a step without others' prompts.
        """
        left = self.tokens - self.generating * self.width
        chunks: list[tuple[Job, int]] = []
        for job in self.reading:
            size = self._piece(job, left, alone=not chunks)
            if size <= 0:
                break
            chunks.append((job, size))
            left -= size
        return chunks

    def _piece(self, job: Job, left: int, *, alone: bool) -> int:
        if job.unread <= left:
            return job.unread
        if not self.chunked:
            return job.unread if alone and job.unread > self.tokens else 0
        whole = left // self.pool.tokens_per_block * self.pool.tokens_per_block
        return whole if whole or not alone or self.generating else left

    def begin(self, job: Job, tick: int) -> None:
        """Let a request generate from this round on: its prompt is read."""
        self.reading.remove(job)
        job.born = tick
        self.generating += 1
        self._lead += job.prompt - (self.rate or 0.0) * tick
        job.own = self.pool.store(job.path, job.chain(), job.prompt, job.own)

    def end(self, job: Job, tick: int) -> None:
        """Take a request out of the next step; its slot and blocks stay taken until ``release``."""
        if job.generates:
            self.generating -= 1
            self._lead -= job.prompt - (self.rate or 0.0) * job.born
            told = job.emitted(tick)
            if self.rate is not None:
                self.settled += told - job.told - self.rate * (tick - job.born)
            job.told = told
            computed = min(job.context(tick), job.request.prompt + job.told - 1)
            job.born = -1
        else:
            computed = job.past
            self.reading.remove(job)
        del self.active[job.number]
        job.own = self.pool.store(job.path, job.chain(), computed, job.own)
        self.leaving.append(job)

    def release(self) -> None:
        """Free slots and blocks of the requests that leave."""
        gone, self.leaving = self.leaving, []
        for job in gone:
            self._free(job)

    def drop(self, job: Job, tick: int) -> None:
        """Take out an active request at once, with its slot and blocks."""
        self.end(job, tick)
        self.leaving.remove(job)
        self._free(job)

    def pause(self, job: Job, tick: int) -> None:
        """Take an active request's blocks; it is to compute its text again when it is admitted again."""
        self.drop(job, tick)
        job.prompt = job.unread = job.request.prompt + job.told
        job.past = 0
        job.cached = False
        job.pauses += 1

    def growth(self, tick: int, steps: int) -> int:
        """Return the blocks that the next ``steps`` generation steps need beyond those that are held."""
        return sum(more for _, more in self._growth(tick, steps))

    def grow(self, tick: int, steps: int) -> None:
        """Take those blocks."""
        for job, more in self._growth(tick, steps):
            self.pool.take(more)
            job.own += more
            job.blocks += more

    def _growth(self, tick: int, steps: int) -> Iterator[tuple[Job, int]]:
        """Yield each generating request and the blocks it lacks for so many steps, drafts included."""
        block = self.pool.tokens_per_block
        last = tick + steps - 1
        for job in self.active.values():
            if job.born >= 0:
                context = job.prompt + last - job.born if self.width == 1 else job.context(last)
                more = -(-(context + self.width) // block) - job.blocks
                if more > 0:
                    yield job, more

    def _free(self, job: Job) -> None:
        self.pool.leave(job.path)
        self.pool.give(job.own)
        job.path, job.own, job.blocks = [], 0, 0
