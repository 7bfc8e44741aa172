"""The estimate of a plan whose replicas part the work: some read prompts, the others answer (disaggregated serving)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from trtllm_kit.errors import UsageError
from trtllm_kit.estimate.answer import Copies, Estimate, ExplainingClock, Figure, Rates, estimate
from trtllm_kit.estimate.disaggregated import Side, simulate_disaggregated
from trtllm_kit.estimate.outcome import Outcome
from trtllm_kit.estimate.step_time import StepClock
from trtllm_kit.estimate.subject import Subject, subject_of
from trtllm_kit.estimate.transfer import Sending, sending
from trtllm_kit.plan.plan import Plan
from trtllm_kit.spec.hardware import Hardware
from trtllm_kit.tune.points import KEEPS_UP
from trtllm_kit.tune.question import Question
from trtllm_kit.tune.room import with_acceptance
from trtllm_kit.tune.run import not_timed
from trtllm_kit.tune.simulated import LONG, Load, rates_of, workload_of
from trtllm_kit.units import counted, format_bytes, format_seconds

FULL = 0.9
"""Share of the time from which on something that is at work is what the load waits for."""
SENT = "prompt sent, mean"
"""The figure of the transfer, which does not rest on step times."""


def require_servers(plan: Plan, machine: Hardware, prompt_servers: int) -> None:
    """Raise ``UsageError`` where the plan's replicas leave none that answers, with the GPUs that would be needed."""
    servers, each = plan.parallelism.replicas.value, plan.parallelism.world_size
    if prompt_servers < servers:
        return
    wanted = prompt_servers + 1
    needed = wanted * each
    if servers > 1:
        hint = f"--prompt-servers {servers - 1}, or fewer"
    elif needed <= machine.gpus:
        hint = f"a profile with parallelism.replicas: {wanted}"
    else:
        hint = f"a profile for hardware with {needed} GPUs or more, with parallelism.replicas: {wanted}"
    raise UsageError(
        f"--prompt-servers {prompt_servers} of {counted(servers, 'replica')} (parallelism.replicas) leave none that "
        "answers",
        why=f"{wanted} servers of {counted(each, 'GPU')} take {needed}; {machine.name} has {machine.gpus}",
        hint=hint,
    )


def estimate_apart(
    plan: Plan,
    machine: Hardware,
    question: Question,
    concurrency: int,
    prompt_servers: int,
    clocks: Callable[[Subject], ExplainingClock] = StepClock,
) -> Estimate:
    """Return the estimate of all replicas together, ``prompt_servers`` of which only read prompts.

    ``concurrency`` requests are under way in all, or come at the question's rate. Raises ``UsageError`` where no
    replica is left to answer.
    """
    require_servers(plan, machine, prompt_servers)
    servers = plan.parallelism.replicas.value
    subject = with_acceptance(subject_of(plan, machine, sequence_tokens=question.tokens), question.acceptance)
    clock, link = clocks(subject), sending(plan, machine, servers, question.tokens)
    sides = (Side(subject, clock, prompt_servers), Side(subject, clock, servers - prompt_servers))
    load = Load(concurrency, question.rate)
    outcome = simulate_disaggregated(*sides, link.transfer, workload_of(question, load, LONG))
    prompt = _mean_prompt(outcome)
    sent = (link.step(prompt), _sent(outcome))
    copies = Copies(servers, 1.0, _rates(outcome, question, load))
    found = estimate(clock, outcome, question.slo, copies, sent if sent[1] else None)
    extra = _figures(found, link, sides, prompt)
    notes = (*found.notes, *not_timed(plan), *_notes(link, prompt, extra))
    return replace(found, figures=(*found.figures, *extra), notes=notes)


def _rates(outcome: Outcome, question: Question, load: Load) -> Rates:
    """Return what all servers answer; where requests pile up, what the simulation saw."""
    if load.rate is None or outcome.lag <= KEEPS_UP:
        return rates_of(outcome, question, load)
    return Rates(outcome.requests_per_second, outcome.output_tokens_per_second)


def _mean_prompt(outcome: Outcome) -> int:
    served = outcome.served
    return round(sum(one.prompt for one in served) / len(served)) if served else 0


def _sent(outcome: Outcome) -> float:
    """Return how many prompts were sent: answers of one token end where the prompt was read."""
    served = outcome.served
    return outcome.answers * sum(one.answer > 1 for one in served) / len(served) if served else 0.0


def _figures(found: Estimate, link: Sending, sides: tuple[Side, Side], prompt: int) -> tuple[Figure, ...]:
    """Return what only parted work has: the transfer of a prompt, and how much each part of it is at work."""
    outcome, sent, readers = found.outcome, _sent(found.outcome), sides[0].servers
    term = link.term(prompt)
    at_work = readers * outcome.seconds
    shares = {
        PROMPTS: outcome.prompt_steps.seconds / at_work if at_work else 0.0,
        LINKS: sent * term.seconds / at_work if at_work else 0.0,
        PLACES: outcome.mean_active / sides[1].subject.slots,
    }
    steps = found.figure("output tokens").source
    figures = [Figure(SENT, term.seconds, term.low, term.high, "s", term.source)] if sent else []
    for name, share in shares.items():
        value = min(1.0, share)
        figures.append(Figure(name, value, value, value, "share", term.source if name == LINKS else steps))
    return tuple(figures)


PROMPTS, LINKS, PLACES = (
    "prompt servers at work",
    "links of prompt servers at work",
    "places of answering servers taken",
)
"""Shares, of the time and of the places, 0 to 1."""


def _notes(link: Sending, prompt: int, figures: tuple[Figure, ...]) -> Iterator[str]:
    transfer, way = link.transfer, link.way
    over = "the network" if way.over == "network" else way.over
    yield (
        f"a prompt of {prompt:,} tokens sends {format_bytes(round(prompt * transfer.bytes_per_token))} "
        f"over {over}, "
        f"{counted(link.ranks, 'GPU')} at {way.bytes_per_second / 1e9:,.3g} GB/s each: "
        f"{format_seconds(transfer.seconds(prompt))}"
    )
    for figure in figures:
        if figure.name in (PROMPTS, LINKS, PLACES) and figure.value >= FULL:
            yield f"{figure.name} {figure.value:.0%}: the load waits for them"
