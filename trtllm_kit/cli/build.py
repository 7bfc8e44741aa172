"""``trtkit build``: make the engine from a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
    UnattendedOption,
)
from trtllm_kit.cli.replan import replan
from trtllm_kit.cli.session import Session, table
from trtllm_kit.cli.unattended import Logging, begin
from trtllm_kit.staging import LOCK_SECONDS

CheckpointArgument = Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="Folder that trtkit convert made.")]


def build(
    context: typer.Context,
    checkpoint: CheckpointArgument,
    profile: ProfileOption,
    out: OutOption,
    *,
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
        return run_dry(session, checkpoint, profile)
    return run_build(session, checkpoint, profile, out, lock_seconds=lock_wait)


def run_build(
    session: Session, checkpoint: Path, profile: str, out: Path, *, lock_seconds: float = LOCK_SECONDS
) -> int:
    """Build and show what was made."""
    from trtllm_kit.artifact import append_log
    from trtllm_kit.build.engine import build as build_engine

    made = replan(checkpoint, profile)
    built = build_engine(checkpoint, made, out, session.progress(), lock_seconds=lock_seconds)
    if not built.up_to_date:
        append_log(out, {"verb": "build", "digest": built.manifest.digest, "run": session.outlet.run})
    show_made(session, out, built.manifest, up_to_date=built.up_to_date)
    return 0


def run_dry(session: Session, checkpoint: Path, profile: str) -> int:
    """Show the steps and the files they would write."""
    from trtllm_kit.build.toolchain import steps

    planned = steps(replan(checkpoint, profile))
    rows = [(type(step).__name__, step.subject()) for step in planned]
    document = {"steps": [step.model_dump(mode="json") | {"step": type(step).__name__} for step in planned]}
    session.result(document, lambda: table(("step", "what"), rows) + "\nnothing was written")
    return 0
