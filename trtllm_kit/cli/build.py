"""``trtkit build``: make the engine from a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trtllm_kit.cli.asked import asked_for
from trtllm_kit.cli.log_file import LOG_BYTES, LOG_FILES
from trtllm_kit.cli.made import show_made
from trtllm_kit.cli.options import (
    DryRunOption,
    LockWaitOption,
    LogFileOption,
    LogKeepOption,
    LogSizeOption,
    OutOption,
    ProfileOption,
    StoreOption,
    UnattendedOption,
)
from trtllm_kit.cli.replan import replan
from trtllm_kit.cli.session import Session, table
from trtllm_kit.cli.unattended import Logging, begin
from trtllm_kit.errors import UsageError
from trtllm_kit.staging import LOCK_SECONDS

if TYPE_CHECKING:
    from trtllm_kit.build.differences import Origin
    from trtllm_kit.build.engine import Reuse
    from trtllm_kit.plan.plan import Plan

CheckpointArgument = Annotated[
    Path,
    typer.Argument(metavar="CHECKPOINT", help="Folder that trtkit convert made, or with --model one of upstream's."),
]
BaseModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="Hugging Face folder or hub id of the model that a checkpoint of upstream's converter was made of.",
    ),
]


def build(
    context: typer.Context,
    checkpoint: CheckpointArgument,
    profile: ProfileOption,
    out: OutOption,
    *,
    model: BaseModelOption = None,
    store: StoreOption = None,
    dry_run: DryRunOption = False,
    lock_wait: LockWaitOption = LOCK_SECONDS,
    unattended: UnattendedOption = False,
    log_file: LogFileOption = None,
    log_size: LogSizeOption = LOG_BYTES,
    log_keep: LogKeepOption = LOG_FILES,
) -> int:
    """Build the engine of a profile from CHECKPOINT."""
    session = begin(context.obj, Logging(log_file, log_size, log_keep), unattended=unattended, dry_run=dry_run)
    if dry_run:
        return run_dry(session, checkpoint, profile, model=model)
    return run_build(session, checkpoint, profile, out, model=model, store=store, lock_seconds=lock_wait)


def run_build(
    session: Session,
    checkpoint: Path,
    profile: str,
    out: Path,
    *,
    model: str | None = None,
    store: Path | None = None,
    lock_seconds: float = LOCK_SECONDS,
) -> int:
    """Build and show what was made."""
    from trtllm_kit.artifact import append_log
    from trtllm_kit.build.engine import build as build_engine

    made = _plan_of(session, checkpoint, profile, model)
    reuse = None if store is None else _reuse(session, store, out)
    built = build_engine(checkpoint, made, out, session.progress(), lock_seconds=lock_seconds, reuse=reuse)
    if built.taken_from is not None:
        session.log(f"taken from the store: {built.taken_from}")
    if not built.up_to_date:
        append_log(out, {"verb": "build", "digest": built.manifest.digest, "run": session.outlet.run})
    show_made(session, out, built.manifest, up_to_date=built.up_to_date, taken_from=built.taken_from)
    return 0


def _plan_of(session: Session, checkpoint: Path, profile: str, model: str | None) -> Plan:
    """Plan again from what trtkit recorded, or from the model that a given checkpoint was made of.

    A given one is linted first; raises ``PlanRefused`` when anything speaks against it.
    """
    if model is None:
        _require_own(checkpoint)
        return replan(checkpoint, profile)
    from trtllm_kit.cli.plan import model_folder
    from trtllm_kit.lint.context import Context
    from trtllm_kit.lint.run import lint
    from trtllm_kit.plan.decide import make_plan, require_ok
    from trtllm_kit.spec.load import beside_target, load_model

    folder = model_folder(session, model)
    loaded, hardware = asked_for(profile)
    loaded = beside_target(loaded, folder)
    made = make_plan(load_model(folder), loaded, hardware)
    read = lint(checkpoint, Context(made.release.value, loaded, hardware, plan=made))
    require_ok(made.model_copy(update={"findings": (*made.findings, *(one.finding for one in read.findings))}))
    return made


def _require_own(checkpoint: Path) -> None:
    """Raise ``UsageError`` for a checkpoint of upstream's converter, which does not say what model it was made of."""
    from trtllm_kit.build.given import is_given
    from trtllm_kit.errors import NotLinted
    from trtllm_kit.lint.kinds import Kind, kind_of

    try:
        upstreams = is_given(checkpoint) and kind_of(checkpoint) is Kind.CHECKPOINT
    except NotLinted:
        return
    if upstreams:
        raise UsageError(
            f"{checkpoint} was not made by trtkit convert",
            why="a checkpoint of upstream's converter does not say which model it was made of",
            hint=f"trtkit build {checkpoint} --model MODEL, with the model's Hugging Face folder",
        )


def _reuse(session: Session, folder: Path, out: Path) -> Reuse:
    """Open or make a store, and say what it has when it does not have what is asked for."""
    from trtllm_kit.build.engine import Reuse
    from trtllm_kit.build.nearest import nearest, sentence
    from trtllm_kit.build.store import make_store

    place, there = out.resolve(), folder.resolve()
    if place == there or there in place.parents or place in there.parents:
        raise UsageError(
            f"--out {out} and --store {folder} lie in each other",
            why="an output is swapped into its place whole, and a store holds nothing but its engines",
            hint=f"--store {place.with_name('engines')}, a folder beside the output",
        )
    store = make_store(folder)

    def missing(asked: Origin) -> None:
        found = nearest(store, asked)
        if found is not None:
            session.log(f"not in the store: {sentence(found[1])} ({found[0].key[:12]})")

    return Reuse(store, missing)


def run_dry(session: Session, checkpoint: Path, profile: str, *, model: str | None = None) -> int:
    """Show the steps and the files they would write."""
    from trtllm_kit.build.toolchain import steps

    planned = steps(_plan_of(session, checkpoint, profile, model))
    rows = [(type(step).__name__, step.subject()) for step in planned]
    document = {"steps": [step.model_dump(mode="json") | {"step": type(step).__name__} for step in planned]}
    session.result(document, lambda: table(("step", "what"), rows) + "\nnothing was written")
    return 0
