"""One configuration at one load, simulated: what it reaches, what it costs, and whether it keeps the promise."""

from __future__ import annotations

from dataclasses import dataclass

from trtllm_kit.estimate.outcome import Slo
from trtllm_kit.estimate.spread import Percentile, Spread
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.tune.candidates import Candidate, loss_rank
from trtllm_kit.tune.question import Objective
from trtllm_kit.units import counted, format_seconds

CLOSE = 0.01
"""Share of the objective within which two configurations count as equally good, and the simpler one is taken."""
KEEPS_UP = 0.03
"""Growth of the wait, seconds a second, within which arrivals at random still count as kept up with."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one replica did in a simulation."""

    ttft: Spread
    tpot: Spread
    gap: Spread
    """Of each request, its longest gap between two tokens."""
    e2e: Spread
    requests_per_s: float
    tokens_per_s: float
    """Output tokens."""
    keeps: float
    """Share of the requests that keep every limit of the promise."""
    refused: int = 0
    """Requests that could never run."""
    lag: float = 0.0
    """By how much the wait grows in each second of arrivals at a given rate, seconds: 0 where the engine keeps up."""

    def at(self, name: str, percentile: Percentile) -> float:
        """Return ``ttft``, ``tpot``, ``gap`` or ``e2e`` at a percentile, seconds."""
        spread: Spread = getattr(self, name)
        return spread.at(percentile)


@dataclass(frozen=True, slots=True)
class Point:
    """A candidate at a load, simulated."""

    candidate: Candidate
    concurrency: int
    """Requests under way over all replicas; in a simulation of arrivals, about as many."""
    copies: float
    """Replicas as full as the one that was simulated, which was the fullest, that would have all of the load."""
    seen: Seen
    watts: float | None
    """Power limit of one GPU; None when it is not known."""
    price: float | None = None
    """Price of one GPU for an hour; None when it was not given."""
    certain: bool = False
    """Simulated at length; the others only to see which deserve that."""

    @property
    def tokens_per_s(self) -> float:
        """Output tokens a second of all replicas."""
        return self.copies * self.seen.tokens_per_s

    @property
    def requests_per_s(self) -> float:
        """Answers a second of all replicas."""
        return self.copies * self.seen.requests_per_s

    @property
    def tokens_per_s_per_gpu(self) -> float:
        """Output tokens a second of each GPU at work."""
        return self.tokens_per_s / self.candidate.gpus

    @property
    def tokens_per_s_per_user(self) -> float:
        """Output tokens a second that one request sees after its first."""
        return 1 / self.seen.tpot.mean if self.seen.tpot.mean > 0 else 0.0

    @property
    def tokens_per_joule(self) -> float:
        """Output tokens a joule, if every GPU drew its power limit all the time; 0 where that is not known."""
        return 0.0 if self.watts is None else self.tokens_per_s_per_gpu / self.watts


def power_limit(machine: Hardware) -> float | None:
    """Return the power limit of one GPU of a machine, watts; None when it was not read."""
    figure = machine.power_limit_watts or machine.gpu.power_limit_watts
    return None if figure is None else figure.value


def missed(seen: Seen, slo: Slo) -> dict[str, float]:
    """Return by how much each broken limit is missed, as a factor above 1; empty when all are kept."""
    factors = {name: seen.at(name, slo.percentile) / limit for name, limit in slo.limits.items()}
    if seen.lag > KEEPS_UP:
        factors["rate"] = 1 / max(1 - seen.lag, 0.01)
    if seen.refused:
        factors["length"] = float("inf")
    return {name: factor for name, factor in factors.items() if factor > 1}


def missed_words(seen: Seen, slo: Slo) -> str:
    """Say which limits are missed, with both numbers, the worst first."""
    ordered = sorted(missed(seen, slo).items(), key=lambda one: -one[1])
    return "; ".join(_missed_word(name, seen, slo) for name, _ in ordered)


def _missed_word(name: str, seen: Seen, slo: Slo) -> str:
    if name == "rate":
        return f"requests come faster than they are answered: the wait grows by {seen.lag:.2f} s each second"
    if name == "length":
        return f"{counted(seen.refused, 'request')} can never run"
    return f"{name} {format_seconds(seen.at(name, slo.percentile))}, {format_seconds(slo.limits[name])} promised"


def worth(point: Point, objective: Objective) -> float:
    """Return what an objective makes of a point; more is better."""
    if objective == "throughput":
        return point.tokens_per_s
    if objective == "latency":
        return 1 / point.seen.e2e.mean if point.seen.e2e.mean > 0 else 0.0
    if objective == "cost":
        return point.tokens_per_s_per_gpu / (point.price or 1.0)
    return point.tokens_per_joule


def best(points: list[Point], objective: Objective, simplest_first: dict[Candidate, int]) -> Point | None:
    """Return the best point; of those within ``CLOSE`` of it the one that asks for least. None without points."""
    if not points:
        return None
    least = max(worth(point, objective) for point in points) * (1 - CLOSE)
    close = [point for point in points if worth(point, objective) >= least]
    return min(close, key=lambda point: (plainness(point.candidate), simplest_first.get(point.candidate, 0)))


def plainness(candidate: Candidate) -> tuple[float, ...]:
    """Return how much a configuration asks for, least first: GPUs, lost accuracy, stages, ranks, batch, step size."""
    shape = candidate.shape
    return (
        candidate.gpus,
        -loss_rank(shape.weights),
        shape.draft_tokens,
        shape.pipeline,
        shape.tensor,
        shape.expert,
        shape.attention_dp,
        shape.context,
        candidate.max_batch_size,
        candidate.max_num_tokens,
    )
