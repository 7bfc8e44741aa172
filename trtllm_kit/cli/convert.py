"""``trtkit convert``: make the checkpoint a plan asks for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import typer

from trtllm_kit.cli.options import DryRunOption, ModelArgument, OutOption, ProfileOption
from trtllm_kit.cli.plan import model_folder
from trtllm_kit.cli.session import Session, table
from trtllm_kit.units import format_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from trtllm_kit.artifact import Manifest
    from trtllm_kit.checkpoint.convert import TensorStep


def convert(
    context: typer.Context, model: ModelArgument, profile: ProfileOption, out: OutOption, dry_run: DryRunOption = False
) -> int:
    """Convert MODEL to the number formats of the profile: a unified Hugging Face checkpoint with scales."""
    session: Session = context.obj
    return run_dry(session, model, profile) if dry_run else run_convert(session, model, profile, out)


def run_convert(session: Session, model: str, profile: str, out: Path) -> int:
    """Convert and show what was made."""
    from trtllm_kit.artifact import append_log
    from trtllm_kit.checkpoint.convert import convert as convert_checkpoint

    folder, made = _planned(session, model, profile)
    conversion = convert_checkpoint(folder, made, out, session.progress())
    manifest = conversion.manifest
    if conversion.resumed:
        session.log("went on with the work of an interrupted run")
    if not conversion.up_to_date:
        append_log(out, {"verb": "convert", "digest": manifest.digest})
    document = {"out": str(out), "up_to_date": conversion.up_to_date, "manifest": manifest.model_dump(mode="json")}
    session.result(document, lambda: made_text(out, manifest, up_to_date=conversion.up_to_date))
    return 0


def run_dry(session: Session, model: str, profile: str) -> int:
    """Show every tensor that would be written."""
    from trtllm_kit.checkpoint.convert import conversion_steps

    folder, made = _planned(session, model, profile)
    steps = conversion_steps(folder, made)
    session.result({"tensors": [_step_row(step) for step in steps]}, lambda: _steps_text(steps))
    return 0


def made_text(out: Path, manifest: Manifest, *, up_to_date: bool) -> str:
    """Say in a few lines what an artifact holds; every verb that makes one shows it so."""
    state = "is up to date" if up_to_date else "was made"
    size = format_bytes(sum(entry.bytes for entry in manifest.files))
    lines = [
        f"{out}: the {manifest.kind} {state}, {len(manifest.files)} files, {size}, manifest {manifest.digest[:12]}"
    ]
    lines += [f"  {name}: {_fact(value)}" for name, value in manifest.facts.items() if value not in (None, [], {})]
    return "\n".join(lines)


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
    total = f"{len(steps)} tensors, {size}, weight files: {files}; nothing was written"
    return table(("tensor", "dtype", "shape", "file", "from"), rows) + "\n" + total


def _fact(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_fact(inner)}" for name, inner in value.items())
    if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value):
        return value[:12]
    if isinstance(value, list):
        return "; ".join(_fact(inner) for inner in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)
