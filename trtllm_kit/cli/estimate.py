"""``trtkit estimate``: how fast one profile would be under one load, with intervals and what binds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from trtllm_kit.cli.collector import paused
from trtllm_kit.cli.load_options import (
    AcceptanceOption,
    ConcurrencyOption,
    InputOption,
    OutputOption,
    PercentileOption,
    PrefixOption,
    PriceOption,
    RateOption,
    SeedOption,
    SloOption,
    SpreadOption,
    chances_from,
    check_load,
    prices_from,
    slo_from,
    with_power,
)
from trtllm_kit.cli.options import ModelArgument, ProfileOption, VersionOption
from trtllm_kit.cli.session import Session, heading
from trtllm_kit.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trtllm_kit.estimate.answer import Estimate, ExplainingClock
    from trtllm_kit.estimate.subject import Subject
    from trtllm_kit.plan.plan import Plan
    from trtllm_kit.spec.hardware import Hardware
    from trtllm_kit.spec.load import LoadedProfile
    from trtllm_kit.tune.question import Question


def estimate(
    context: typer.Context,
    model: ModelArgument,
    profile: ProfileOption,
    *,
    isl: InputOption = None,
    osl: OutputOption = None,
    concurrency: ConcurrencyOption = None,
    rate: RateOption = None,
    slo: SloOption = None,
    percentile: PercentileOption = 95,
    acceptance: AcceptanceOption = None,
    shared_prefix: PrefixOption = 0,
    shortest: SpreadOption = 0.8,
    power_limit: Annotated[
        float | None, typer.Option("--power-limit", metavar="WATTS", help="Power limit of a GPU.")
    ] = None,
    prompt_servers: Annotated[
        int | None,
        typer.Option(
            "--prompt-servers",
            metavar="COUNT",
            min=1,
            help="Of parallelism.replicas, so many only read prompts (prefill) and send their KV cache to the others, "
            "which only generate (decode).",
            show_default="every replica does both",
        ),
    ] = None,
    step_times: Annotated[
        str | None,
        typer.Option(
            "--step-times",
            metavar="PYTHON",
            help="Python with aiconfigurator-core, whose step times are taken.",
            show_default="the kit's own step times",
        ),
    ] = None,
    gpu_hour_price: PriceOption = None,
    seed: SeedOption = 0,
    trtllm_version: VersionOption = None,
) -> int:
    """Say how fast MODEL would be under a profile and a load, with intervals. Exit 1: the SLO breaks."""
    check_load(concurrency, rate, shortest)
    values = {
        "input_tokens": isl,
        "output_tokens": osl,
        "concurrency": concurrency,
        "rate": rate,
        "slo": slo_from(slo, percentile),
        "acceptance": chances_from(acceptance),
        "shared_prefix": shared_prefix,
        "least_share": shortest,
        "prices": prices_from(gpu_hour_price),
        "seed": seed,
    }
    how = How(power_limit, prompt_servers, step_times)
    return _run(context.obj, model, (profile, trtllm_version), values, how)


class How(NamedTuple):
    """What is changed of the machine, of the servers' work and of the clock."""

    watts: float | None
    """Power limit of a GPU."""
    prompt_servers: int | None
    python: str | None
    """Of the environment whose step times are taken."""


@paused()
def _run(session: Session, model: str, asked: tuple[str, str | None], values: dict[str, Any], how: How) -> int:
    from trtllm_kit.cli.asked import asked_for
    from trtllm_kit.cli.plan import model_folder
    from trtllm_kit.plan.decide import make_plan, require_ok
    from trtllm_kit.spec.load import beside_target, load_model

    loaded, machine = asked_for(*asked)
    machine = machine if how.watts is None else with_power(machine, how.watts)
    folder = model_folder(session, model)
    own = loaded.profile.load.min_concurrency
    loaded, question = _under(beside_target(loaded, folder), values)
    plan = make_plan(load_model(folder), loaded, machine)
    require_ok(plan)
    answering = plan.parallelism.replicas.value - (how.prompt_servers or 0)
    load = question.concurrency or max(1, answering) * _each(plan, own)
    found = _estimate(plan, machine, question, load, how, folder)
    document = _document(found, plan, machine, question, load, how.prompt_servers)
    session.result(document, lambda: _text(document, verbose=session.verbose))
    return 0 if document["verdict"] == "yes" else 1


def _estimate(plan: Plan, machine: Hardware, question: Question, load: int, how: How, folder: Path) -> Estimate:
    """Estimate with the replicas and the clock as asked."""
    from trtllm_kit.tune.run import estimate_plan

    clocks, sourced = _clocks(how.python, folder)
    if how.prompt_servers is None:
        return sourced(estimate_plan(plan, machine, question, load, clocks=clocks))
    from trtllm_kit.tune.apart import estimate_apart

    return sourced(estimate_apart(plan, machine, question, load, how.prompt_servers, clocks))


def _clocks(
    python: str | None, folder: Path
) -> tuple[Callable[[Subject], ExplainingClock], Callable[[Estimate], Estimate]]:
    """Return what makes clocks, and what says of an estimate whose step times it was made on."""
    if python is None:
        from trtllm_kit.estimate.step_time import StepClock

        return StepClock, lambda found: found
    from trtllm_kit.tune.aic import AicClock, tabulated
    from trtllm_kit.tune.aic_figures import by_tables

    made: list[AicClock] = []

    def clock_of(subject: Subject) -> AicClock:
        made.append(tabulated(subject, str(folder), python))
        return made[-1]

    return clock_of, lambda found: by_tables(found, made[-1])


def _each(plan: Plan, asked: int) -> int:
    """Return how many requests are under way in each replica where no load is given: the promised, if they fit."""
    places = plan.parallelism.split.places(plan.limits.max_batch_size.value)
    return max(1, min(asked, plan.memory.sequences, places))


def _under(loaded: LoadedProfile, values: dict[str, Any]) -> tuple[LoadedProfile, Question]:
    """Return the profile and the question: lengths that are not given are the profile's, others change its load."""
    from trtllm_kit.plan.remedies import with_changes
    from trtllm_kit.tune.question import Question

    own = loaded.profile.load
    wanted = {name: values[name] or getattr(own, name) for name in ("input_tokens", "output_tokens")}
    question = Question(**(values | wanted))
    if (question.input_tokens, question.output_tokens) == (own.input_tokens, own.output_tokens):
        return loaded, question
    # what was promised to other lengths says nothing of these: one request must fit
    changes = {f"load.{name}": value for name, value in wanted.items()} | {"load.min_concurrency": 1}
    return with_changes(loaded, changes), question


def _document(
    found: Estimate, plan: Plan, machine: Hardware, question: Question, load: int, prompt_servers: int | None
) -> dict[str, Any]:
    from trtllm_kit.tune.cost import joules_per_token, per_million_tokens
    from trtllm_kit.tune.points import missed_words, power_limit
    from trtllm_kit.tune.simulated import Load, seen_of

    tokens = found.figure("output tokens").value
    gpus = plan.parallelism.world_size * plan.parallelism.replicas.value
    price, watts = question.price_of(machine.name), power_limit(machine)
    servers = plan.parallelism.replicas.value
    share = None if question.rate is None else question.rate / (servers if prompt_servers is None else 1)
    parted = {} if prompt_servers is None else {"prompt": prompt_servers, "answering": servers - prompt_servers}
    lost = missed_words(seen_of(found.outcome, question, Load(load, share)), question.slo)
    return {
        "verdict": "no" if lost else "yes",
        "missed": lost,
        "profile": plan.profile,
        "hardware": machine.name,
        "digest": plan.digest,
        "gpus": gpus,
        **({"servers": parted} if parted else {}),
        "load": replace(question, concurrency=None if question.rate else load).load_words(),
        "slo": question.slo.words(),
        **found.document(),
        "cost": {
            "per_million_tokens": None if price is None else per_million_tokens(price, gpus, tokens),
            "joules_per_token": None if watts is None else joules_per_token(watts, gpus, tokens),
        },
    }


def _text(document: dict[str, Any], *, verbose: bool) -> str:
    from trtllm_kit.cli.tune_text import estimate_text

    kept = document["missed"] or "kept"
    cost = document["cost"]
    words = [f"{cost['per_million_tokens']:.3g} a million output tokens"] if cost["per_million_tokens"] else []
    words += [f"at most {cost['joules_per_token']:.3g} J a token"] if cost["joules_per_token"] else []
    return "\n".join(
        [
            f"{document['profile']} on {document['hardware']}, {counted(document['gpus'], 'GPU')} at work",
            *([_servers_line(document["servers"])] if "servers" in document else []),
            f"load: {document['load']}",
            f"promise: {document['slo']}" + (f": {kept}" if document["missed"] or document["slo"] != "none" else ""),
            heading("Figures"),
            estimate_text(document, verbose=verbose),
            *([f"cost: {'; '.join(words)}"] if words else []),
        ]
    )


def _servers_line(servers: dict[str, int]) -> str:
    return (
        f"servers: {servers['prompt']} only for prompts, {servers['answering']} only for answers; "
        "keys and values are sent from the one to the other"
    )
