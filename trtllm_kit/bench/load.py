"""The load of a run: which requests, when. Pure; drawn by ``estimate.workload``, so that a run can be simulated too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil
from random import Random

from trtllm_kit.errors import UsageError
from trtllm_kit.estimate.workload import Arrivals, ClosedLoop, Poisson, Ramp, Request, Segment, Trace, Workload

MOST_REQUESTS = 1_000_000


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen; None where it is left to the server."""

    temperature: float | None = None
    top_p: float | None = None
    greedy: bool = False
    """Always the likeliest token, said in each interface's own way."""


@dataclass(frozen=True, slots=True)
class Load:
    """Everything that a client sends."""

    workload: Workload
    sampling: Sampling = Sampling()
    texts: tuple[str, ...] = ()
    """Prompts that were given, by number; otherwise they are made."""
    whole: bool = False
    """Whether answers come in one piece, from interfaces that offer it."""
    nth: int | None = None
    """Whether answers are timed from the first token to the nth."""
    drawn: Callable[[int], Request] | None = field(default=None, compare=False)
    """Gives a request by its number where the workload's own lengths do not say it all."""

    def request(self, number: int) -> Request:
        """Return the request of that number (from 0)."""
        return self.workload.request(number) if self.drawn is None else self.drawn(number)


def constant(rate: float) -> Ramp:
    """Return evenly spaced arrivals, at a rate a second."""
    return Ramp(_rate(rate), rate)


def gamma(rate: float, spread: float, requests: int, seed: int) -> Trace:
    """Return arrivals whose distances are gamma-distributed around ``1 / rate`` seconds.

    ``spread`` is their coefficient of variation: 1 is Poisson, above it requests come in bursts, below more evenly.
    """
    if not 0 < spread < 100:
        raise UsageError(f"gamma:{spread:g}", why="a spread is above 0 and below 100", hint="--arrivals gamma:2")
    random, shape, time = Random(f"gamma {seed}"), spread**-2, 0.0  # noqa: S311  # chance, not secrets
    times = []
    for _ in range(requests):
        times.append(time)
        time += random.gammavariate(shape, 1 / (_rate(rate) * shape))
    return Trace(tuple(times))


def arrivals_of(text: str, rate: float, requests: int, seed: int) -> Arrivals:
    """Return arrivals by name: ``poisson``, ``constant`` or ``gamma:SPREAD``; raises ``UsageError``."""
    kind, _, figure = text.partition(":")
    if kind == "gamma":
        try:
            return gamma(rate, float(figure or "2"), requests, seed)
        except ValueError:
            pass
    elif text == "poisson":
        return Poisson(_rate(rate))
    elif text == "constant":
        return constant(rate)
    raise UsageError(
        f"--arrivals {text}", why="known are poisson, constant and gamma:SPREAD", hint="--arrivals gamma:2"
    )


def ramp_of(text: str) -> Ramp:
    """Return a ramp in ``FIRST:LAST``, requests a second; raises ``UsageError``."""
    try:
        first, last = (_rate(float(part)) for part in text.split(":"))
    except ValueError:
        raise UsageError(
            f"--ramp {text} is not understood", why="it takes the first rate and the last", hint="--ramp 1:20"
        ) from None
    return Ramp(first, last)


def requests_in(seconds: float, arrivals_a_second: float) -> int:
    """Return how many requests come in a time; raises ``UsageError`` beyond a million."""
    count = max(ceil(seconds * arrivals_a_second), 1)
    if count > MOST_REQUESTS:
        raise UsageError(
            f"{count:,} requests", why=f"a run keeps every request, of at most {MOST_REQUESTS:,}", hint="a shorter run"
        )
    return count


@dataclass(frozen=True, slots=True)
class Bursts:
    """Requests of agents: bursts of calls at once, on a prefix that all share and that grows from burst to burst."""

    calls: int
    """Requests of a burst."""
    base: int
    """Tokens that the first burst shares."""
    growth: int
    """Tokens by which the shared beginning grows with each burst."""
    own: int
    """Tokens of a call's own."""
    answer: int

    def request(self, number: int) -> Request:
        """Return a request; the shared beginning of a burst is that of the one before, and more."""
        burst = number // self.calls
        shared = (Segment(1, self.base), *(Segment(1 + step, self.growth) for step in range(1, burst + 1)))
        prompt = sum(segment.tokens for segment in shared) + self.own
        return Request(prompt, self.answer, 0, shared)


def bursts_every(seconds: float, calls: int, bursts: int) -> Trace:
    """Return the arrivals of bursts."""
    return Trace(tuple(burst * seconds for burst in range(bursts) for _ in range(calls)))


def closed(users: int, think: float = 0.0) -> ClosedLoop:
    """Return a closed loop of so many users."""
    return ClosedLoop(users, think)


def _rate(value: float) -> float:
    if not 0 < value < float("inf"):
        raise UsageError(f"{value:g} requests a second", why="requests come at a rate above 0", hint="--rate 2.5")
    return value
