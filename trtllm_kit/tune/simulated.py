"""One replica under its share of a load, simulated."""

from __future__ import annotations

from dataclasses import dataclass

from trtllm_kit.estimate.batching import simulate
from trtllm_kit.estimate.outcome import Outcome
from trtllm_kit.estimate.outcome import Slo as Limits
from trtllm_kit.estimate.spread import spread_of
from trtllm_kit.estimate.subject import Subject
from trtllm_kit.estimate.work import Clock
from trtllm_kit.estimate.workload import ClosedLoop, Lengths, Poisson, Workload
from trtllm_kit.tune.points import KEEPS_UP, Seen
from trtllm_kit.tune.question import Question


@dataclass(frozen=True, slots=True)
class Load:
    """What one replica gets to do."""

    concurrency: int
    rate: float | None = None
    """Requests a second, where they arrive at random; None where ``concurrency`` are always under way."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long a simulation is: requests that count, once those before have filled every place."""

    least: int
    """Fewest of them; a closed loop counts one for each of its places, if that is more."""

    def counted(self, load: Load) -> int:
        """Return how many requests count."""
        return max(self.least, load.concurrency)

    def requests(self, load: Load) -> int:
        """Return how many requests there are in all: what a simulation costs grows with it."""
        return self.counted(load) + self.warmup(load)

    def warmup(self, load: Load) -> int:
        """Return how many requests come first and count in no figure."""
        return load.concurrency


SHORT, LONG = Effort(24), Effort(128)
"""To choose by, and to report."""


def workload_of(question: Question, load: Load, effort: Effort) -> Workload:
    """Return the traffic of one replica; the same question has the same lengths for every configuration."""
    prompts, answers = _lengths(question.input_tokens, question), _lengths(question.output_tokens, question)
    return Workload(
        prompts,
        answers,
        ClosedLoop(load.concurrency) if load.rate is None else Poisson(load.rate),
        effort.requests(load),
        question.seed,
        warmup=effort.warmup(load),
        shared_prefix=question.shared_prefix,
    )


def _lengths(tokens: int, question: Question) -> Lengths:
    return Lengths(max(1, round(tokens * question.least_share)), tokens)


def outcome_of(subject: Subject, clock: Clock, question: Question, load: Load, effort: Effort = SHORT) -> Outcome:
    """Simulate one replica under its share of a load."""
    return simulate(subject, clock, workload_of(question, load, effort))


def seen_of(outcome: Outcome, question: Question, load: Load) -> Seen:
    """Return what a search compares of a simulation; requests that can never run keep nothing.

    An engine that keeps up with arrivals at random answers as many as come, which a short simulation only samples.
    """
    lag = 0.0 if load.rate is None else lag_of(outcome)
    requests, tokens = outcome.requests_per_second, outcome.output_tokens_per_second
    if load.rate is not None and lag <= KEEPS_UP:
        requests, tokens = load.rate, load.rate * question.mean_output
    return Seen(
        ttft=outcome.ttft,
        tpot=outcome.tpot,
        gap=spread_of(served.longest_gap for served in outcome.served),
        e2e=outcome.e2e,
        requests_per_s=requests,
        tokens_per_s=tokens,
        keeps=outcome.kept_share(limits_of(question)),
        refused=sum(count for _, count in outcome.refused),
        lag=lag,
    )


def lag_of(outcome: Outcome) -> float:
    """Return by how much the wait of requests grows in each second of their arrival, seconds; 0 where it falls.

    It compares the last third of the arrivals with the first.
    """
    come = sorted(outcome.served, key=lambda served: served.arrival)
    third = len(come) // 3
    if not third:
        return 0.0
    first, last = come[:third], come[-third:]
    between = (sum(served.arrival for served in last) - sum(served.arrival for served in first)) / third
    grown = (sum(served.queue for served in last) - sum(served.queue for served in first)) / third
    return max(0.0, grown / between) if between > 0 else 0.0


def limits_of(question: Question) -> Limits:
    """Return the promise of a question as the simulation judges requests by."""
    return Limits(**question.slo.limits)
