"""One replica under its share of a load, simulated."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from trtllm_kit.estimate.answer import Rates
from trtllm_kit.estimate.batching import simulate
from trtllm_kit.estimate.outcome import Outcome
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
        return self.counted(load) + self.warmup(load) + self.cooldown(load)

    def warmup(self, load: Load) -> int:
        """Return how many requests come first and count in no figure."""
        return load.concurrency

    def cooldown(self, load: Load) -> int:
        """Return how many requests come last and keep every place taken until the last that counts is answered."""
        return ceil(1.5 * load.concurrency)  # as many again, and some more where lengths differ


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
        cooldown=effort.cooldown(load),
        shared_prefix=question.shared_prefix,
    )


def _lengths(tokens: int, question: Question) -> Lengths:
    return Lengths(max(1, round(tokens * question.least_share)), tokens)


def outcome_of(subject: Subject, clock: Clock, question: Question, load: Load, effort: Effort = SHORT) -> Outcome:
    """Simulate one replica under its share of a load."""
    return simulate(subject, clock, workload_of(question, load, effort))


def rates_of(outcome: Outcome, question: Question, load: Load) -> Rates:
    """Return what one replica answers, by Little's law, which short simulations obey as well as long ones.

    Users who each wait for their answer are answered once in the time of an answer. An engine that keeps up with
    arrivals at random answers as many as come; one that does not, as many as it has places for in the time of each.
    """
    served = outcome.served
    if load.rate is not None and outcome.lag <= KEEPS_UP:
        return Rates(load.rate, load.rate * question.mean_output, given=True)
    if not served:
        return Rates(0.0, 0.0)
    held = load.concurrency if load.rate is None else outcome.mean_active
    each = outcome.e2e.mean if load.rate is None else sum(one.last - one.scheduled for one in served) / len(served)
    answers = held / each if each > 0 else 0.0
    return Rates(answers, answers * sum(one.answer for one in served) / len(served))


def seen_of(outcome: Outcome, question: Question, load: Load) -> Seen:
    """Return what a search compares of a simulation; requests that can never run keep nothing."""
    rates = rates_of(outcome, question, load)
    return Seen(
        ttft=outcome.ttft,
        tpot=outcome.tpot,
        gap=spread_of(served.longest_gap for served in outcome.served),
        e2e=outcome.e2e,
        requests_per_s=rates.answers,
        tokens_per_s=rates.tokens,
        keeps=outcome.kept_share(question.slo),
        refused=sum(count for _, count in outcome.refused),
        lag=0.0 if load.rate is None else outcome.lag,
    )
