"""``trtkit upgrade-check``: what the next TensorRT-LLM release breaks of a project."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trtllm_kit.cli.options import StrictOption
from trtllm_kit.cli.session import Session
from trtllm_kit.errors import UsageError
from trtllm_kit.findings import Severity
from trtllm_kit.printable import printable
from trtllm_kit.units import counted

if TYPE_CHECKING:
    from trtllm_kit.migrate.release.upgrade import Broken, Checked

FolderArgument = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="Project to look through; a single file does too.", show_default=".")
]
ToOption = Annotated[str, typer.Option("--to", metavar="V", help="TensorRT-LLM release that is to come.")]
FromOption = Annotated[
    str | None,
    typer.Option("--from", metavar="V", help="Release that it runs on now: tell only what that one takes."),
]
ModelOption = Annotated[
    Path | None,
    typer.Option(
        "--model", metavar="FOLDER", help="Hugging Face folder to plan the profiles for; else the only one in FOLDER."
    ),
]


def upgrade_check(
    context: typer.Context,
    folder: FolderArgument = Path(),
    *,
    target: ToOption,
    source: FromOption = None,
    model: ModelOption = None,
    strict: StrictOption = False,
) -> int:
    """Look through a project for what a release breaks, with what mends it. Exit 1: an ERROR, or WARNING if strict."""
    from trtllm_kit.cli.asked import asked_for
    from trtllm_kit.migrate.release.upgrade import check_project

    session: Session = context.obj
    before = None if source is None else _release("--from", source)
    checked = check_project(folder, _release("--to", target), asked_for, source=before, model=model)
    severities = {one.at.finding.severity for one in checked.broken}
    bad = severities & ({Severity.ERROR, Severity.WARNING} if strict else {Severity.ERROR})
    unread = strict and bool(checked.not_read)
    session.result(lambda: _document(folder, checked, bool(bad or unread)), lambda: _text(folder, checked))
    return 1 if bad or unread else 0


def _release(option: str, text: str) -> str:
    from trtllm_kit.upstream.releases import release, unknown_release

    unknown = unknown_release(text)
    if unknown:
        raise UsageError(f"{option} {text!r} is not a release trtkit knows", why=unknown, hint="trtkit upstream list")
    return release(text).version


def _document(folder: Path, checked: Checked, bad: bool) -> dict[str, Any]:
    return {
        "folder": str(folder),
        "release": checked.release,
        "verdict": "no" if bad else "yes",
        "read": [{"path": path, "kind": kind} for path, kind in checked.things],
        "not_read": [{"path": str(one.path), "why": one.why} for one in checked.not_read],
        "findings": [{**one.at.document(), "kind": one.kind, "mend": one.mend or None} for one in checked.broken],
    }


def _text(folder: Path, checked: Checked) -> str:
    lines = [f"{printable(str(folder))}: {counted(len(checked.things), 'thing')} that {checked.release} reads"]
    lines += [_finding(one) for one in checked.broken]
    lines += [f"not read: {printable(str(one.path))}: {printable(one.why)}" for one in checked.not_read]
    counts = [sum(one.at.finding.severity is severity for one in checked.broken) for severity in Severity]
    told = ", ".join(counted(count, kind) for count, kind in zip(counts, ("error", "warning", "remark"), strict=True))
    return "\n".join((*lines, told))


def _finding(one: Broken) -> str:
    from trtllm_kit.cli.lint import show_located

    shown = show_located(one.at)
    return f"{shown}\n  mend: {printable(one.mend)}" if one.mend else shown
