"""One question answered: every figure with its interval and source, and the term of a step that binds.

The simulation gives the values. Their intervals come from the steps: a run's steps are explained once for a prompt and
once for a generation step of mean size, and a figure can be off by as much as the terms that make it up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any, Literal, Protocol

from trtllm_kit.estimate.outcome import Outcome, Slo, Steps
from trtllm_kit.estimate.spread import spread_of
from trtllm_kit.estimate.step_time import StepTime, Term
from trtllm_kit.estimate.subject import Subject
from trtllm_kit.estimate.work import Chunk, Clock, StepWork
from trtllm_kit.spec.ceilings import LEAST_CERTAIN, How
from trtllm_kit.units import counted

Unit = Literal["s", "1/s", "tokens/s", "share"]
COUNTS_FROM = 0.02
"""Share of the time from which on a term's source is one of the figure's."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of an estimate."""

    name: str
    value: float
    low: float | None
    """None, as ``high``, where its source states no interval."""
    high: float | None
    unit: Unit
    source: str
    """The least certain of what the steps rest on (``How``), or whose step times they are."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one term takes of all steps of a run."""

    name: str
    share: float
    """Of the time, 0 to 1."""
    low: float
    """Of its own time at best, as a factor."""
    high: float
    source: str


@dataclass(frozen=True, slots=True)
class Ratio:
    """By how much a figure can be off, as factors around 1, and on what it rests."""

    low: float
    high: float
    source: How


def parts_of(steps: Iterable[tuple[StepTime, float]]) -> tuple[Part, ...]:
    """Return what the terms take of steps that occur so often each, the largest first.

    A step that the host binds counts as the host's whole; what nothing hides counts to the host in every step.
    """
    found: dict[str, list[tuple[Term, float]]] = {}
    for step, count in steps:
        for term in (step.host,) if step.binds == step.host.name else step.terms:
            found.setdefault(term.name, []).append((term, count))
    taken = {name: sum(term.seconds * count for term, count in terms) for name, terms in found.items()}
    total = sum(taken.values())
    parts = [
        Part(
            name,
            taken[name] / total,
            sum(term.low * count for term, count in terms) / taken[name],
            sum(term.high * count for term, count in terms) / taken[name],
            terms[0][0].source,
        )
        for name, terms in found.items()
        if taken[name] > 0
    ]
    return tuple(sorted(parts, key=lambda part: -part.share))


def ratio_of(parts: tuple[Part, ...]) -> Ratio:
    """Return by how much time that is made of these parts can be off, when each of them errs by itself.

    Errors of parts that know nothing of each other add up as squares.
    """
    if not parts:
        return Ratio(1.0, 1.0, "roofline")
    found = {part.source for part in parts if part.share >= COUNTS_FROM}
    source = next(how for how in LEAST_CERTAIN if how in found)
    below = sqrt(sum((part.share * (1 - part.low)) ** 2 for part in parts))
    above = sqrt(sum((part.share * (part.high - 1)) ** 2 for part in parts))
    return Ratio(1 - below, 1 + above, source)


def duration(name: str, seconds: float, ratio: Ratio) -> Figure:
    """Return a time as a figure."""
    return Figure(name, seconds, seconds * ratio.low, seconds * ratio.high, "s", ratio.source)


def speed(name: str, value: float, ratio: Ratio, unit: Unit) -> Figure:
    """Return a rate as a figure: what takes longer is slower."""
    return Figure(name, value, value / ratio.high, value / max(ratio.low, 1e-9), unit, ratio.source)


@dataclass(frozen=True, slots=True)
class Estimate:
    """An answer about one configuration under one load."""

    figures: tuple[Figure, ...]
    parts: tuple[Part, ...]
    """Of the time of all steps, the largest first."""
    binds: str
    """The term that takes most of it."""
    outcome: Outcome
    """The simulation of one replica."""
    notes: tuple[str, ...]
    """What was taken for granted."""

    def figure(self, name: str) -> Figure:
        """Return a figure by its name; raises ``KeyError``."""
        for figure in self.figures:
            if figure.name == name:
                return figure
        raise KeyError(name)

    def document(self) -> dict[str, Any]:
        """Return it as plain data; the timeline in at most ``MOMENTS`` moments."""
        return {
            "figures": [asdict(figure) for figure in self.figures],
            "parts": [asdict(part) for part in self.parts],
            "binds": self.binds,
            "notes": list(self.notes),
            "timeline": [
                {"time": one.time, "running": one.active, "waiting": one.queued, "kv": one.held}
                for one in self.outcome.timeline
            ],
        }


@dataclass(frozen=True, slots=True)
class Rates:
    """What one replica answers."""

    answers: float
    """A second."""
    tokens: float
    """Output tokens a second."""
    given: bool = False
    """Requests come at that rate and all are answered: no step makes it more or less."""


@dataclass(frozen=True, slots=True)
class Copies:
    """The replicas that share a load, of which one was simulated."""

    replicas: int = 1
    busy: float = 1.0
    """Replicas as full as the one that was simulated, the fullest, that would have all of the load."""
    rates: Rates | None = None
    """Of each; None for those of the simulation, from its first counted request to the last answer."""


OF_LATER_TOKENS = ("later token", "longest gap", "of a user")
"""Figures that answers of one token do not have."""


class Explains(Protocol):
    """A clock that tells what its steps are made of."""

    @property
    def subject(self) -> Subject:
        """Whose steps it times."""
        ...

    @property
    def borrowed(self) -> str:
        """The architecture whose measurements stand in for a card without any; empty where none do."""
        ...

    def explain(self, work: StepWork) -> StepTime:
        """Return a step's terms with their intervals, seconds."""
        ...


class ExplainingClock(Clock, Explains, Protocol):
    """A clock for the simulation that tells what its steps are made of."""


Counted = tuple[StepTime, float]
"""What is done, and how often."""


def estimate(clock: Explains, outcome: Outcome, slo: Slo, copies: Copies, sent: Counted | None = None) -> Estimate:
    """Return what a simulation of one replica says of all of them.

    ``sent`` is what first tokens wait for beside steps: prompts that are sent to another server.
    """
    prompts, all_parts = _parts(clock, outcome, sent)
    whole = ratio_of(all_parts)
    waits = outcome.queue.mean / outcome.ttft.mean if outcome.ttft.mean else 0.0
    first = _blend(ratio_of(prompts or all_parts), whole, waits)
    rates, busy = copies.rates or _own_rates(outcome), copies.busy
    rate = Ratio(1.0, 1.0, whole.source) if rates.given else whole
    gpus = copies.replicas * clock.subject.split.world_size
    gaps = spread_of(served.longest_gap for served in outcome.served)
    at = f"p{slo.percentile}" if slo.percentile < 100 else "longest"
    figures = [
        duration("first token, mean", outcome.ttft.mean, first),
        duration(f"first token, {at}", outcome.ttft.at(slo.percentile), first),
        duration("later token, mean", outcome.tpot.mean, whole),
        duration(f"later token, {at}", outcome.tpot.at(slo.percentile), whole),
        duration(f"longest gap of a request, {at}", gaps.at(slo.percentile), first),
        duration("whole answer, mean", outcome.e2e.mean, whole),
        duration(f"whole answer, {at}", outcome.e2e.at(slo.percentile), whole),
        duration("queue, mean", outcome.queue.mean, whole),
        speed("output tokens", busy * rates.tokens, rate, "tokens/s"),
        speed("of each GPU", busy * rates.tokens / gpus, rate, "tokens/s"),
        speed("of a user", outcome.user_tokens_per_second, whole, "tokens/s"),
        speed("answers", busy * rates.answers, rate, "1/s"),
        Figure("KV cache held, most", outcome.most_held, outcome.most_held, outcome.most_held, "share", whole.source),
    ]
    if not outcome.tpot.count:
        figures = [figure for figure in figures if not figure.name.startswith(OF_LATER_TOKENS)]
    if slo.limits:
        kept = outcome.kept_share(slo)
        figures.append(Figure("requests that keep the promise", kept, kept, kept, "share", whole.source))
        figures.append(speed("answers that keep it", busy * rates.answers * outcome.kept_share(slo), rate, "1/s"))
    return Estimate(tuple(figures), all_parts, all_parts[0].name if all_parts else "", outcome, _notes(clock, outcome))


def _own_rates(outcome: Outcome) -> Rates:
    return Rates(outcome.requests_per_second, outcome.output_tokens_per_second)


def _parts(clock: Explains, outcome: Outcome, sent: Counted | None) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """Return the terms of steps with prompts in them and of what is sent, and of all steps with it."""
    mean_steps = [sent] if sent else []
    for steps, chunked in ((outcome.prompt_steps, True), (outcome.generation_steps, False)):
        if steps.count:
            mean_steps.append((clock.explain(mean_work(clock, steps, chunked=chunked)), steps.count))
    first = 2 if sent else 1
    prompts = parts_of(mean_steps[:first]) if outcome.prompt_steps.count else ()
    return prompts, parts_of(mean_steps)


def mean_work(clock: Explains, steps: Steps, *, chunked: bool) -> StepWork:
    """Return a step of mean size, with as many prompts in it as there were, all alike."""
    prompts = max(1, round(steps.prompts))
    chunk = Chunk(max(1, round(steps.prompt_tokens / prompts)), round(steps.past))
    sequences = round(steps.sequences)
    return StepWork(
        chunks=(chunk,) * prompts if chunked else (),
        sequences=sequences,
        context=round(steps.context) if sequences else 0,
        width=clock.subject.width,
    )


def _blend(own: Ratio, other: Ratio, share: float) -> Ratio:
    """Return a ratio that is ``other`` by a share and ``own`` by the rest, with the less certain of both sources."""
    kept = 1 - share
    source = own.source if LEAST_CERTAIN.index(own.source) <= LEAST_CERTAIN.index(other.source) else other.source
    return Ratio(kept * own.low + share * other.low, kept * own.high + share * other.high, source)


def _notes(clock: Explains, outcome: Outcome) -> tuple[str, ...]:
    notes = []
    if clock.borrowed:
        card = clock.subject.hardware.gpu.name
        notes.append(f"no measurement of {card} went into this: the shares of its peaks are those of {clock.borrowed}")
    drafting = clock.subject.speculation
    if drafting is not None and not drafting.acceptance:
        notes.append(
            f"{drafting.draft_tokens} tokens are drafted and none counts as taken: their acceptance is unknown"
        )
    notes += [f"{counted(count, 'request')} could never run: {why}" for why, count in outcome.refused]
    return tuple(notes)
