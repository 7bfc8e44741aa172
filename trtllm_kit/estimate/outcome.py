"""What a simulation found: latencies of requests, rates, and the engine over time. Each metric is defined here once."""

from __future__ import annotations

from dataclasses import dataclass as slotted

from trtllm_kit.estimate.spread import Percentile, Spread
from trtllm_kit.light import dataclass
from trtllm_kit.units import format_seconds


@slotted(frozen=True, slots=True)
class Served:
    """One request that was answered. Times are seconds from the start, as the client sees them."""

    number: int
    arrival: float
    """When the client sent it."""
    scheduled: float
    """When the first step with a part of its prompt began."""
    first: float
    """When its first token came."""
    last: float
    """When its last token came."""
    prompt: int
    answer: int
    """Tokens."""
    reused: int
    """Tokens of the prompt that were cached already."""
    pauses: int
    longest_gap: float
    """The longest time between two pieces of the answer; 0 for an answer of one piece."""

    @property
    def ttft(self) -> float:
        """Time to first token, seconds: from the client's request to the first token, queue and prompt included."""
        return self.first - self.arrival

    @property
    def tpot(self) -> float:
        """Time per output token, seconds: from first to last token over the tokens after the first; 0 for one token.

        The first token has no part in it, so that a long prompt does not count twice.
        """
        return (self.last - self.first) / (self.answer - 1) if self.answer > 1 else 0.0

    @property
    def e2e(self) -> float:
        """End to end, seconds: from the client's request to the last token."""
        return self.last - self.arrival

    @property
    def queue(self) -> float:
        """Seconds from the client's request until a step takes it in."""
        return self.scheduled - self.arrival

    @property
    def tokens_per_second(self) -> float:
        """Tokens a second that its user sees after the first; 0 for an answer of one token."""
        return 1 / self.tpot if self.tpot else 0.0


@dataclass(frozen=True)
class Slo:
    """What is promised to a share of the requests, in seconds; None where nothing is."""

    ttft: float | None = None
    tpot: float | None = None
    gap: float | None = None
    """Between two pieces of an answer, the longest."""
    e2e: float | None = None
    percentile: Percentile = 95
    """Share of the requests, percent, that must keep each of them."""

    @property
    def limits(self) -> dict[str, float]:
        """What is promised, by name, seconds."""
        return {name: limit for name in SLO_KEYS if (limit := getattr(self, name)) is not None}

    def broken_by(self, served: Served) -> tuple[str, ...]:
        """Return the names of the limits that a request was above."""
        found = {"ttft": served.ttft, "tpot": served.tpot, "gap": served.longest_gap, "e2e": served.e2e}
        return tuple(name for name, limit in self.limits.items() if found[name] > limit)

    def words(self) -> str:
        """Spell it as it is asked, e.g. ``ttft 500 ms, tpot 30 ms of 95 % of the requests``."""
        if not self.limits:
            return "none"
        parts = ", ".join(f"{name} {format_seconds(limit)}" for name, limit in self.limits.items())
        return f"{parts} of {self.percentile} % of the requests"


SLO_KEYS = ("ttft", "tpot", "gap", "e2e")
"""First token, time of each later token of a request, longest gap between two of its pieces, whole answer."""


@slotted(frozen=True, slots=True)
class Moment:
    """The engine between two steps."""

    time: float
    """Seconds from the start."""
    active: int
    """Requests with a slot."""
    queued: int
    held: float
    """Share of the KV blocks that requests hold or have reserved, 0 to 1."""
    filled: float
    """Share of the KV cache that holds tokens of active requests, 0 to 1; below ``held`` by what is only reserved."""
    cached: float
    """Share of the KV blocks that are kept of finished requests for the next."""
    prompt_tokens: int
    """Of prompts in the step before, or in each of the steps."""


@dataclass(frozen=True)
class Steps:
    """The steps of a kind: those with a part of a prompt in them, or those that only generate."""

    count: int = 0
    seconds: float = 0.0
    sequences: float = 0.0
    """Generating requests, the mean of the steps."""
    context: float = 0.0
    """Sum of their cached tokens, the mean of the steps."""
    prompt_tokens: float = 0.0
    """The mean of the steps."""
    prompts: float = 0.0
    """Prompts of which a part was read, the mean of the steps."""
    past: float = 0.0
    """Tokens cached before a token of a prompt in its own prompt's earlier parts, the mean of those tokens."""


@dataclass(frozen=True)
class Outcome:
    """What a simulation found.

    Requests of warm-up and cool-down are in no latency; rates are of the engine, so whatever ends from the first
    counted request to the last counted answer is in them.
    """

    served: tuple[Served, ...]
    """Requests by the order of their end."""
    refused: tuple[tuple[str, int], ...]
    """Why requests can never run, and how many of them."""
    ttft: Spread
    tpot: Spread
    """Of requests with more than one token."""
    gap: Spread
    """Of the times between pieces of answers, each counted once: the distribution behind TPOT."""
    e2e: Spread
    queue: Spread
    seconds: float
    """From the first counted request to the last token of one."""
    answers: int
    """Answers that ended in that time."""
    output_tokens: int
    """Tokens that went out in that time."""
    prompt_steps: Steps
    generation_steps: Steps
    pauses: int
    evicted_blocks: int
    mean_active: float
    """Requests with a slot, over time."""
    mean_queued: float
    most_queued: int
    mean_held: float
    """Share of the KV blocks held or reserved, over time."""
    most_held: float
    timeline: tuple[Moment, ...]

    @property
    def output_tokens_per_second(self) -> float:
        """Tokens a second over the whole time; without a cool-down the emptying of the engine at the end is in it."""
        return self.output_tokens / self.seconds if self.seconds else 0.0

    @property
    def requests_per_second(self) -> float:
        """Answers a second over the whole time."""
        return self.answers / self.seconds if self.seconds else 0.0

    @property
    def lag(self) -> float:
        """Seconds by which the wait of requests grows in each second of their arrival; 0 where it falls.

        It compares the last third of the arrivals with the first.
        """
        come = sorted(self.served, key=lambda served: served.arrival)
        third = len(come) // 3
        if not third:
            return 0.0
        first, last = come[:third], come[-third:]
        between = (sum(served.arrival for served in last) - sum(served.arrival for served in first)) / third
        grown = (sum(served.queue for served in last) - sum(served.queue for served in first)) / third
        return max(0.0, grown / between) if between > 0 else 0.0

    @property
    def user_tokens_per_second(self) -> float:
        """Tokens a second that a user sees from the first token to the last: the mean over requests."""
        rates = [served.tokens_per_second for served in self.served if served.answer > 1]
        return sum(rates) / len(rates) if rates else 0.0

    @property
    def reused_share(self) -> float:
        """Share of the prompts' tokens that were cached already, 0 to 1."""
        prompts = sum(served.prompt for served in self.served)
        return sum(served.reused for served in self.served) / prompts if prompts else 0.0

    def goodput(self, slo: Slo) -> float:
        """Return the answers a second that kept every limit, by the share of the counted ones that did."""
        kept = sum(1 for served in self.served if not slo.broken_by(served))
        return self.requests_per_second * kept / len(self.served) if self.served else 0.0

    def kept_share(self, slo: Slo) -> float:
        """Return the share of requests that kept every limit, refused ones counted as broken; 0 without requests."""
        asked = len(self.served) + sum(count for _, count in self.refused)
        return sum(1 for served in self.served if not slo.broken_by(served)) / asked if asked else 0.0
