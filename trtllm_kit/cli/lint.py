"""``trtkit lint``: what speaks against something that is there already, whoever made it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trtllm_kit.cli.options import OptionalProfileOption, StrictOption, VersionOption
from trtllm_kit.cli.session import Session, show_findings
from trtllm_kit.errors import UsageError
from trtllm_kit.findings import Severity
from trtllm_kit.printable import printable
from trtllm_kit.units import counted

if TYPE_CHECKING:
    from trtllm_kit.lint.context import Context
    from trtllm_kit.lint.report import Read

PathArgument = Annotated[
    Path,
    typer.Argument(
        metavar="PATH",
        help="Engine folder, TensorRT-LLM checkpoint, LLM-API YAML, Triton repository, or Hugging Face folder.",
    ),
]
MountOption = Annotated[
    list[str] | None,
    typer.Option(
        "--mount", metavar="HOST:PATH", help="Where the server sees a folder of this machine; may be repeated."
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
    mounted = tuple(map(_mounted, mounts))
    if profile is None:
        return Context(asked, mounts=mounted)
    from trtllm_kit.cli.asked import asked_for

    loaded, hardware = asked_for(profile)
    return Context(asked, loaded, hardware, mounted)


def _mounted(text: str) -> tuple[Path, str]:
    """Read HOST:PATH, as container tools have it."""
    host, _, inside = text.partition(":")
    if not host or not inside.startswith("/"):
        raise UsageError(
            f"--mount {text} is not understood",
            why="it takes a folder of this machine, a colon, and the absolute path under which the server sees it",
            hint="--mount /data/models:/models",
        )
    return Path(host), inside.rstrip("/")


def _text(path: Path, read: Read) -> str:
    read_of = "; ".join(f"{name} {value}" for name, value in read.facts.items())
    head = f"{printable(str(path))}: {read.kind} ({printable(read_of)})"
    blocks = []
    for one in read.findings:
        where = f" at {printable(one.place)}" if one.place else ""
        blocks.append(show_findings([one.finding]).replace(": ", f"{where}: ", 1))
    counts = [sum(one.finding.severity is severity for one in read.findings) for severity in Severity]
    told = ", ".join(counted(count, kind) for count, kind in zip(counts, ("error", "warning", "remark"), strict=True))
    return "\n".join((head, f"release {read.release}, named by {read.release_from}", *blocks, told))
