"""``trtkit tune draft-length``: how many tokens to draft, and up to which batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trtllm_kit.cli.load_options import AcceptanceOption, InputOption, OutputOption, chances_from
from trtllm_kit.cli.options import OptionalProfileOption, VersionOption
from trtllm_kit.cli.session import Session, heading, show_findings, table
from trtllm_kit.errors import UsageError
from trtllm_kit.units import parse_share

if TYPE_CHECKING:
    from trtllm_kit.estimate.draft import DraftAnswer, DraftLength, DraftRow
    from trtllm_kit.estimate.draft_batches import BatchAnswer
    from trtllm_kit.estimate.step_time import StepClock
    from trtllm_kit.upstream.speculation import Kind

_TABLE = "--table length,accepted[,overhead[,speedup]];..., e.g. 1,0.82,12%,1.31;2,1.47,18%,1.89"
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def draft_length(
    context: typer.Context,
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="Model whose steps are timed, with --profile.")
    ] = None,
    profile: OptionalProfileOption = None,
    *,
    table_of: Annotated[
        str | None,
        typer.Option(
            "--table",
            metavar="ROWS|FILE",
            help="Measured rows, length,accepted[,overhead[,speedup]] with ; or lines between.",
        ),
    ] = None,
    acceptance: AcceptanceOption = None,
    overhead: Annotated[
        str | None, typer.Option("--overhead", metavar="SHARES", help="Extra time of a step by length, e.g. 12%,18%.")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="URL", help="Metrics page of a server that drafts, for its acceptance."),
    ] = None,
    draft_cost: Annotated[
        str, typer.Option("--draft-cost", metavar="SHARE", help="Of one drafted token, as a share of a plain step.")
    ] = "0",
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="KIND", help="eagle3, mtp, ngram, draft_target, pard, sa.")
    ] = None,
    isl: InputOption = None,
    osl: OutputOption = None,
    trtllm_version: VersionOption = None,
) -> int:
    """Find the draft length that pays most, and with MODEL and --profile the batch beyond which none pays."""
    session: Session = context.obj
    chances = _chances(acceptance, url)
    if (table_of is None) == (not chances):
        raise UsageError(
            "tune draft-length has nothing to judge" if table_of is None else "tune draft-length has two sources",
            why="it takes a measured table, or the acceptance of each position",
            hint=_TABLE if table_of is None else "leave --acceptance and --url out",
        )
    if table_of is None and overhead is None:
        if model is None or profile is None:
            raise UsageError(
                "no cost of drafting is given",
                why="what a step with drafts takes comes from --overhead, or from the steps of MODEL under --profile",
                hint="trtkit tune draft-length MODEL --profile NAME --acceptance 0.8,0.7",
            )
        lengths = {"draft_cost": draft_cost, "kind": kind, "isl": isl, "osl": osl}
        return _tell_batches(session, (model, profile, trtllm_version), chances, lengths)
    from trtllm_kit.estimate.draft import from_acceptance, from_table

    answer = (
        from_table(rows_of(table_of)) if table_of is not None else from_acceptance(chances, _shares(overhead or ""))
    )
    return _tell(session, answer, _keys((kind, _version(profile, trtllm_version)), answer.best.length))


def _chances(acceptance: str | None, url: str | None) -> tuple[float, ...]:
    """Return the acceptance of each position, as given or as a server counts it."""
    if acceptance is not None and url is not None:
        raise UsageError(
            "--acceptance and --url", why="both tell how often drafts are taken", hint="give one of the two"
        )
    if url is None:
        return chances_from(acceptance)
    from trtllm_kit.tune.live import acceptance_at

    return acceptance_at(url)


def _version(profile: str | None, asked: str | None) -> str | None:
    """Return the release whose keys are shown; None when neither names one."""
    from trtllm_kit.spec.load import load_profile
    from trtllm_kit.upstream.releases import release

    wanted = asked or (load_profile(profile).profile.trtllm_version if profile else None)
    return None if wanted is None else release(wanted).version


def _kind(text: str | None) -> Kind:
    from trtllm_kit.upstream.speculation import KINDS

    found = next((kind for kind in KINDS if kind == (text or KINDS[0])), None)
    if found is None:
        raise UsageError(f"--kind {text}", why=f"known are {', '.join(KINDS)}", hint=f"--kind {KINDS[0]}")
    return found


def rows_of(text: str) -> list[DraftRow]:
    """Read a table of rows ``length,accepted[,overhead[,speedup]]``, from a file of that name or the text itself.

    A first line that begins with a letter is a heading, and lines with ``#`` are remarks.

    Raises ``UsageError`` for a row that is none.
    """
    from trtllm_kit.estimate.draft import DraftRow
    from trtllm_kit.files import read_text

    path = Path(text)
    written = read_text(path) if ";" not in text and path.is_file() else text
    rows = []
    lines = [line.strip() for line in written.replace(";", "\n").splitlines()]
    for place, line in enumerate(lines):
        if not line or line[0] == "#" or (place == 0 and line[0].isalpha()):
            continue
        cells = [cell.strip() for cell in line.split(",")]
        try:
            rest = [parse_share(cell) if cell else None for cell in cells[2:]] + [None, None]
            rows.append(DraftRow(int(cells[0]), float(cells[1]), rest[0], rest[1]))
        except (ValueError, IndexError) as error:
            raise UsageError(f"row {line!r} is not understood", why=str(error), hint=_TABLE) from None
    return rows


def _tell(session: Session, answer: DraftAnswer, keys: dict[str, Any]) -> int:
    document = {
        "best": asdict(answer.best),
        "lengths": [asdict(one) for one in answer.lengths],
        "computed": [asdict(one) for one in answer.computed],
        "findings": [one.model_dump(mode="json") for one in answer.findings],
        "keys": keys,
    }
    session.result(document, lambda: _text(answer, keys))
    return 0


def _keys(chosen: tuple[str | None, str | None], length: int) -> dict[str, Any]:
    """Return the release's keys of a kind and a length; none without a release, or where nothing is drafted."""
    from trtllm_kit.estimate.draft import release_keys

    kind, version = chosen
    return {} if version is None or not length else release_keys(_kind(kind), version, length)


def _text(answer: DraftAnswer, keys: dict[str, Any]) -> str:
    best = answer.best
    words = f"draft {best.length} tokens: {best.speedup:.2f} times as fast ({best.source})"
    parts = [words if best.length else "draft nothing: no length is quicker than none", _lengths(answer.lengths)]
    if answer.computed:
        parts += [heading("From accepted tokens and overhead alone"), _lengths(answer.computed)]
    if answer.findings:
        parts += [heading("Findings"), show_findings(answer.findings)]
    return "\n".join([*parts, *_key_lines(keys)])


def _lengths(lengths: Sequence[DraftLength]) -> str:
    rows = [
        (
            str(one.length),
            f"{one.accepted:.2f}",
            "-" if one.overhead is None else f"{one.overhead:.1%}",
            f"{one.speedup:.2f}",
        )
        for one in lengths
    ]
    return table(("drafted", "accepted", "overhead", "speed-up"), rows)


def _key_lines(keys: dict[str, Any]) -> list[str]:
    return ["speculative_config: " + ", ".join(f"{key}: {value}" for key, value in keys.items())] if keys else []


def _shares(text: str) -> tuple[float, ...]:
    try:
        return tuple(parse_share(part.strip()) for part in text.split(","))
    except ValueError as error:
        raise UsageError(f"{text} are no shares", why=str(error), hint="--overhead 12%,18%") from None


def _tell_batches(
    session: Session, asked: tuple[str, str, str | None], chances: tuple[float, ...], lengths: dict[str, Any]
) -> int:
    """Time the steps of a model under a profile, batch by batch."""
    from trtllm_kit.estimate.draft_batches import DraftCost, by_batch, schedule_keys
    from trtllm_kit.upstream.releases import release

    clock, context, version = _clock(session, asked, lengths)
    drafting = clock.subject.speculation
    kind = _kind(lengths["kind"] or (drafting.kind if drafting else None))
    cost = DraftCost(share=_draft_cost(lengths["draft_cost"]))
    found = by_batch(clock, chances, _batches(clock, context), context, cost)
    keys = schedule_keys(kind, release(version).version, found)
    document = {
        "break_even": found.break_even,
        "pays_throughout": found.pays_throughout,
        "context": context,
        "acceptance": list(chances),
        "batches": [asdict(one) for one in found.batches],
        "keys": keys,
    }
    session.result(document, lambda: _batch_text(found, context, keys))
    return 0


def _draft_cost(text: str) -> float:
    try:
        return parse_share(text)
    except ValueError as error:
        raise UsageError(f"--draft-cost {text} is no share", why=str(error), hint="--draft-cost 3%") from None


def _batches(clock: StepClock, context: int) -> tuple[int, ...]:
    """Return the batches to judge, up to the largest that the profile's limits and KV cache let come about."""
    subject = clock.subject
    held = subject.kv_tokens // context
    if not held:
        raise UsageError(
            f"{context:,} tokens in the middle of an answer",
            why=f"the KV cache holds {subject.kv_tokens:,} tokens, so no request comes so far",
            hint="--isl and --osl of requests that fit, or a profile with more room",
        )
    most = min(subject.max_batch_size, held)
    return (*(batch for batch in BATCHES if batch < most), most)


def _clock(session: Session, asked: tuple[str, str, str | None], lengths: dict[str, Any]) -> tuple[StepClock, int, str]:
    """Return the clock of a profile's steps, the tokens cached in the middle of an answer, and the release."""
    from trtllm_kit.cli.asked import asked_for
    from trtllm_kit.cli.plan import model_folder
    from trtllm_kit.estimate.step_time import StepClock
    from trtllm_kit.estimate.subject import subject_of
    from trtllm_kit.plan.decide import make_plan, require_ok
    from trtllm_kit.spec.load import beside_target, load_model

    model, profile, version = asked
    loaded, machine = asked_for(profile, version)
    folder = model_folder(session, model)
    plan = make_plan(load_model(folder), beside_target(loaded, folder), machine)
    require_ok(plan)
    load = loaded.profile.load
    context = (lengths["isl"] or load.input_tokens) + (lengths["osl"] or load.output_tokens) // 2
    return StepClock(subject_of(plan, machine)), context, plan.release.value


def _batch_text(found: BatchAnswer, context: int, keys: dict[str, Any]) -> str:
    rows = [
        (
            str(one.batch),
            f"{one.plain_seconds * 1e3:.2f} ms",
            str(one.best.length),
            f"{one.best.accepted:.2f}",
            f"{one.best.speedup:.2f}",
        )
        for one in found.batches
    ]
    if found.pays_throughout:
        words = f"drafting pays at every batch up to {found.break_even}"
    elif found.break_even:
        words = f"drafting pays up to batch {found.break_even}; beyond it, switch speculation off"
    else:
        words = "drafting pays at no batch"
    columns = ("batch", "plain step", "draft", "accepted", "speed-up")
    return "\n".join([f"{words} (context {context:,} tokens)", table(columns, rows), *_key_lines(keys)])
