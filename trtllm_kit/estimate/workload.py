"""The traffic of a simulation: lengths, arrivals, shared beginnings, conversations; the same for the same seed.

Lengths are drawn by request number before anything runs, so two engines under one workload serve the same tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass as slotted
from functools import cached_property
from heapq import heapify, heappop, heappush
from math import floor, inf
from random import Random

from trtllm_kit.errors import UsageError
from trtllm_kit.light import dataclass


@dataclass(frozen=True)
class Lengths:
    """Tokens of a prompt or an answer: uniform between two bounds, or drawn from a list.

    Each is one share of a seed's draws: with longer bounds every request is longer, and no other figure changes.
    """

    least: int
    most: int
    listed: tuple[int, ...] = ()
    """Where it is not empty each request takes the next of them, from the start again after the last."""

    def draw(self, random: Random, number: int) -> int:
        """Return the length of the request of that number."""
        if self.listed:
            return self.listed[number % len(self.listed)]
        return self.least + floor(random.random() * (self.most - self.least + 1))


def fixed(tokens: int) -> Lengths:
    """Return one length for all."""
    return Lengths(_positive(tokens), tokens)


def within(share: float, tokens: int) -> Lengths:
    """Return lengths from a share of the nominal one up to it, as serving benchmarks draw them (0.8 is usual)."""
    return Lengths(max(1, round(share * _positive(tokens))), tokens)


def listed(values: tuple[int, ...]) -> Lengths:
    """Return lengths that were recorded."""
    for value in values:
        _positive(value)
    return Lengths(min(values), max(values), values)


@dataclass(frozen=True)
class ClosedLoop:
    """So many users, each of whom sends the next request when the answer is there."""

    users: int
    think_seconds: float = 0.0
    """From the end of an answer to the user's next request."""


@dataclass(frozen=True)
class Poisson:
    """Arrivals that know nothing of each other, at a mean rate a second."""

    rate: float


@dataclass(frozen=True)
class Burst:
    """Everything at once, at time 0."""


@dataclass(frozen=True)
class Ramp:
    """Evenly spaced arrivals whose rate goes from one figure to another in a straight line."""

    first_rate: float
    last_rate: float


@dataclass(frozen=True)
class Trace:
    """Arrivals at given seconds from the start, ascending."""

    times: tuple[float, ...]


Arrivals = ClosedLoop | Poisson | Burst | Ramp | Trace


@slotted(frozen=True, slots=True)
class Segment:
    """A run of tokens that other prompts may have at the same place; equal keys mean equal tokens."""

    key: int
    tokens: int


@slotted(frozen=True, slots=True)
class Request:
    """One request as the engine sees it, and how long its answer will turn out."""

    prompt: int
    """Tokens."""
    answer: int
    """Tokens until the end token, which the engine cannot know."""
    asked: int = 0
    """Most tokens that the client asked for, which the scheduler reserves for; 0 is exactly ``answer``."""
    shared: tuple[Segment, ...] = ()
    """How the prompt begins, as far as other requests know it; the rest of it is this request's own."""
    answer_key: int = 0
    """Key under which later prompts repeat this answer; 0 when none does."""

    @property
    def most(self) -> int:
        """Tokens that the answer may take."""
        return max(self.asked, self.answer)


@dataclass(frozen=True)
class Workload:
    """Traffic, in full: what is asked, how often, and from which seed."""

    prompts: Lengths
    answers: Lengths
    arrivals: Arrivals
    requests: int
    """Requests in all; with conversations, turns of all of them."""
    seed: int = 0
    warmup: int = 0
    """Requests at the start, by number, that no figure counts."""
    cooldown: int = 0
    """Requests at the end, by number, that no figure counts: they keep the load up until the last counted answer."""
    asked: int = 0
    """``max_tokens`` of every request; 0 asks for exactly the answer."""
    shared_prefix: int = 0
    """Tokens that prompts begin with in common, e.g. a system prompt; part of the prompt's length."""
    prefixes: int = 1
    """Different such beginnings, in turn."""
    turns: int = 1
    """Requests of a conversation, each of which repeats all text before it."""
    draws: bool = False
    """How many drafts a step accepts is drawn by the seed; otherwise it is their mean."""

    @property
    def counted(self) -> range:
        """Numbers of the requests that figures count."""
        return range(self.warmup, self.requests - self.cooldown)

    @property
    def conversations(self) -> int:
        """Conversations; as many as requests where each has one turn."""
        return -(-self.requests // self.turns)

    @cached_property
    def lengths(self) -> tuple[tuple[int, int], ...]:
        """Prompt and answer tokens of every request, by number; a later turn's prompt is its new text alone."""
        random = Random(self.seed)  # noqa: S311  # chance, not secrets
        pairs = range(self.requests)
        return tuple((self.prompts.draw(random, number), self.answers.draw(random, number)) for number in pairs)

    def request(self, number: int) -> Request:
        """Return the request of that number (from 0)."""
        first = number - number % self.turns
        new, answer = self.lengths[number]
        shared = self._prefix(number // self.turns, self.lengths[first][0])
        if self.turns == 1:
            return Request(new, answer, self.asked, shared)
        begun = sum(segment.tokens for segment in shared)
        segments = list(shared)
        for turn in range(first, number + 1):
            text, spoken = self.lengths[turn]
            own = text - begun if turn == first else text
            if own:
                segments.append(Segment(_text_key(turn), own))
            if turn < number:
                segments.append(Segment(_answer_key(turn), spoken))
        return Request(
            sum(segment.tokens for segment in segments), answer, self.asked, tuple(segments), _answer_key(number)
        )

    def _prefix(self, conversation: int, longest: int) -> tuple[Segment, ...]:
        tokens = min(self.shared_prefix, longest)
        return (Segment(1 + conversation % self.prefixes, tokens),) if tokens else ()

    def opening(self) -> Iterator[tuple[float, int]]:
        """Yield seconds and number of the requests that come whatever the engine does, ascending in time."""
        if isinstance(self.arrivals, ClosedLoop):
            yield from ((0.0, number * self.turns) for number in range(min(self.arrivals.users, self.conversations)))
        else:
            times = zip(self._times(self.arrivals), range(self.conversations), strict=False)
            yield from ((time, number * self.turns) for time, number in times)

    def following(self, number: int, end: float, opened: int) -> tuple[float, int] | None:
        """Return seconds and number of the request that follows the end of one; None when nothing does.

        ``opened`` counts the conversations begun so far.
        """
        think = self.arrivals.think_seconds if isinstance(self.arrivals, ClosedLoop) else 0.0
        if (number + 1) % self.turns and number + 1 < self.requests:
            return end + think, number + 1
        if isinstance(self.arrivals, ClosedLoop) and opened < self.conversations:
            return end + think, opened * self.turns
        return None

    def _times(self, arrivals: Poisson | Burst | Ramp | Trace) -> Iterator[float]:
        if isinstance(arrivals, Trace):
            yield from arrivals.times
            return
        random, time = Random(f"arrivals {self.seed}"), 0.0  # noqa: S311
        for number in range(self.conversations):
            yield time
            if isinstance(arrivals, Poisson):
                time += random.expovariate(arrivals.rate)
            elif isinstance(arrivals, Ramp):
                share = number / max(1, self.conversations - 1)
                time += 1 / (arrivals.first_rate + share * (arrivals.last_rate - arrivals.first_rate))


class Traffic:
    """The requests of a workload as they come, while an engine answers them."""

    def __init__(self, workload: Workload) -> None:
        """Begin with what comes whatever the engine does."""
        self.workload = workload
        self._coming = list(workload.opening())
        heapify(self._coming)
        self._opened = len(self._coming)

    @property
    def next_time(self) -> float:
        """Seconds at which the next request comes, as far as it is known; infinite when none is."""
        return self._coming[0][0] if self._coming else inf

    def due(self, time: float) -> Iterator[tuple[float, int]]:
        """Yield seconds and number of each request that has come by then, in order; each only once."""
        while self._coming and self.next_time <= time:
            yield heappop(self._coming)

    def end(self, number: int, time: float) -> None:
        """Let the user of a request go on: its answer is there."""
        after = self.workload.following(number, time, self._opened)
        if after is not None:
            self._opened += after[1] % self.workload.turns == 0
            heappush(self._coming, after)


def closed_loop(prompts: Lengths, answers: Lengths, users: int, *, rounds: int = 10, seed: int = 0) -> Workload:
    """Return a closed loop of so many requests a user, the first of each user not counted."""
    return Workload(prompts, answers, ClosedLoop(_positive(users)), users * rounds, seed, users if rounds > 1 else 0)


def first_to_nth(prompts: Lengths, nth: int = 512, requests: int = 200, *, users: int = 1, seed: int = 0) -> Workload:
    """Return the method that per-user speed is published with: answers up to the nth token, nothing left out.

    ``Outcome.user_tokens_per_second`` then is the rate from the first to the nth token.
    """
    return Workload(prompts, fixed(nth), ClosedLoop(_positive(users)), requests, seed)


def _text_key(number: int) -> int:
    return (1 << 32) + 2 * number


def _answer_key(number: int) -> int:
    return (1 << 32) + 2 * number + 1


def _positive(value: int) -> int:
    if value < 1:
        raise UsageError(
            f"{value} in a workload", why="lengths and users are counted from 1", hint="give a number of at least 1"
        )
    return value
