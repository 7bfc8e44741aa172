"""Engine folders: made from a checkpoint and a plan, opened with everything checked."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtllm_kit import __version__
from trtllm_kit.artifact import Manifest, read_manifest, require_intact
from trtllm_kit.build.differences import Origin
from trtllm_kit.build.driver import driver_class
from trtllm_kit.build.given import checkpoint_digest, files_digest, is_given, named_digest, require_given, require_heads
from trtllm_kit.build.llm_api import CHECKPOINT
from trtllm_kit.build.shell import run
from trtllm_kit.build.step import CHECKPOINT_PLACE, DRAFT_PLACE, ENGINE, Link, Run, Step, WriteFile
from trtllm_kit.build.store import Store, store_key, take_over
from trtllm_kit.build.toolchain import steps
from trtllm_kit.build.trtllm_build import DRAFT, DRAFT_CHECKPOINT
from trtllm_kit.checkpoint.link import point
from trtllm_kit.checkpoint.plan_file import read_conversion, read_stored_plan
from trtllm_kit.errors import ManifestError, PlanDrift, UsageError
from trtllm_kit.plan.build_options import words
from trtllm_kit.plan.conversion import conversion_of, differences
from trtllm_kit.plan.decide import require_ok
from trtllm_kit.plan.plan import Plan, digest_of
from trtllm_kit.progress import Progress
from trtllm_kit.staging import LOCK_SECONDS, Stage, require_apart, staged

ADAPTERS = "adapters"
"""Input of a manifest: the files of the adapters that an engine was built for."""
DRIVER = "driver"
"""Fact of a manifest: the class of driver a compiled engine was built under."""


@dataclass(frozen=True)
class Build:
    """What a build came to."""

    manifest: Manifest
    up_to_date: bool
    """The engine was there already, and nothing was written."""
    taken_from: Path | None = None
    """The engine of the store whose files it has; None for one that was made now, or was there."""


@dataclass(frozen=True)
class Reuse:
    """A store to take engines from."""

    store: Store
    missing: Callable[[Origin], None]
    """Told what is asked for when the store does not have it, before it is made."""


@dataclass(frozen=True)
class EngineFacts:
    """An engine folder that was opened and checked."""

    folder: Path
    manifest: Manifest
    plan: Plan
    checkpoint: Path
    """Where its link leads, resolved."""


def build(
    checkpoint: Path,
    plan: Plan,
    out: Path,
    progress: Progress,
    *,
    lock_seconds: float = LOCK_SECONDS,
    reuse: Reuse | None = None,
) -> Build:
    """Make the engine of a plan in ``out``, or do nothing when it is there.

    With ``reuse`` it is taken from the store, after it was made there if it was missing.
    Raises ``PlanRefused`` for a plan with errors, ``PlanDrift`` when the checkpoint was converted for another plan,
    ``NoToolchain``, ``BuildFailed``, and the errors of ``staging.staged``.
    """
    work = _settled(checkpoint, plan, out)
    fits = work.fits if reuse is not None else lambda _: True
    with staged(out, "engine", work.key, lock_seconds, fits) as stage:
        if stage is None:
            work.point(out)  # the checkpoint may have moved since
            if reuse is not None and os.access(reuse.store.folder, os.W_OK):
                reuse.store.tidy()
            return Build(read_manifest(out, "engine"), up_to_date=True)
        if reuse is None:
            return Build(work.make(stage, progress, stage.out), up_to_date=False)
        return _from_store(reuse, work, stage, progress, lock_seconds)


def _from_store(reuse: Reuse, work: _Work, stage: Stage, progress: Progress, lock_seconds: float) -> Build:
    """Publish the engine that the store has, or that is made there now."""
    store, key = reuse.store, store_key(work.key, work.driver)

    def make(inner: Stage) -> Manifest:
        reuse.missing(work.origin)
        return work.make(inner, progress, stage.out)

    with store.holding(key, work.key, make, lock_seconds) as held:
        store.note_use(key, stage.out)
        work.point(stage.path)
        take_over(held, stage)
        manifest = stage.publish(held.manifest.inputs, held.manifest.facts)
        return Build(manifest, up_to_date=False, taken_from=held.folder if held.found else None)


@dataclass(frozen=True)
class _Work:
    """One build, checked whole before the first byte."""

    plan: Plan
    steps: tuple[Step, ...]
    sources: _Sources
    inputs: dict[str, str]
    driver: str | None

    @property
    def key(self) -> str:
        return digest_of({"steps": [step.model_dump(mode="json") for step in self.steps], **self.inputs})

    @property
    def origin(self) -> Origin:
        return Origin(self.plan, self.inputs, self.driver, __version__)

    def fits(self, manifest: Manifest) -> bool:
        """Whether an engine of this key was built under this class of driver."""
        return bool(manifest.facts.get(DRIVER) == self.driver)

    def point(self, engine: Path) -> None:
        """Lead the links of an engine to where its inputs lie now."""
        for step in self.steps:
            if isinstance(step, Link):
                point(engine / step.path, self.sources.of(step))

    def make(self, stage: Stage, progress: Progress, named: Path) -> Manifest:
        """Take every step and publish; the builder's log stands beside ``named``."""
        _take(self.steps, stage, self.sources, progress, named.with_name(f"{named.name}.build.log"))
        facts = _facts(self.plan) | ({} if self.driver is None else {DRIVER: self.driver})
        return stage.publish({"plan": self.plan.digest, **self.inputs}, facts)


def _settled(checkpoint: Path, plan: Plan, out: Path) -> _Work:
    require_ok(plan)
    require_apart(out, checkpoint)
    planned = steps(plan)
    if is_given(checkpoint):
        require_given(checkpoint, plan)
    digest = checkpoint_digest(checkpoint)
    if not is_given(checkpoint):
        require_same_conversion(checkpoint, plan)
        require_heads(checkpoint, plan)
    draft, adapters = _draft_of(plan), _adapters_of(plan)
    inputs = {CHECKPOINT: digest} | ({} if draft is None else {DRAFT: checkpoint_digest(draft)})
    inputs |= {ADAPTERS: digest_of([files_digest(one) for one in adapters])} if adapters else {}
    driver = None if plan.build is None else driver_class()
    return _Work(plan, planned, _Sources(checkpoint, draft), inputs, driver)


def _facts(plan: Plan) -> dict[str, Any]:
    """Return what a manifest tells of an engine: what made it, and where it can run."""
    built = plan.build
    facts = {
        "toolchain": plan.toolchain.value,
        "release": plan.release.value,
        "profile": plan.profile,
        "architecture": plan.model.architecture,
        "world_size": plan.parallelism.world_size,
    }
    if built is None:
        return facts
    return facts | {
        "gpu": plan.gpu,
        "compute_capability": plan.compute_capability,
        "image": built.image.value if built.image else None,
        "options": {name: decided.value for name, decided in built.options.items()},
        "draft_ranks": built.draft_ranks.value if built.draft_ranks else None,
    }


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
    found, wanted = named_digest(link.resolve()), manifest.inputs[CHECKPOINT]
    if found != wanted:
        raise _wrong_checkpoint(folder, _another(link, found, wanted))
    if not is_given(link):
        checkpoint_digest(link.resolve())
    return EngineFacts(folder, manifest, read_stored_plan(folder), link.resolve())


def inputs_of(folder: Path, manifest: Manifest) -> tuple[Path, ...]:
    """Return the checkpoints that an engine's links lead to.

    Raises ``ManifestError`` when a link leads nowhere or to another checkpoint than the engine was built from.
    """
    found = []
    for link, name in ((CHECKPOINT, CHECKPOINT), (DRAFT_CHECKPOINT, DRAFT)):
        if name not in manifest.inputs:
            continue
        if not (folder / link).is_dir():
            raise _wrong_checkpoint(folder, f"its link {link} leads to no folder")
        place = (folder / link).resolve()
        digest = named_digest(place)
        if digest != manifest.inputs[name]:
            raise _wrong_checkpoint(folder, _another(place, digest, manifest.inputs[name]))
        found.append((folder / link).resolve())
    return tuple(found)


def _another(link: Path, found: str, wanted: str) -> str:
    return f"the checkpoint at {link.resolve()} has digest {found[:12]}, the engine was built from {wanted[:12]}"


def require_same_conversion(checkpoint: Path, plan: Plan) -> None:
    """Raise ``PlanDrift`` naming what differs when the checkpoint was converted otherwise than ``plan`` asks."""
    found = differences(read_conversion(checkpoint), conversion_of(plan))
    if found:
        raise PlanDrift(
            f"checkpoint {checkpoint} was converted for another plan",
            why=f"they differ in {'; '.join(found)}",
            hint="run trtkit convert again with this profile, or build with the profile the checkpoint was made for",
        )


@dataclass(frozen=True)
class _Sources:
    """The folders an engine is made of."""

    checkpoint: Path
    draft: Path | None

    def of(self, link: Link) -> Path:
        """Return the folder that a link leads to."""
        return self.draft if link.to == "draft" and self.draft is not None else self.checkpoint

    def places(self, engine: Path) -> dict[str, Path]:
        """Return what the placeholders of a command stand for."""
        found = {ENGINE: engine.resolve(), CHECKPOINT_PLACE: self.checkpoint.resolve()}
        return found if self.draft is None else {**found, DRAFT_PLACE: self.draft.resolve()}


def _draft_of(plan: Plan) -> Path | None:
    """Return the draft model's checkpoint of a plan that builds its engine too."""
    if plan.build is None or plan.build.draft_ranks is None:
        return None
    asked = plan.speculation.draft_checkpoint if plan.speculation else None
    if asked is None or not Path(asked.value).is_dir():
        raise UsageError(
            f"speculation.draft_checkpoint {asked.value if asked else 'null'} is no folder here",
            why="its engine is built beside the model's, from what trtkit convert made of it",
            hint="run trtkit convert on the draft model with a profile of the same trtllm_version, and name its --out",
        )
    return Path(asked.value)


def _adapters_of(plan: Plan) -> tuple[Path, ...]:
    """Return the folders of the adapters an engine is built for; raises ``UsageError`` for one that is not here."""
    asked = plan.build.options.get("--lora_dir") if plan.build else None
    folders = tuple(map(Path, words(asked.value))) if asked else ()
    missing = next((one for one in folders if not one.is_dir()), None)
    if missing is not None:
        raise UsageError(
            f"build.options.lora_dir {missing} is no folder here",
            why="the builder copies the adapters into the engine",
            hint="name the absolute path of each adapter's folder",
        )
    return folders


def _take(planned: tuple[Step, ...], stage: Stage, sources: _Sources, progress: Progress, log: Path) -> None:
    """Take every step that an interrupted run has not finished."""
    progress.start("build", len(planned), "steps")
    for number, step in enumerate(planned, start=1):
        if isinstance(step, Link):
            point(stage.path / step.path, sources.of(step))
        elif isinstance(step, WriteFile) and not stage.has(step.path):
            stage.write_text(step.path, step.text)
        elif isinstance(step, Run) and not all(stage.has(name) for name in step.outputs):
            run(step, stage.path, log, progress, sources.places(stage.path))
            for name in (*step.outputs, *_beside(stage, step)):
                stage.record(name)
            progress.start("build", len(planned), "steps")
            progress.advance(number - 1)
        progress.advance(1)
    progress.finish()


def _beside(stage: Stage, step: Run) -> tuple[str, ...]:
    """Return what a program left beside the outputs it must leave: formats of modules, adapters, managed weights."""
    found = (Path(place) / name for place, _, names in os.walk(stage.path) for name in sorted(names))
    files = (path.relative_to(stage.path).as_posix() for path in found if path.is_file() and not path.is_symlink())
    return tuple(sorted(name for name in files if name not in step.outputs and not stage.has(name)))


def _wrong_checkpoint(folder: Path, why: str) -> ManifestError:
    return ManifestError(
        f"engine {folder} has lost its checkpoint",
        why=why,
        hint="put the checkpoint back, or run trtkit build with the checkpoint's new place",
    )
