"""What a verb that makes an artifact says of it: a few lines, one object, or one line for a run nobody attends."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtllm_kit.cli.session import Session, show_findings
from trtllm_kit.units import counted, format_bytes, format_seconds

if TYPE_CHECKING:
    from trtllm_kit.artifact import Manifest


@dataclass(frozen=True, slots=True)
class Besides:
    """What a run made besides its artifact."""

    keys: dict[str, Any] = field(default_factory=dict)
    """Further keys of the object."""
    text: str = ""
    """The same for people, from a line of its own on."""
    fresh: bool = False
    """Whether anything of it is not as it was."""


def show_made(
    session: Session,
    out: Path,
    manifest: Manifest,
    *,
    up_to_date: bool,
    server: Mapping[str, Any] | None = None,
    note: str = "",
    taken_from: Path | None = None,
    besides: Besides | None = None,
) -> None:
    """Show an artifact and the server on it. Unattended: nothing when nothing changed, else one line.

    ``server`` holds ``pid``, ``started`` and perhaps ``replaced`` and ``urls``; ``note`` is what a reader of that
    one line must know besides; ``taken_from`` is the folder of a store whose files it has.
    """
    document: dict[str, Any] = {"out": str(out), "up_to_date": up_to_date, "manifest": manifest.model_dump(mode="json")}
    if taken_from is not None:
        document["taken_from"] = str(taken_from)
    if server is not None:
        document["server"] = dict(server)
    besides = besides or Besides()
    document |= besides.keys
    if not session.outlet.unattended:
        session.result(document, lambda: made_text(out, manifest, up_to_date=up_to_date) + besides.text)
    elif up_to_date and not besides.fresh and not (server or {}).get("started"):
        session.log(f"{out}: the {manifest.kind} is up to date")
    else:
        took = session.outlet.seconds()
        document |= {"digest": manifest.digest, "bytes": _size(manifest), "seconds": round(took, 3)}
        line = f"{_head(out, manifest, up_to_date=up_to_date)}{_server_words(server)}{note}, {format_seconds(took)}"
        session.result(document, lambda: line)


def made_text(out: Path, manifest: Manifest, *, up_to_date: bool) -> str:
    """Say in a few lines what an artifact holds; every verb that makes one shows it so."""
    from trtllm_kit.findings import Finding

    lines = [_head(out, manifest, up_to_date=up_to_date)]
    facts = {name: value for name, value in manifest.facts.items() if value not in (None, [], {})}
    findings = facts.pop("findings", [])
    lines += [f"  {name}: {_fact(value)}" for name, value in facts.items()]
    if findings:
        lines.append(show_findings([Finding.model_validate(one) for one in findings]))
    return "\n".join(lines)


def _head(out: Path, manifest: Manifest, *, up_to_date: bool) -> str:
    state = "is up to date" if up_to_date else "was made"
    files = counted(len(manifest.files), "file")
    size = format_bytes(_size(manifest))
    return f"{out}: the {manifest.kind} {state}, {files}, {size}, manifest {manifest.digest[:12]}"


def _size(manifest: Manifest) -> int:
    return sum(entry.bytes for entry in manifest.files)


def _server_words(server: Mapping[str, Any] | None) -> str:
    if server is None or not server["started"]:
        return ""
    instead = f" in place of {server['replaced']}" if server.get("replaced") else ""
    return f", served by process {server['pid']}{instead} on {server['urls']['http']}"


def _fact(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_fact(inner)}" for name, inner in value.items() if inner is not None)
    if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value):
        return value[:12]
    if isinstance(value, list):
        return "; ".join(_fact(inner) for inner in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)
