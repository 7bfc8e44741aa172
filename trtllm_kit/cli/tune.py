"""``trtkit tune``: the best legal configuration for a load and a promise, and what stopped the others."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from trtllm_kit.cli.draft_length import draft_length
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
)
from trtllm_kit.cli.options import ModelArgument, ProfileOption, VersionOption
from trtllm_kit.cli.session import Session
from trtllm_kit.cli.shorthand import short_for
from trtllm_kit.cli.tune_asked import formats_from, loads_from, machines_from, objective_from, require_places
from trtllm_kit.cli.tune_options import (
    EverythingOption,
    HardwareOption,
    HtmlOption,
    MeasureLoadsOption,
    MeasureOption,
    ObjectiveOption,
    OutOption,
    PowerLimitOption,
    QuantizationOption,
    ServedModelOption,
)

if TYPE_CHECKING:
    from trtllm_kit.spec.hardware import Hardware
    from trtllm_kit.spec.load import LoadedProfile
    from trtllm_kit.tune.decision import Decision
    from trtllm_kit.tune.measured import Compared
    from trtllm_kit.tune.question import Question
    from trtllm_kit.tune.room import Asked

SEARCH = "search"


app = typer.Typer(
    cls=short_for(SEARCH),
    help="The best configuration for a load and a promise: trtkit tune MODEL --profile NAME is short for tune search.",
    no_args_is_help=True,
)
app.command("draft-length")(draft_length)


@app.command(SEARCH)
def search(
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
    objective: ObjectiveOption = "throughput",
    hardware: HardwareOption = None,
    power_limit: PowerLimitOption = None,
    quantization: QuantizationOption = None,
    acceptance: AcceptanceOption = None,
    shared_prefix: PrefixOption = 0,
    shortest: SpreadOption = 0.8,
    gpu_hour_price: PriceOption = None,
    seed: SeedOption = 0,
    out: OutOption = None,
    html: HtmlOption = None,
    measure: MeasureOption = None,
    measure_loads: MeasureLoadsOption = "1,4,16",
    served_model: ServedModelOption = None,
    everything: EverythingOption = False,
    trtllm_version: VersionOption = None,
) -> int:
    """Find how to run MODEL under a profile: ranks, replicas, formats, limits. Exit 1: nothing keeps the SLO."""
    from trtllm_kit.cli.asked import asked_for

    session: Session = context.obj
    check_load(concurrency, rate, shortest)
    prices, chances, promise = prices_from(gpu_hour_price), chances_from(acceptance), slo_from(slo, percentile)
    loaded, machine = asked_for(profile, trtllm_version)
    require_places(tuple(path for path in (out, html) if path is not None), profile)
    loads = loads_from(measure_loads)
    machines = machines_from(machine, hardware, power_limit)
    question = _question(
        {
            "input_tokens": isl or loaded.profile.load.input_tokens,
            "output_tokens": osl or loaded.profile.load.output_tokens,
            "concurrency": concurrency,
            "rate": rate,
            "slo": promise,
            "objective": objective_from(objective, prices, machines),
            "weights": formats_from(quantization),
            "prices": prices,
            "acceptance": chances,
            "shared_prefix": shared_prefix,
            "least_share": shortest,
            "seed": seed,
        }
    )
    asked = _asked(session, model, loaded, machines, question)
    learned = None if measure is None else _learned(asked, machine, measure, served_model, loads)
    return _tell(session, asked, learned, (model, profile), (out, html), everything=everything)


def _question(values: dict[str, Any]) -> Question:
    from trtllm_kit.tune.question import Question

    return Question(**values)


def _asked(session: Session, model: str, loaded: LoadedProfile, machines: list[Hardware], question: Question) -> Asked:
    from trtllm_kit.cli.plan import model_folder
    from trtllm_kit.spec.load import beside_target, load_model
    from trtllm_kit.tune.room import Asked

    folder = model_folder(session, model)
    spec, loaded = load_model(folder), beside_target(loaded, folder)
    return Asked(spec, loaded, {machine.name: machine for machine in machines}, question)


def _learned(asked: Asked, machine: Hardware, url: str, name: str | None, counts: list[int]) -> Compared:
    """Measure a deployment of the profile on its own machine, by whichever interface it speaks."""
    from trtllm_kit.cli.bench_server import server_of
    from trtllm_kit.tune.measured import taking
    from trtllm_kit.tune.run import learn

    server = server_of(url, api=None, model=name, header=None, timeout="10min")
    return learn(replace(asked, machines={machine.name: machine}), taking(server), counts)


def _tell(
    session: Session,
    asked: Asked,
    learned: Compared | None,
    names: tuple[str, str],
    places: tuple[Path | None, Path | None],
    *,
    everything: bool,
) -> int:
    """Search, write what was asked for, show the decision, return the exit code."""
    from trtllm_kit.cli.tune_text import decision_text
    from trtllm_kit.tune.report import document
    from trtllm_kit.tune.run import estimate_of, tune

    correction = None if learned is None else learned.correction
    decision = tune(asked, correction)
    shown = decision.shown
    estimate = None if shown is None else estimate_of(decision, shown, correction)
    found = document(decision, estimate, model=names[0], everything=everything)
    if learned is not None:
        found["measured"] = asdict(learned)
    out, html = places
    if html is not None:
        from trtllm_kit.tune.html import html_page

        _write(html, html_page(found), "writing the report")
    if out is not None and decision.winner is not None:
        _write(out, winner_text(decision, names[1], out), "writing the profile")
        found["written"] = str(out)
    session.result(found, lambda: decision_text(found, verbose=session.verbose))
    return 0 if decision.winner else 1


def winner_text(decision: Decision, profile: str, out: Path) -> str:
    """Return the winner as a profile, with a head that says what it was found for."""
    from trtllm_kit.tune.written import profile_text

    winner = decision.winner
    if winner is None:
        return ""
    question = decision.search.question
    machine = winner.point.candidate.shape.machine
    comments = [
        f"Found by trtkit tune: {winner.point.candidate.words()}.",
        f"Asked: {question.load_words()}; promise: {question.slo.words()}; aim: {question.objective}.",
    ]
    if "@" in machine:
        comments.append(f"The GPUs run at a power limit that a profile cannot set: {machine} (nvidia-smi -pl).")
    return profile_text(profile, decision.asked.loaded.profile, winner.changes, out, comments)


def _write(path: Path, text: str, doing: str) -> None:
    from trtllm_kit.errors import storage_error
    from trtllm_kit.files import replace_text

    try:
        replace_text(path, text)
    except OSError as error:
        raise storage_error(error, doing) from None
