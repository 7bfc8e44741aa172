"""What is asked of a search: the load, the promise to its users, what is aimed at, what may be changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from trtllm_kit.estimate.outcome import SLO_KEYS, Slo
from trtllm_kit.estimate.spread import Percentile
from trtllm_kit.spec.profile_formats import WeightFormat
from trtllm_kit.units import parse_seconds

Objective = Literal["throughput", "latency", "cost", "energy"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)


def slo_of(text: str, percentile: Percentile = 95) -> Slo:
    """Read ``ttft=500ms,tpot=30ms``; raises ``ValueError`` for another key, a key twice, no duration, or no unit."""
    limits: dict[str, float] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, value = part.partition("=")
        name = name.strip()
        if not equals or name not in SLO_KEYS:
            raise ValueError(f"{part!r} is none of {', '.join(f'{key}=DURATION' for key in SLO_KEYS)}")
        if name in limits:
            raise ValueError(f"{name} is given twice")
        limits[name] = parse_seconds(value)
        if not limits[name]:
            raise ValueError(f"{part!r}: no request takes no time")
        if not value.rstrip()[-1].isalpha():
            raise ValueError(f"{part!r} has no unit: {part}ms and {part}s are both asked for")
    return Slo(**limits, percentile=percentile)


@dataclass(frozen=True, slots=True)
class Question:
    """One question to the search."""

    input_tokens: int
    output_tokens: int
    concurrency: int | None = None
    """Requests that are always under way, over all replicas; None where a rate is given, or the load is searched."""
    rate: float | None = None
    """Requests a second over all replicas, at random times (Poisson)."""
    slo: Slo = field(default_factory=Slo)
    objective: Objective = "throughput"
    weights: tuple[WeightFormat, ...] | None = None
    """Formats of the weights that may be taken; None for those of ``KNOWN_TO_HOLD`` and the profile's own."""
    prices: Mapping[str, float] = field(default_factory=dict)
    """Price of one GPU of a machine for an hour, in any currency, by the machine's name; ``""`` for all others."""
    acceptance: tuple[float, ...] = ()
    """Chance that the draft token of each position is taken when those before it were; empty: no speculation tried."""
    shared_prefix: int = 0
    """First tokens that all prompts have in common."""
    least_share: float = 0.8
    """Shortest prompt and answer, as a share of the asked length, which is the longest; 1 for one length alone."""
    seed: int = 0

    @property
    def tokens(self) -> int:
        """Tokens of the longest request at its end."""
        return self.input_tokens + self.output_tokens

    @property
    def mean_input(self) -> int:
        """Tokens of a prompt on average."""
        return max(1, round(self.input_tokens * (1 + self.least_share) / 2))

    @property
    def mean_output(self) -> int:
        """Tokens of an answer on average."""
        return max(1, round(self.output_tokens * (1 + self.least_share) / 2))

    @property
    def least_input(self) -> int:
        """Tokens of the shortest prompt."""
        return max(1, round(self.input_tokens * self.least_share))

    def price_of(self, machine: str) -> float | None:
        """Return the price of one GPU of a machine for an hour; None when it was not given."""
        return self.prices.get(machine, self.prices.get(""))

    def load_words(self) -> str:
        """Spell the load."""
        lengths = f"{self.input_tokens:,} tokens in, {self.output_tokens:,} out"
        if self.least_share < 1:
            lengths = f"up to {lengths} (from {self.least_share:.0%} of it)"
        if self.rate is not None:
            return f"{lengths}, {self.rate:g} requests a second"
        if self.concurrency is not None:
            return f"{lengths}, {self.concurrency:,} at once"
        return f"{lengths}, at the best load that the search finds"


KNOWN_TO_HOLD: tuple[WeightFormat, ...] = ("bf16", "fp8", "nvfp4")
"""Formats whose accuracy is known to hold for most models; ``trtkit evaluate`` measures it for yours."""
