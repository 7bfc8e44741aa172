"""``trtkit convert``: make the checkpoint a plan asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trtllm_kit.cli.asked import asked_for
from trtllm_kit.cli.convert_unet import Once as OnceUnet
from trtllm_kit.cli.convert_unet import run_unet
from trtllm_kit.cli.log_file import LOG_BYTES, LOG_FILES
from trtllm_kit.cli.made import show_made
from trtllm_kit.cli.options import (
    CalibDataOption,
    CalibFieldOption,
    CalibLengthOption,
    CalibSamplesOption,
    CalibSeedOption,
    CalibStepsOption,
    DryRunOption,
    GateOption,
    LockWaitOption,
    LogFileOption,
    LogKeepOption,
    LogSizeOption,
    ModelArgument,
    OptionalProfileOption,
    OutOption,
    UnattendedOption,
    gate_of,
)
from trtllm_kit.cli.plan import model_folder
from trtllm_kit.cli.session import Session, table
from trtllm_kit.cli.unattended import Logging, begin
from trtllm_kit.errors import UsageError
from trtllm_kit.staging import LOCK_SECONDS
from trtllm_kit.units import counted, format_bytes

if TYPE_CHECKING:
    from trtllm_kit.checkpoint.step import TensorStep
    from trtllm_kit.plan.plan import Plan
    from trtllm_kit.spec.quality import Quality


class Task(StrEnum):
    """What a model does."""

    LANGUAGE = "language"
    DIFFUSION = "diffusion"


def convert(
    context: typer.Context,
    model: ModelArgument,
    out: OutOption,
    *,
    profile: OptionalProfileOption = None,
    task: Annotated[
        Task, typer.Option("--task", help="What MODEL is; diffusion is INT8 of a UNet and takes no profile.")
    ] = Task.LANGUAGE,
    gate: GateOption = None,
    calib_steps: CalibStepsOption = None,
    calib_data: CalibDataOption = None,
    calib_field: CalibFieldOption = None,
    calib_samples: CalibSamplesOption = None,
    calib_length: CalibLengthOption = None,
    calib_seed: CalibSeedOption = None,
    dry_run: DryRunOption = False,
    lock_wait: LockWaitOption = LOCK_SECONDS,
    unattended: UnattendedOption = False,
    log_file: LogFileOption = None,
    log_size: LogSizeOption = LOG_BYTES,
    log_keep: LogKeepOption = LOG_FILES,
) -> int:
    """Convert MODEL to the number formats of the profile, in the layout that its toolchain reads.

    That is a unified Hugging Face checkpoint for llm-api, or config.json and one file a rank for trtllm-build.

    The --calib options hold for this run, in place of the profile's calibration section. Exit 1 past a limit.
    """
    session = begin(context.obj, Logging(log_file, log_size, log_keep), unattended=unattended, dry_run=dry_run)
    given = {
        "data": str(calib_data) if calib_data is not None else None,
        "field": calib_field,
        "samples": calib_samples,
        "length": calib_length,
        "seed": calib_seed,
    }
    if task is Task.DIFFUSION:
        texts = {f"calib_{name}": value for name, value in given.items()}
        _require_alone(profile=profile, dry_run=dry_run or None, **texts)
        return run_unet(session, model, out, OnceUnet(calib_steps, gate, lock_wait))
    if profile is None or calib_steps is not None:
        what = "a language model needs --profile" if profile is None else "--calib-steps is for --task diffusion"
        raise UsageError(what, why="the profile says its number formats", hint="trtkit convert --help")
    once = Once(gate, {_KEYS.get(name, name): value for name, value in given.items() if value is not None})
    if dry_run:
        return run_dry(session, model, profile, once)
    return run_convert(session, model, profile, out, once, lock_seconds=lock_wait)


_KEYS = {"data": "text", "length": "tokens_per_sample"}
"""Keys of the profile's ``calibration`` that the command line calls otherwise."""


def _require_alone(**given: object) -> None:
    """Raise ``UsageError`` for options that have no meaning with ``--task diffusion``."""
    idle = [f"--{name.replace('_', '-')}" for name, value in given.items() if value is not None]
    if idle:
        raise UsageError(
            f"{', '.join(idle)} has no meaning with --task diffusion",
            why="a UNet has one recipe: INT8 with SmoothQuant, on noise",
            hint="leave it out",
        )


@dataclass(frozen=True)
class Once:
    """What the command line asks for in place of the profile, for one run."""

    gate: str | None = None
    calibration: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the profile's ``calibration`` section."""


def run_convert(
    session: Session,
    model: str,
    profile: str,
    out: Path,
    once: Once | None = None,
    *,
    lock_seconds: float = LOCK_SECONDS,
) -> int:
    """Convert and show what was made."""
    from trtllm_kit.artifact import append_log
    from trtllm_kit.checkpoint.convert import Terms
    from trtllm_kit.checkpoint.convert import convert as convert_checkpoint
    from trtllm_kit.checkpoint.gate import judge
    from trtllm_kit.checkpoint.report import verdict_line
    from trtllm_kit.spec.quality import asks

    folder, made, limits = _planned(session, model, profile, once or Once())
    terms = Terms(limits if asks(limits) else None, lock_seconds)
    conversion = convert_checkpoint(folder, made, out, session.progress(), terms=terms)
    manifest = conversion.manifest
    if conversion.resumed:
        session.log("went on with the work of an interrupted run")
    if conversion.report is not None and asks(limits):
        session.log(verdict_line(judge(conversion.report, limits)))
    if not conversion.up_to_date:
        append_log(out, {"verb": "convert", "digest": manifest.digest, "run": session.outlet.run})
    show_made(session, out, manifest, up_to_date=conversion.up_to_date)
    return 0


def run_dry(session: Session, model: str, profile: str, once: Once | None = None) -> int:
    """Show every tensor that would be written."""
    from trtllm_kit.checkpoint.convert import conversion_steps

    folder, made, _ = _planned(session, model, profile, once or Once())
    steps = conversion_steps(folder, made)
    session.result({"tensors": [_step_row(step) for step in steps]}, lambda: _steps_text(steps))
    return 0


def _planned(session: Session, model: str, profile: str, once: Once) -> tuple[Path, Plan, Quality]:
    """Return the model's folder, the plan, and what may be lost."""
    from trtllm_kit.plan.decide import make_plan, require_ok
    from trtllm_kit.spec.load import load_model, with_calibration

    loaded, hardware = asked_for(profile)
    limits = gate_of(once.gate, loaded.profile.quality)
    if once.calibration:
        loaded = with_calibration(loaded, once.calibration)
    folder = model_folder(session, model)
    made = make_plan(load_model(folder), loaded, hardware)
    require_ok(made)
    if once.calibration and not made.quantization.formats.calibrates:
        raise UsageError(
            "the --calib options have nothing to measure",
            why=f"{made.quantization.weights.value} weights and a {made.quantization.kv_cache.value} KV cache "
            "take no scale from a text",
            hint="leave them out, or set quantization.weights in the profile",
        )
    return folder, made, limits


def _step_row(step: TensorStep) -> dict[str, Any]:
    from trtllm_kit.checkpoint.formats import profile_name

    return {
        "tensor": step.name,
        "dtype": step.dtype,
        "shape": list(step.shape),
        "file": step.file,
        "format": profile_name(step.format),
        "part": step.part,
        "source": step.origin,
    }


def _steps_text(steps: tuple[TensorStep, ...]) -> str:
    from trtllm_kit.checkpoint.step import WEIGHT

    rows = [
        (
            row["tensor"],
            row["dtype"],
            "x".join(map(str, row["shape"])) or "scalar",
            row["format"] if row["part"] == WEIGHT else f"{row['format']} {row['part']}",
            row["file"],
            row["source"],
        )
        for row in map(_step_row, steps)
    ]
    files, size = len({step.file for step in steps}), format_bytes(sum(step.nbytes for step in steps))
    total = f"{counted(len(steps), 'tensor')}, {size}, {counted(files, 'weight file')}; nothing was written"
    return table(("tensor", "dtype", "shape", "format", "file", "from"), rows) + "\n" + total
