"""``trtkit convert``: make the checkpoint a plan asks for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from trtllm_kit.cli.log_file import LOG_BYTES, LOG_FILES
from trtllm_kit.cli.made import show_made
from trtllm_kit.cli.options import (
    DryRunOption,
    LockWaitOption,
    LogFileOption,
    LogKeepOption,
    LogSizeOption,
    ModelArgument,
    OutOption,
    ProfileOption,
    UnattendedOption,
)
from trtllm_kit.cli.plan import model_folder
from trtllm_kit.cli.session import Session, table
from trtllm_kit.cli.unattended import Logging, begin
from trtllm_kit.staging import LOCK_SECONDS
from trtllm_kit.units import counted, format_bytes

if TYPE_CHECKING:
    from trtllm_kit.checkpoint.convert import TensorStep


def convert(
    context: typer.Context,
    model: ModelArgument,
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
    """Convert MODEL to the number formats of the profile: a unified Hugging Face checkpoint with scales."""
    session = begin(context.obj, Logging(log_file, log_size, log_keep), unattended=unattended, dry_run=dry_run)
    if dry_run:
        return run_dry(session, model, profile)
    return run_convert(session, model, profile, out, lock_seconds=lock_wait)


def run_convert(session: Session, model: str, profile: str, out: Path, *, lock_seconds: float = LOCK_SECONDS) -> int:
    """Convert and show what was made."""
    from trtllm_kit.artifact import append_log
    from trtllm_kit.checkpoint.convert import convert as convert_checkpoint

    folder, made = _planned(session, model, profile)
    conversion = convert_checkpoint(folder, made, out, session.progress(), lock_seconds=lock_seconds)
    manifest = conversion.manifest
    if conversion.resumed:
        session.log("went on with the work of an interrupted run")
    if not conversion.up_to_date:
        append_log(out, {"verb": "convert", "digest": manifest.digest, "run": session.outlet.run})
    show_made(session, out, manifest, up_to_date=conversion.up_to_date)
    return 0


def run_dry(session: Session, model: str, profile: str) -> int:
    """Show every tensor that would be written."""
    from trtllm_kit.checkpoint.convert import conversion_steps

    folder, made = _planned(session, model, profile)
    steps = conversion_steps(folder, made)
    session.result({"tensors": [_step_row(step) for step in steps]}, lambda: _steps_text(steps))
    return 0


def _planned(session: Session, model: str, profile: str) -> tuple[Path, Any]:
    from trtllm_kit.plan.decide import make_plan, require_ok
    from trtllm_kit.spec.load import hardware_for, load_model, load_profile

    loaded = load_profile(profile)
    folder = model_folder(session, model)
    made = make_plan(load_model(folder), loaded, hardware_for(loaded.profile))
    require_ok(made)
    return folder, made


def _step_row(step: TensorStep) -> dict[str, Any]:
    return {
        "tensor": step.name,
        "dtype": step.dtype,
        "shape": list(step.shape),
        "file": step.file,
        "source": step.source,
    }


def _steps_text(steps: tuple[TensorStep, ...]) -> str:
    rows = [
        (step.name, step.dtype, "x".join(map(str, step.shape)) or "scalar", step.file, step.source) for step in steps
    ]
    files, size = len({step.file for step in steps}), format_bytes(sum(step.nbytes for step in steps))
    total = f"{counted(len(steps), 'tensor')}, {size}, {counted(files, 'weight file')}; nothing was written"
    return table(("tensor", "dtype", "shape", "file", "from"), rows) + "\n" + total
