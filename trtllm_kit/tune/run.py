"""The whole of a tuning: shapes, search, decision; and the estimate of what it decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import ceil

from trtllm_kit.estimate.answer import Copies, Estimate, ExplainingClock, estimate
from trtllm_kit.estimate.subject import Subject, subject_of
from trtllm_kit.plan.decide import make_plan, require_ok
from trtllm_kit.plan.plan import Plan
from trtllm_kit.plan.remedies import with_changes
from trtllm_kit.plan.settle import settle
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.tune.candidates import shapes
from trtllm_kit.tune.corrected import Correction, clock_with
from trtllm_kit.tune.decision import Decision, Planned, decide
from trtllm_kit.tune.measured import Compared, Take, Times, compare
from trtllm_kit.tune.question import Question
from trtllm_kit.tune.room import Asked, with_acceptance
from trtllm_kit.tune.search import Search
from trtllm_kit.tune.simulated import LONG, Load, outcome_of, rates_of


def tune(asked: Asked, correction: Correction | None = None) -> Decision:
    """Search the configurations of a question and decide for one, with steps as a correction says."""
    search = Search(asked, clock_with(correction))
    first = next(iter(asked.machines.values()))
    layout = settle(asked.model, asked.loaded, first).layout.value
    search.run(shapes(asked.model, asked.loaded.profile, layout, asked.machines.values(), asked.question))
    return decide(search)


def estimate_of(decision: Decision, planned: Planned, correction: Correction | None = None) -> Estimate:
    """Return the estimate of exactly the profile that was planned, at the load it was chosen for."""
    machine = decision.asked.machines[planned.point.candidate.shape.machine]
    return estimate_plan(planned.plan, machine, decision.search.question, planned.point.concurrency, correction)


def estimate_plan(
    plan: Plan,
    machine: Hardware,
    question: Question,
    concurrency: int,
    correction: Correction | None = None,
    clocks: Callable[[Subject], ExplainingClock] | None = None,
) -> Estimate:
    """Return the estimate of a plan whose replicas share ``concurrency`` requests, or the question's rate.

    ``clocks`` makes the clock of its steps, in place of the kit's own with its correction.
    """
    subject = with_acceptance(subject_of(plan, machine, sequence_tokens=question.tokens), question.acceptance)
    clock, replicas = (clocks or clock_with(correction))(subject), plan.parallelism.replicas.value
    rate = None if question.rate is None else question.rate / replicas
    load = Load(ceil(concurrency / replicas), rate)
    busy = float(replicas) if rate is not None else concurrency / load.concurrency
    outcome = outcome_of(subject, clock, question, load, LONG)
    copies = Copies(replicas, busy, rates_of(outcome, question, load))
    found = estimate(clock, outcome, question.slo, copies)
    return replace(found, notes=(*found.notes, *not_timed(plan)))


def not_timed(plan: Plan) -> Iterator[str]:
    """Say which settings of a plan change what a client sees, and are in no figure."""
    beams, pieces = plan.limits.max_beam_width.value, plan.engine.stream_interval.value
    if beams > 1:
        yield f"one beam is timed: {beams} take more of every step"
    if pieces > 1:
        yield f"gaps are those between tokens, and answers go out {pieces} tokens at a time"


def learn(asked: Asked, take: Take, loads: Sequence[int]) -> Compared:
    """Measure one replica of the profile as it is at several loads; return how far off predictions are.

    Raises ``RequestFailed`` when a request fails, and ``PlanRefused`` for a profile that cannot run.
    """
    machine = next(iter(asked.machines.values()))
    plan = make_plan(asked.model, with_changes(asked.loaded, {"parallelism.replicas": 1}), machine)
    require_ok(plan)
    question = replace(asked.question, concurrency=None, rate=None, least_share=1.0)

    def predicted(correction: Correction, place: int) -> Times:
        found = estimate_plan(plan, machine, question, loads[place], correction)
        first, later = (found.figure(name).value for name in ("first token, mean", "later token, mean"))
        return Times(loads[place], first, later)

    measured = [take(load, question.input_tokens, question.output_tokens) for load in loads]
    pairs = [(predicted(Correction(), place), seen) for place, seen in enumerate(measured)]
    return compare(pairs, predicted)
