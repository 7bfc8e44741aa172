"""Engine folders: made from a checkpoint and a plan, opened with everything checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trtllm_kit.artifact import Manifest, read_manifest, require_intact
from trtllm_kit.build.llm_api import CHECKPOINT
from trtllm_kit.build.shell import run
from trtllm_kit.build.step import Link, Run, Step, WriteFile
from trtllm_kit.build.toolchain import steps
from trtllm_kit.checkpoint.link import point
from trtllm_kit.checkpoint.plan_file import read_conversion, read_stored_plan
from trtllm_kit.errors import ManifestError, PlanDrift
from trtllm_kit.plan.conversion import conversion_of, differences
from trtllm_kit.plan.decide import require_ok
from trtllm_kit.plan.plan import Plan, digest_of
from trtllm_kit.progress import Progress
from trtllm_kit.staging import LOCK_SECONDS, Stage, require_apart, staged


@dataclass(frozen=True)
class Build:
    """What a build came to."""

    manifest: Manifest
    up_to_date: bool
    """The engine was there already, and nothing was written."""


@dataclass(frozen=True)
class EngineFacts:
    """An engine folder that was opened and checked."""

    folder: Path
    manifest: Manifest
    plan: Plan
    checkpoint: Path
    """Where its link leads, resolved."""


def build(checkpoint: Path, plan: Plan, out: Path, progress: Progress, *, lock_seconds: float = LOCK_SECONDS) -> Build:
    """Make the engine of a plan in ``out``, or do nothing when it is there.

    Raises ``PlanRefused`` for a plan with errors, ``PlanDrift`` when the checkpoint was converted for another plan,
    ``NoToolchain``, ``BuildFailed``, and the errors of ``staging.staged``.
    """
    require_ok(plan)
    require_apart(out, checkpoint)
    planned = steps(plan)
    source = read_manifest(checkpoint, "checkpoint")
    require_intact(checkpoint, source)
    require_same_conversion(checkpoint, plan)
    key = digest_of({"steps": [step.model_dump(mode="json") for step in planned], "checkpoint": source.digest})
    with staged(out, "engine", key, lock_seconds) as stage:
        if stage is None:
            point(out / CHECKPOINT, checkpoint)  # the checkpoint may have moved since
            return Build(read_manifest(out, "engine"), up_to_date=True)
        _take(planned, stage, checkpoint, progress)
        facts = {
            "toolchain": plan.toolchain.value,
            "release": plan.release.value,
            "profile": plan.profile,
            "architecture": plan.model.architecture,
            "world_size": plan.parallelism.world_size,
        }
        inputs = {"plan": plan.digest, "checkpoint": source.digest}
        return Build(stage.publish(inputs, facts), up_to_date=False)


def open_engine(folder: Path) -> EngineFacts:
    """Open an engine and check it against its manifest and its checkpoint.

    Raises ``ManifestError`` when a file is missing, the link to the checkpoint leads nowhere, or the checkpoint
    there is another one than the engine was built from, or was edited since.
    """
    manifest = read_manifest(folder, "engine")
    require_intact(folder, manifest)
    link = folder / CHECKPOINT
    if not link.is_dir():
        leads = f"leads to {link.readlink()}, which is not there" if link.is_symlink() else "is missing"
        raise _wrong_checkpoint(folder, f"its link {CHECKPOINT} {leads}")
    checkpoint = read_manifest(link, "checkpoint")
    found, wanted = checkpoint.digest, manifest.inputs[CHECKPOINT]
    if found != wanted:
        why = f"the checkpoint at {link.resolve()} has digest {found[:12]}, the engine was built from {wanted[:12]}"
        raise _wrong_checkpoint(folder, why)
    require_intact(link.resolve(), checkpoint)
    return EngineFacts(folder, manifest, read_stored_plan(folder), link.resolve())


def require_same_conversion(checkpoint: Path, plan: Plan) -> None:
    """Raise ``PlanDrift`` naming what differs when the checkpoint was converted otherwise than ``plan`` asks."""
    found = differences(read_conversion(checkpoint), conversion_of(plan))
    if found:
        raise PlanDrift(
            f"checkpoint {checkpoint} was converted for another plan",
            why=f"they differ in {'; '.join(found)}",
            hint="run trtkit convert again with this profile, or build with the profile the checkpoint was made for",
        )


def _take(planned: tuple[Step, ...], stage: Stage, checkpoint: Path, progress: Progress) -> None:
    """Take every step that an interrupted run has not finished."""
    log = stage.out.with_name(f"{stage.out.name}.build.log")
    progress.start("build", len(planned), "steps")
    for step in planned:
        if isinstance(step, Link):
            point(stage.path / step.path, checkpoint)
        elif isinstance(step, WriteFile) and not stage.has(step.path):
            stage.write_text(step.path, step.text)
        elif isinstance(step, Run) and not all(stage.has(name) for name in step.outputs):
            run(step, stage.path, log)
            for name in step.outputs:
                stage.record(name)
        progress.advance(1)
    progress.finish()


def _wrong_checkpoint(folder: Path, why: str) -> ManifestError:
    return ManifestError(
        f"engine {folder} has lost its checkpoint",
        why=why,
        hint="put the checkpoint back, or run trtkit build with the checkpoint's new place",
    )
