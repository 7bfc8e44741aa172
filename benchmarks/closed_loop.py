"""A second, independent simulation of closed loops, which asks the clock once for each kind of step: it can be noted.

``fit.py`` takes notes with it, and tests hold the product's ``estimate.batching`` against it; no figure of accuracy
comes from here.
Every slot sends its next request when its last one is answered. A step takes the waiting prompts that fit
``max_num_tokens`` and the KV cache to their ends, and every running request on. Prompts are held back by the rules of
``estimate.hold``, written again here.

The host is a step behind, as with the overlap scheduler: tokens of a step reach the client when the next one ends, and
what the client then sends is too late for the step that begins there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from statistics import fmean

from benchmarks.points import Point, Times
from trtllm_kit.estimate.hold import EveryRank, FullStep
from trtllm_kit.estimate.work import Chunk, Clock, StepWork


@dataclass(slots=True)
class _Request:
    prompt: int
    answer: int
    sent: float
    rank: int
    blocks: int
    first: float = 0.0
    """When its first token reached the client."""
    left: float = 0.0


@dataclass(slots=True)
class _Rank:
    free: int
    """KV blocks."""
    running: int = 0
    queued: int = 0


def run_loop(point: Point, clock: Clock) -> Times:
    """Run a point's load; the times are those inside the engine."""
    loop = _Loop(point, clock)
    loop.run(point.workload.lengths, point.run.slots)
    return Times(fmean(ttft for ttft, _ in loop.done), fmean(tpot for _, tpot in loop.done))


class _Loop:
    def __init__(self, point: Point, clock: Clock) -> None:
        subject, run = point.subject, point.run
        self.clock, self.subject, self.hold = clock, subject, run.hold
        count = subject.split.data
        self.ranks = [_Rank(subject.kv_tokens // subject.tokens_per_block // count) for _ in range(count)]
        self.slots = subject.max_batch_size
        self.now, self.waited, self.batched = 0.0, 0, 0
        self.together = False
        """Whether each rank has a prompt and a slot for it."""
        self.queue: deque[_Request] = deque()
        self.late: list[_Request] = []
        """Requests that came too late for the step that begins."""
        self.fresh = False
        """Whether requests came since the last step began."""
        self.begun: list[_Request] = []
        """Requests whose first token the last step made."""
        self.ended: list[_Request] = []
        """Requests whose last token it made."""
        self.running: list[_Request] = []
        self.done: list[tuple[float, float]] = []
        self.left: deque[tuple[int, int]] = deque()
        self.width, self.rate = subject.width, subject.tokens_a_step

    def run(self, lengths: Iterable[tuple[int, int]], slots: int) -> None:
        """Answer requests of given lengths."""
        self.left.extend(lengths)
        for _ in range(min(slots, len(self.left))):
            self._send()
        while self.queue or self.running or self.ended or self.late:
            if not self.running:
                self._see()
            chosen = self._fitting()
            self._see()
            held = self._held_steps(chosen)
            if chosen and not held:
                self._mixed(chosen)
            elif self.running:
                self._decode(held)
            elif self.ended:
                self._tell()
            else:
                raise ValueError(f"a request of {self.queue[0].prompt} tokens fits no step or no cache")

    def _send(self) -> None:
        prompt, answer = self.left.popleft()
        rank = min(range(len(self.ranks)), key=lambda number: self.ranks[number].running + self.ranks[number].queued)
        self.ranks[rank].queued += 1
        blocks = -(-(prompt + answer) // self.subject.tokens_per_block)
        self.late.append(_Request(prompt, answer, self.now, rank, blocks))

    def _see(self) -> None:
        """Let the next step but one see what came in this one."""
        self.fresh = bool(self.late)
        self.queue.extend(self.late)
        self.late = []

    def _fitting(self) -> list[_Request]:
        """Return the requests that could begin now: by rank, in order, as many as fit."""
        if not self.queue:
            return []
        room = [self.subject.max_num_tokens - self.width * rank.running for rank in self.ranks]
        slots = [self.slots - rank.running for rank in self.ranks]
        free = [rank.free for rank in self.ranks]
        chosen, full = list[_Request](), set[int]()
        for request in self.queue:
            rank = request.rank
            if rank in full:
                continue
            if not slots[rank] or request.prompt > room[rank] or request.blocks > free[rank]:
                full.add(rank)
                if len(full) == len(self.ranks):
                    break
                continue
            slots[rank] -= 1
            room[rank] -= request.prompt
            free[rank] -= request.blocks
            chosen.append(request)
        return chosen

    def _held_steps(self, chosen: list[_Request]) -> int:
        """Return for how many steps the chosen are held back, as far as can be said now."""
        if isinstance(self.hold, EveryRank):
            return self._unbalanced_steps(chosen, self.hold)
        if self.hold is None or not (chosen and self.running):
            return 0
        return self._unfilled_steps(chosen, self.hold)

    def _unfilled_steps(self, chosen: list[_Request], rule: FullStep) -> int:
        tokens = sum(request.prompt for request in chosen) + self.width * len(self.running)
        if tokens >= rule.share * self.subject.max_num_tokens or self.waited >= rule.rounds:
            self.waited = 0
            return 0
        return rule.rounds - self.waited

    def _unbalanced_steps(self, chosen: list[_Request], rule: EveryRank) -> int:
        """Return the steps until ranks stop to wait for each other; their count runs on while there is no prompt."""
        every = len({request.rank for request in chosen}) == len(self.ranks)
        self.together = every and all(rank.running < self.slots for rank in self.ranks)
        if self.together:
            self.waited = 0
            if all(rank.running for rank in self.ranks) and self.batched < rule.batching:
                return rule.batching - self.batched
            self.batched = 0
            return 0
        if not all(rank.running for rank in self.ranks) or self.waited >= rule.rounds - 1:
            self.waited = 0
            return 0
        return rule.rounds - 1 - self.waited

    def _mixed(self, chosen: list[_Request]) -> None:
        taken = set(map(id, chosen))
        self.queue = deque(request for request in self.queue if id(request) not in taken)
        chunks = tuple(Chunk(request.prompt) for request in chosen)
        self.now += self.clock.seconds(StepWork(chunks, len(self.running), self._context(), self.width))
        self._tell()
        for request in self.running:
            request.left -= self.rate
        for request in chosen:
            rank = self.ranks[request.rank]
            rank.queued, rank.running, rank.free = rank.queued - 1, rank.running + 1, rank.free - request.blocks
            request.left = request.answer - 1
            self.running.append(request)
        self.begun = chosen
        self._finish()

    def _context(self) -> int:
        return round(sum(request.prompt + request.answer - request.left for request in self.running))

    def _decode(self, most: int) -> None:
        """Generate until a request ends, or for ``most`` steps where prompts are held back."""
        steps = max(1, ceil(min(request.left for request in self.running) / self.rate))
        steps = min(steps, most) if most else steps
        steps = 1 if self.begun or self.ended or self.fresh else steps
        count, context = len(self.running), self._context()
        if self.width == 1:
            self.now += self.clock.decode_run(count, context, steps)
        else:
            middle = context + round(count * self.rate * (steps - 1) / 2)
            self.now += steps * self.clock.seconds(StepWork((), count, middle, self.width))
        for request in self.running:
            request.left -= steps * self.rate
        self._tell()
        self._count(steps, held=bool(most))
        self._finish()

    def _count(self, steps: int, held: bool) -> None:
        if isinstance(self.hold, EveryRank):
            self.waited = (self.waited + steps) % self.hold.rounds
            self.batched += steps if held and self.together else 0
        elif held:
            self.waited += steps

    def _finish(self) -> None:
        self.ended = [request for request in self.running if request.left <= 1e-9]
        if not self.ended:
            return
        self.running = [request for request in self.running if request.left > 1e-9]
        for request in self.ended:
            rank = self.ranks[request.rank]
            rank.free, rank.running = rank.free + request.blocks, rank.running - 1

    def _tell(self) -> None:
        """Let the client see what the step before this one made, at this one's end."""
        for request in self.begun:
            request.first = self.now
        for request in self.ended:
            tpot = (self.now - request.first) / max(1, request.answer - 1)
            self.done.append((request.first - request.sent, tpot))
            if self.left:
                self._send()
        self.begun, self.ended = [], []
