"""The targets of ``trtkit deploy``: what each is made for, what a run changes in its folder, and how that is shown."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtllm_kit.errors import UsageError
from trtllm_kit.printable import printable

if TYPE_CHECKING:
    from trtllm_kit.plan.plan import Plan
    from trtllm_kit.serve.target_folder import Change
    from trtllm_kit.serve.targets.subject import Subject
    from trtllm_kit.spec.hardware import Hardware
    from trtllm_kit.spec.load import LoadedProfile

_MOST_DIFF_LINES = 60
"""Lines of one file's difference that are shown; ``--json`` has all of them."""


@dataclass(frozen=True, slots=True)
class Ready:
    """One target, made and not yet written."""

    name: str
    folder: Path
    files: dict[str, str]
    command: tuple[str, ...]
    """What applies the files."""

    @property
    def facts(self) -> dict[str, Any]:
        """What its manifest tells; no path."""
        return {"target": self.name}


def targets_of(
    names: Sequence[str], plan: Plan, asked: tuple[LoadedProfile, Hardware], out: Path, parent: Path | None
) -> tuple[Ready, ...]:
    """Make the files of every target named; raises ``UsageError`` for a name that is none, ``ProfileError``."""
    from trtllm_kit.serve.targets.table import TARGETS

    for name in names:
        if name not in TARGETS:
            raise UsageError(
                f"--target {name}", why=f"there are {', '.join(TARGETS)}", hint=f"--target {next(iter(TARGETS))}"
            )
    made = []
    here: Subject | None = None
    pods: Subject | None = None
    for name in dict.fromkeys(names):
        folder = out.with_name(f"{out.name}.{name}") if parent is None else parent / name
        if TARGETS[name].pods:
            subject = pods = pods or _in_pods(plan, asked, out)
        else:
            here = here or _subject(plan, asked, out)
            subject = replace(here, place=os.path.relpath(out.resolve(), folder.resolve()))
        row = TARGETS[name]
        made.append(Ready(name, folder, row.files(subject), row.command(subject, str(folder))))
    return tuple(made)


def _subject(plan: Plan, asked: tuple[LoadedProfile, Hardware], out: Path) -> Subject:
    from trtllm_kit.health.load import rules_for
    from trtllm_kit.health.prometheus import rule_groups
    from trtllm_kit.plan.serving_mode import serves_engines
    from trtllm_kit.repository.compose import repository_files
    from trtllm_kit.serve.targets.monitors import SCRAPE_SECONDS
    from trtllm_kit.serve.targets.subject import Subject

    loaded, hardware = asked
    subject = Subject(
        plan=plan,
        hardware=hardware,
        deploy=loaded.profile.deploy,
        repository=repository_files(plan, out),
        place="",
        linked=not plan.serve.checkpoint_path,
        engine_linked=serves_engines(plan) and not plan.serve.engine_path,
    )
    ruleset = rules_for(loaded.profile, hardware, loaded.origins)
    grace = plan.serve.start_grace
    groups = rule_groups(ruleset, subject.name, start_grace_seconds=grace, scrape_seconds=SCRAPE_SECONDS)
    return replace(subject, rules=groups)


def _in_pods(plan: Plan, asked: tuple[LoadedProfile, Hardware], out: Path) -> Subject:
    """Plan again as a pod sees things: checkpoint and engine in its volume, the builder in its own container."""
    from trtllm_kit.plan.decide import make_plan, require_ok
    from trtllm_kit.plan.remedies import with_changes
    from trtllm_kit.serve.targets.objects import CHECKPOINT_PATH, ENGINE_PATH

    loaded, hardware = asked
    changes: dict[str, Any] = {}
    if loaded.profile.serve.checkpoint_path is None:
        changes["serve.checkpoint_path"] = CHECKPOINT_PATH
    if plan.build is not None and loaded.profile.serve.engine_path is None:
        changes["serve.engine_path"] = ENGINE_PATH
    if plan.build is not None:
        changes |= {"build.runner": "local", "build.template": None}
    changed = with_changes(loaded, changes) if changes else loaded
    made = make_plan(plan.model, changed, hardware)
    require_ok(made)
    return replace(_subject(made, (changed, hardware), out), in_pods=True)


def changes_of(ready: Ready) -> tuple[Change, ...]:
    """Say what writing a target would change."""
    from trtllm_kit.serve.target_folder import compare

    return compare(ready.folder, ready.files)


def document(ready: Ready, changes: Sequence[Change]) -> dict[str, Any]:
    """Return a target as the object that ``--json`` prints."""
    rows = [{"path": change.path, "state": change.state, "diff": list(change.diff)} for change in changes]
    return {"target": ready.name, "folder": str(ready.folder), "apply": list(ready.command), "files": rows}


def text(ready: Ready, changes: Sequence[Change]) -> str:
    """Say what became of a target: each file that is not as it was with its difference, and the command."""
    changed = [change for change in changes if change.state != "same"]
    state = f"{len(changed)} of {len(changes)} files differ" if changed else f"{len(changes)} files, up to date"
    lines = [f"{ready.folder}: target {ready.name}, {state}"]
    for change in changed:
        lines.append(f"  {change.state}: {printable(change.path)}")
        if change.state in ("changed", "edited"):
            lines += _shown(change.diff)
    return "\n".join([*lines, f"  apply: {shlex.join(ready.command)}"])


def differences(changes: Sequence[Change]) -> str:
    """Say how files that stand there differ from those that are made now; empty when none does."""
    lines = []
    for change in changes:
        if change.state in ("changed", "edited", "gone"):
            lines.append(f"  {change.state}: {printable(change.path)}")
            lines += _shown(change.diff) if change.state != "gone" else []
    return "\n".join(lines)


def _shown(diff: Sequence[str]) -> list[str]:
    lines = [f"    {printable(line)}" for line in diff[:_MOST_DIFF_LINES]]
    left = len(diff) - _MOST_DIFF_LINES
    return [*lines, f"    ... {left} more lines"] if left > 0 else lines
