"""``trtkit plan``: what will be built, why, what it needs, and what speaks against it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trtllm_kit.cli.asked import asked_for
from trtllm_kit.cli.collector import paused
from trtllm_kit.cli.options import ModelArgument, ProfileOption, StrictOption, VersionOption
from trtllm_kit.cli.session import Session, heading, show_findings, table
from trtllm_kit.findings import errors, warnings
from trtllm_kit.units import counted, format_bytes, format_count

if TYPE_CHECKING:
    from pathlib import Path

    from trtllm_kit.plan.effective import Effective
    from trtllm_kit.plan.plan import Plan
    from trtllm_kit.plan.remedies import Remedy
    from trtllm_kit.spec.hardware import Hardware
    from trtllm_kit.spec.load import LoadedProfile
    from trtllm_kit.spec.model import ModelSpec


EffectiveOption = Annotated[
    bool, typer.Option("--effective", help="Show too what the release makes of the settings without a word.")
]


def plan(
    context: typer.Context,
    model: ModelArgument,
    profile: ProfileOption,
    strict: StrictOption = False,
    effective: EffectiveOption = False,
    trtllm_version: VersionOption = None,
) -> int:
    """Decide what will be built for MODEL under a profile, and say why. Exit 1 when it cannot run or does not fit."""
    return run_plan(context.obj, model, profile, strict=strict, show_effective=effective, trtllm_version=trtllm_version)


@paused()
def run_plan(
    session: Session,
    model: str,
    profile: str,
    *,
    strict: bool = False,
    show_effective: bool = False,
    trtllm_version: str | None = None,
) -> int:
    """Plan, show the plan with its findings and remedies, return the exit code."""
    from trtllm_kit.plan.decide import make_plan
    from trtllm_kit.plan.effective import effective
    from trtllm_kit.plan.room import room
    from trtllm_kit.spec.load import beside_target, load_model

    loaded, hardware = asked_for(profile, trtllm_version)
    folder = model_folder(session, model)
    loaded, spec = beside_target(loaded, folder), load_model(folder)
    made = make_plan(spec, loaded, hardware)
    remedies = () if made.memory.fits else _remedies(made, spec, loaded, hardware)
    digest, made, settled = made.digest, _with_folder(made, folder), effective(made, loaded)
    refused = bool(errors(made.findings)) or (strict and bool(warnings(made.findings)))
    document = made.model_dump(mode="json") | {
        "digest": digest,
        "verdict": "no" if refused else "yes",
        "remedies": [remedy.model_dump(mode="json") for remedy in remedies],
        "effective": [row.model_dump(mode="json") for row in settled],
        "room": [term.model_dump(mode="json") for term in room(made)],
    }
    shown = _effective(settled) if show_effective else ""
    session.result(document, lambda: f"{plan_text(made, remedies, verbose=session.verbose)}{shown}\nplan {digest[:12]}")
    return 1 if refused else 0


def _remedies(made: Plan, spec: ModelSpec, loaded: LoadedProfile, hardware: Hardware) -> tuple[Remedy, ...]:
    """Return the nearest changes that fit, or else the machines that would."""
    from trtllm_kit.plan.remedies import nearest_fits, other_machines
    from trtllm_kit.spec.load import hardware_names, load_hardware

    near = nearest_fits(spec, loaded, hardware)
    return near or other_machines(made, spec, loaded, map(load_hardware, hardware_names()))


def _effective(settled: tuple[Effective, ...]) -> str:
    """Lay out what the release makes of the settings."""
    rows = [(row.key, row.asked or "-", row.default or "-", row.effective, row.why, row.certainty) for row in settled]
    columns = ("profile key", "asked", "default", "effective", "because", "known")
    body = table(columns, rows) if rows else "nothing that is known"
    return f"\n{heading('What the release makes of the settings without a word')}\n{body}"


def _with_folder(made: Plan, folder: Path) -> Plan:
    """Return the plan with what the rules say of the folder's files too; its digest stays that of the plan alone."""
    from trtllm_kit.checkpoint.weight_facts import weight_facts
    from trtllm_kit.plan.checks import in_order
    from trtllm_kit.plan.given import weights

    facts = weight_facts(folder, made.model)
    found = () if facts is None else weights(facts, made.model, made.release.value)
    return made.model_copy(update={"findings": in_order((*made.findings, *found))})


def model_folder(session: Session, model: str) -> Path:
    """Return the local folder of a model, downloading a hub id."""
    from trtllm_kit.spec.hub import resolve_model

    return resolve_model(model, session.progress())


def plan_text(made: Plan, remedies: tuple[Remedy, ...], *, verbose: bool) -> str:
    """Lay out a plan for reading."""
    parts = [
        _model_line(made),
        heading("Decisions"),
        _decisions(made, verbose=verbose),
        heading("Memory of the fullest GPU" if made.compute_capability else "Memory allowance of the CPU"),
        _memory(made, verbose=verbose),
        heading("Communication of one prefill"),
        _communication(made),
        heading("Disk and memory on the way there"),
        _room(made, verbose=verbose),
        heading("Findings"),
        show_findings(made.findings),
    ]
    if remedies:
        rows = [(remedy.change, _fitting(remedy.sequences), remedy.cost) for remedy in remedies]
        parts += [heading("Nearest changes that fit (each planned)"), table(("set", "then", "it costs"), rows)]
    return "\n".join(parts)


def _model_line(made: Plan) -> str:
    from trtllm_kit.spec.tensors import active_parameters, parameters
    from trtllm_kit.upstream.releases import release

    model = made.model
    total, active = parameters(model), active_parameters(model)
    active_text = "" if active == total else f" ({format_count(active)} active)"
    return (
        f"{model.architecture}: {format_count(total)} parameters{active_text}, {counted(len(model.layers), 'layer')}, "
        f"on {made.hardware} ({made.gpu}) under profile {made.profile}\n"
        f"serving container: {release(made.release.value).image or 'none published for this release'}"
    )


def _decisions(made: Plan, *, verbose: bool) -> str:
    from trtllm_kit.plan.plan import profile_key

    rows = []
    for key, decision in made.decisions():
        rows.append((profile_key(key), _in_words(decision.value), decision.source, decision.reason))
    if not verbose:
        rows = [row for row in rows if row[2] != "default"]
    more = "" if verbose else "\n(defaults are not listed: --verbose shows them)"
    return table(("profile key", "value", "from", "because"), rows) + more


def _in_words(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _memory(made: Plan, *, verbose: bool) -> str:
    memory = made.memory
    rows = [(term.name, format_bytes(term.bytes), term.how) for term in memory.terms]
    lacking = memory.kv_budget_bytes < 0
    budget = (
        f"none: {format_bytes(-memory.kv_budget_bytes)} too much" if lacking else format_bytes(memory.kv_budget_bytes)
    )
    rows.append(("KV cache budget", budget, "what the runtime takes of the rest"))
    rows.append(("capacity", format_bytes(memory.capacity_bytes), "what the terms and the KV cache share"))
    columns = ("term", "bytes", "how") if verbose else ("term", "bytes")
    listing = table(columns, [row[: len(columns)] for row in rows])
    return (
        f"{listing}\n"
        f"KV cache: {format_bytes(memory.kv_bytes_per_token)} a token, "
        f"{format_bytes(memory.kv_bytes_per_sequence)} a sequence; "
        f"{_fitting(memory.sequences)}, {memory.min_sequences:,} asked{_in_all(made)}\n"
        f"parameters a GPU: {format_count(memory.parameters_even_split)} by even split, "
        f"{format_count(memory.parameters_held)} held"
    )


def _room(made: Plan, *, verbose: bool) -> str:
    from trtllm_kit.plan.room import room

    columns = ("what", "bytes", "how") if verbose else ("what", "bytes")
    return table(columns, [(term.name, format_bytes(term.bytes), term.how)[: len(columns)] for term in room(made)])


def _fitting(sequences: int) -> str:
    return f"{counted(sequences, 'sequence')} {'fits' if sequences == 1 else 'fit'}"


def _in_all(made: Plan) -> str:
    replicas = made.parallelism.replicas.value
    if replicas == 1:
        return ""
    gpus = replicas * made.parallelism.world_size
    return f", in each of {replicas} replicas: {replicas * made.memory.sequences:,} in all on {gpus} GPUs"


def _communication(made: Plan) -> str:
    traffic = made.communication
    if not traffic.all_reduces:
        return "none: one rank holds every layer whole"
    return (
        f"{counted(traffic.all_reduces, 'all-reduce')} in the blocks, payload {_decimal_bytes(traffic.payload_bytes)}, "
        f"each GPU sends {_decimal_bytes(traffic.sent_bytes_per_gpu)} (ring)"
    )


def _decimal_bytes(count: int) -> str:
    return f"{count / 1e12:.3f} TB" if count >= 1e12 else f"{count / 1e9:.2f} GB"
