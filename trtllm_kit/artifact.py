"""What an artifact is: a folder whose manifest lists every file of it, and the log beside it.

A manifest is written last (``staging``), so a folder that holds one is complete. Manifests hold no clock, host or
path; those go into the log.
"""

from __future__ import annotations

import hashlib
import json
import socket
import sys
import time
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from trtllm_kit.errors import ManifestError, storage_error

MANIFEST = "trtkit-manifest.json"
Kind = Literal["model", "checkpoint", "engine", "repository"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileEntry(_Frozen):
    """One file of an artifact."""

    path: str
    """Relative to the artifact's folder, with forward slashes."""
    bytes: int
    sha256: str


class Manifest(_Frozen):
    """What an artifact is, what it was made from, and every file in it."""

    schema_version: Literal[1] = 1
    kind: Kind
    kit_version: str
    key: str
    """Digest of everything the bytes depend on: the plan and the inputs."""
    inputs: dict[str, str]
    """Digest of each input, by name (``plan``, ``model``, ``checkpoint``, ``engine``)."""
    facts: dict[str, Any]
    """What a reader of the artifact wants to know; JSON values."""
    files: tuple[FileEntry, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of the manifest itself: two artifacts with the same digest hold the same bytes."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


def read_manifest(folder: Path, kind: Kind | None = None) -> Manifest:
    """Read the manifest of a complete artifact; raises ``ManifestError`` when there is none of that kind."""
    path = folder / MANIFEST
    try:
        manifest = Manifest.model_validate_json(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ManifestError(
            f"{folder} is not a complete artifact of trtkit",
            why=f"it holds no {MANIFEST}, which is written last",
            hint=f"run the verb that makes it ({_MAKER.get(kind or 'checkpoint')}) again",
        ) from None
    except (ValidationError, UnicodeDecodeError) as error:
        raise ManifestError(
            f"{path} cannot be read", why=f"it is not a manifest of schema 1: {error}", hint="make the artifact again"
        ) from None
    except OSError as error:
        raise storage_error(error, "reading a manifest") from None
    if kind is not None and manifest.kind != kind:
        raise ManifestError(
            f"{folder} is not the {kind} asked for but of kind {manifest.kind}",
            why=f"its manifest says kind {manifest.kind!r}",
            hint=f"give the folder that {_MAKER[kind]} wrote",
        )
    return manifest


def check_sizes(folder: Path, manifest: Manifest) -> None:
    """Raise ``ManifestError`` when a file of the manifest is missing or has another size (hashes are not read)."""
    for entry in manifest.files:
        try:
            size = (folder / entry.path).stat().st_size
        except OSError:
            size = -1
        if size != entry.bytes:
            raise ManifestError(
                f"{folder / entry.path} does not match its manifest",
                why=f"{'missing' if size < 0 else f'{size} bytes on disk'}, {entry.bytes} bytes in the manifest",
                hint=f"make the {manifest.kind} again with {_MAKER[manifest.kind]}",
            )


_MAKER: dict[str, str] = {
    "model": "trtkit quickstart",
    "checkpoint": "trtkit convert",
    "engine": "trtkit build",
    "repository": "trtkit deploy",
}


def append_log(out: Path, record: dict[str, Any]) -> None:
    """Append one line about a run (with clock, host and command, which manifests never hold) to ``<out>.log.jsonl``."""
    line = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "host": socket.gethostname(), "argv": sys.argv}
    with out.with_name(out.name + ".log.jsonl").open("a", encoding="utf-8") as log:
        log.write(json.dumps(line | record) + "\n")  # ASCII: argv may hold bytes that are no text
