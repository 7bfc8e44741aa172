"""``trtkit lint``: what speaks against something that is there already, whoever made it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trtllm_kit.cli.options import MountOption, OptionalProfileOption, StrictOption, VersionOption, mounted
from trtllm_kit.cli.session import Session, show_findings
from trtllm_kit.findings import Severity
from trtllm_kit.printable import printable
from trtllm_kit.units import counted

if TYPE_CHECKING:
    from trtllm_kit.lint.context import Context
    from trtllm_kit.lint.report import Located, Read

PathArgument = Annotated[
    Path,
    typer.Argument(
        metavar="PATH",
        help="Engine folder, TensorRT-LLM checkpoint, LLM-API YAML, Triton repository, Hugging Face folder, "
        "shell script, Dockerfile, or Kubernetes manifest.",
    ),
]


def lint(
    context: typer.Context,
    path: PathArgument,
    *,
    trtllm_version: VersionOption = None,
    profile: OptionalProfileOption = None,
    mount: MountOption = None,
    strict: StrictOption = False,
) -> int:
    """Check what is there already against a release's rules. Exit 1 with an ERROR, 3 when it cannot be read."""
    from trtllm_kit.lint.run import lint as run

    session: Session = context.obj
    read = run(path, _context(trtllm_version, profile, mount or []))
    bad = read.severities() & ({Severity.ERROR, Severity.WARNING} if strict else {Severity.ERROR})
    document = {
        "path": str(path),
        "kind": read.kind,
        "release": read.release,
        "release_from": read.release_from,
        "read": dict(read.facts),
        "verdict": "no" if bad else "yes",
        "findings": [one.document() for one in read.findings],
    }
    session.result(document, lambda: _text(path, read))
    return 1 if bad else 0


def _context(version: str | None, profile: str | None, mounts: list[str]) -> Context:
    from trtllm_kit.lint.context import Context
    from trtllm_kit.upstream.releases import release

    asked = release(version).version if version is not None else None
    folders = tuple(map(mounted, mounts))
    if profile is None:
        return Context(asked, mounts=folders)
    from trtllm_kit.cli.asked import asked_for

    loaded, hardware = asked_for(profile)
    return Context(asked, loaded, hardware, folders)


def _text(path: Path, read: Read) -> str:
    read_of = "; ".join(f"{name} {value}" for name, value in read.facts.items())
    head = f"{printable(str(path))}: {read.kind} ({printable(read_of)})"
    counts = [sum(one.finding.severity is severity for one in read.findings) for severity in Severity]
    told = ", ".join(counted(count, kind) for count, kind in zip(counts, ("error", "warning", "remark"), strict=True))
    return "\n".join(
        (head, f"release {read.release}, named by {read.release_from}", *map(show_located, read.findings), told)
    )


def show_located(one: Located) -> str:
    """Lay out a finding with the place that it is about."""
    where = f" at {printable(one.place)}" if one.place else ""
    return show_findings([one.finding]).replace(": ", f"{where}: ", 1)
