"""What an artifact is: a folder whose manifest lists every file of it, and the log beside it.

A manifest is written last (``staging``), so a folder that holds one is complete. Manifests hold no clock, host or
path; those go into the log.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from trtllm_kit.errors import ManifestError, storage_error
from trtllm_kit.files import open_file

MANIFEST = "trtkit-manifest.json"
Kind = Literal["model", "checkpoint", "engine", "repository", "target"]


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
            f"{path} cannot be read",
            why=f"it is not a manifest of schema 1: {first_fault(error)}",
            hint="make the artifact again",
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


def first_fault(error: ValueError) -> str:
    """Return in one line what a document was refused for first, with the dotted place of it."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_input=False)[0]
    return ": ".join([*([".".join(map(str, first["loc"]))] if first["loc"] else []), first["msg"]])


def require_intact(folder: Path, manifest: Manifest) -> None:
    """Raise ``ManifestError`` when a file of the manifest is missing, has another size, or was edited since.

    The manifest is written last, so a file newer than it was edited or copied: its hash says which. Files that are
    older, all of them in an artifact nobody touched, are not read. An edit that puts the time back is not seen.
    """
    try:
        finished_ns = (folder / MANIFEST).stat().st_mtime_ns
        found = ((entry, _damage(folder / entry.path, entry, finished_ns)) for entry in manifest.files)
        entry, why = next(((entry, why) for entry, why in found if why), (None, ""))
    except OSError as error:
        raise storage_error(error, "comparing files with their manifest") from None
    if entry is not None:
        raise ManifestError(
            f"{folder / entry.path} does not match its manifest",
            why=why,
            hint=f"make the {manifest.kind} again with {_MAKER[manifest.kind]}",
        )


def _damage(path: Path, entry: FileEntry, finished_ns: int) -> str:
    """Say what is wrong with a file, in one line; nothing for a sound one."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return f"missing, {entry.bytes} bytes in the manifest"
    if found.st_size != entry.bytes:
        return f"{found.st_size} bytes on disk, {entry.bytes} bytes in the manifest"
    if found.st_mtime_ns <= finished_ns:
        return ""
    with open_file(path) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest == entry.sha256:
        return ""
    return f"written to after it was finished: SHA-256 begins with {digest[:12]}, in the manifest {entry.sha256[:12]}"


def foreign_files(folder: Path, manifest: Manifest) -> list[str]:
    """Return the files below an artifact's folder that are not of it, sorted; links and Python's caches aside."""
    known = {MANIFEST, *(entry.path for entry in manifest.files)}
    found: list[str] = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        paths = [Path(place) / name for name in names]
        found += [path.relative_to(folder).as_posix() for path in paths if not path.is_symlink()]
    return sorted(set(found) - known)


_MAKER: dict[str, str] = {
    "model": "trtkit quickstart",
    "checkpoint": "trtkit convert",
    "engine": "trtkit build",
    "repository": "trtkit deploy",
    "target": "trtkit deploy --target",
}


def append_log(out: Path, record: dict[str, Any]) -> None:
    """Append one line about a run (with clock, host and command, which manifests never hold) to ``<out>.log.jsonl``."""
    line = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "host": socket.gethostname(), "argv": sys.argv}
    with out.with_name(out.name + ".log.jsonl").open("a", encoding="utf-8") as log:
        log.write(json.dumps(line | record) + "\n")  # ASCII: argv may hold bytes that are no text
