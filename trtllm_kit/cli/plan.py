"""``trtkit plan``: what will be built, why, what it needs, and what speaks against it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trtllm_kit.cli.asked import asked_for
from trtllm_kit.cli.collector import paused
from trtllm_kit.cli.options import ModelArgument, MountOption, ProfileOption, StrictOption, VersionOption, mounted
from trtllm_kit.cli.session import Session, heading, show_findings, table
from trtllm_kit.findings import errors, warnings
from trtllm_kit.printable import printable
from trtllm_kit.units import counted, format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from trtllm_kit.lint.report import Read
    from trtllm_kit.plan.effective import Effective
    from trtllm_kit.plan.plan import Plan
    from trtllm_kit.plan.remedies import Remedy
    from trtllm_kit.spec.hardware import Hardware
    from trtllm_kit.spec.load import LoadedProfile
    from trtllm_kit.spec.model import ModelSpec


EffectiveOption = Annotated[
    bool, typer.Option("--effective", help="Show too what the release makes of the settings without a word.")
]
AgainstOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--against",
        metavar="PATH",
        help="Hold what is there already against the plan: an engine, a checkpoint, a Triton repository, a YAML, "
        "a script that builds or starts it, a Kubernetes manifest; may be repeated.",
    ),
]


def plan(
    context: typer.Context,
    model: ModelArgument,
    profile: ProfileOption,
    *,
    strict: StrictOption = False,
    effective: EffectiveOption = False,
    trtllm_version: VersionOption = None,
    against: AgainstOption = None,
    mount: MountOption = None,
) -> int:
    """Decide what will be built for MODEL under a profile, and say why. Exit 1 when it cannot run or does not fit."""
    beside = Beside(tuple(against or ()), tuple(map(mounted, mount or ())))
    return run_plan(
        context.obj,
        model,
        profile,
        strict=strict,
        show_effective=effective,
        trtllm_version=trtllm_version,
        beside=beside,
    )


@dataclass(frozen=True)
class Beside:
    """What is there already and is held against a plan."""

    paths: tuple[Path, ...] = ()
    mounts: tuple[tuple[Path, str], ...] = ()

    def read(self, made: Plan, loaded: LoadedProfile, hardware: Hardware) -> tuple[tuple[Path, Read], ...]:
        """Lint each path under the plan's release, profile and ranks; raises what ``lint`` raises."""
        if not self.paths:
            return ()
        from trtllm_kit.lint.context import Context
        from trtllm_kit.lint.run import lint

        context = Context(made.release.value, loaded, hardware, self.mounts, made)
        return tuple((path, lint(path, context)) for path in self.paths)


@paused()
def run_plan(
    session: Session,
    model: str,
    profile: str,
    *,
    strict: bool = False,
    show_effective: bool = False,
    trtllm_version: str | None = None,
    beside: Beside | None = None,
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
    given = () if beside is None else beside.read(made, loaded, hardware)
    remedies = () if made.memory.fits else _remedies(made, spec, loaded, hardware)
    digest, made, settled = made.digest, _with_folder(made, folder), effective(made, loaded)
    found = (*made.findings, *(one.finding for _, read in given for one in read.findings))
    refused = bool(errors(found)) or (strict and bool(warnings(found)))

    def document() -> dict[str, Any]:
        return made.model_dump() | {
            "digest": digest,
            "verdict": "no" if refused else "yes",
            "remedies": [remedy.model_dump() for remedy in remedies],
            "effective": [row.model_dump() for row in settled],
            "room": [term.model_dump() for term in room(made)],
            "against": [
                {"path": str(path), "kind": read.kind, "findings": [one.document() for one in read.findings]}
                for path, read in given
            ],
        }

    shown = _against(given) + (_effective(settled) if show_effective else "")
    session.result(document, lambda: f"{plan_text(made, remedies, verbose=session.verbose)}{shown}\nplan {digest[:12]}")
    return 1 if refused else 0


def _remedies(made: Plan, spec: ModelSpec, loaded: LoadedProfile, hardware: Hardware) -> tuple[Remedy, ...]:
    """Return the nearest changes that fit, or else the machines that would."""
    from trtllm_kit.plan.remedies import nearest_fits, other_machines
    from trtllm_kit.spec.load import hardware_names, load_hardware

    near = nearest_fits(spec, loaded, hardware)
    return near or other_machines(made, spec, loaded, map(load_hardware, hardware_names()))


def _against(given: tuple[tuple[Path, Read], ...]) -> str:
    """Lay out what the rules say of each thing that is there already."""
    from trtllm_kit.cli.lint import show_located

    blocks = []
    for path, read in given:
        told = "\n".join(map(show_located, read.findings)) or "none"
        blocks.append(f"\n{heading(f'Against {printable(str(path))}, {read.kind}')}\n{told}")
    return "".join(blocks)


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
    from trtllm_kit.plan.given.weights import weights

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
        rows.append((profile_key(key), _in_words(key, decision.value), decision.source, decision.reason))
    if not verbose:
        rows = [row for row in rows if row[2] != "default"]
    more = "" if verbose else "\n(defaults are not listed: --verbose shows them)"
    return table(("profile key", "value", "from", "because"), rows) + more


def _in_words(key: str, value: object) -> str:
    """Spell a decision, with the unit that its key ends in."""
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, int | float) and key.endswith(("_seconds", "_bytes")):
        return format_seconds(value) if key.endswith("_seconds") else format_bytes(int(value))
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
    if not traffic.all_reduces and not traffic.sent_bytes_per_gpu:
        return "none: one rank holds every layer whole"
    if not traffic.all_reduces:
        return (
            f"each token to the experts of other ranks and back, each GPU sends "
            f"{_decimal_bytes(traffic.sent_bytes_per_gpu)} where every rank has such a prompt"
        )
    return (
        f"{counted(traffic.all_reduces, 'all-reduce')} in the blocks, payload {_decimal_bytes(traffic.payload_bytes)}, "
        f"each GPU sends {_decimal_bytes(traffic.sent_bytes_per_gpu)} (ring)"
    )


def _decimal_bytes(count: int) -> str:
    return f"{count / 1e12:.3f} TB" if count >= 1e12 else f"{count / 1e9:.2f} GB"
