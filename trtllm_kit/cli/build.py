"""``trtkit build``: make the engine from a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trtllm_kit.cli.convert import made_text
from trtllm_kit.cli.options import DryRunOption, OutOption, ProfileOption
from trtllm_kit.cli.replan import replan
from trtllm_kit.cli.session import Session, table

CheckpointArgument = Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="Folder that trtkit convert made.")]


def build(
    context: typer.Context,
    checkpoint: CheckpointArgument,
    profile: ProfileOption,
    out: OutOption,
    dry_run: DryRunOption = False,
) -> int:
    """Build the engine of a profile from CHECKPOINT."""
    session: Session = context.obj
    return run_dry(session, checkpoint, profile) if dry_run else run_build(session, checkpoint, profile, out)


def run_build(session: Session, checkpoint: Path, profile: str, out: Path) -> int:
    """Build and show what was made."""
    from trtllm_kit.artifact import append_log
    from trtllm_kit.build.engine import build as build_engine

    built = build_engine(checkpoint, replan(checkpoint, profile), out, session.progress())
    if not built.up_to_date:
        append_log(out, {"verb": "build", "digest": built.manifest.digest})
    document = {"out": str(out), "up_to_date": built.up_to_date, "manifest": built.manifest.model_dump(mode="json")}
    session.result(document, lambda: made_text(out, built.manifest, up_to_date=built.up_to_date))
    return 0


def run_dry(session: Session, checkpoint: Path, profile: str) -> int:
    """Show the steps and the files they would write."""
    from trtllm_kit.build.toolchain import steps

    planned = steps(replan(checkpoint, profile))
    rows = [(type(step).__name__, step.subject()) for step in planned]
    document = {"steps": [step.model_dump(mode="json") | {"step": type(step).__name__} for step in planned]}
    session.result(document, lambda: table(("step", "what"), rows) + "\nnothing was written")
    return 0
