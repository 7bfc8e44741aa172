"""Folders that are complete or absent: staging, resume, locks and manifests, shared by every stage that writes.

Work happens in a hidden sibling of the output. Each finished file is noted in a journal there, so an
interrupted run goes on where it stopped when its key (plan and inputs) is still the same. The manifest is
written last and the sibling is renamed into place, so a folder that holds a manifest is complete. Manifests
hold no clock, host or path; those go into the log beside the output.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import filelock
from pydantic import BaseModel, ConfigDict, ValidationError

from trtllm_kit import __version__
from trtllm_kit.errors import LockTimeout, ManifestError, OutputOccupied, storage_error

MANIFEST = "trtkit-manifest.json"
_JOURNAL = ".trtkit-journal.jsonl"
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
            f"{folder} is a {manifest.kind}, not a {kind}",
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


class Stage:
    """A folder under construction. Write files into ``path``, call ``record`` for each, then ``publish``."""

    def __init__(self, out: Path, kind: Kind, key: str) -> None:
        """Open (or go on in) the staging folder of ``out``; ``staged`` is the way in."""
        self.out = out
        self.kind: Kind = kind
        self.key = key
        self.path = _sibling(out, "partial")
        self.resumed = False
        self._entries: dict[str, FileEntry] = {}
        self._open()

    def has(self, relative: str) -> bool:
        """Whether an earlier, interrupted run finished this file."""
        return relative in self._entries

    def entry(self, relative: str) -> FileEntry:
        """Return the record of a finished file."""
        return self._entries[relative]

    def record(self, relative: str, sha256: str | None = None) -> FileEntry:
        """Note a finished file: flush it to disk, hash it unless the hash is given, append it to the journal."""
        path = self.path / relative
        with path.open("rb") as file:
            os.fsync(file.fileno())
            digest = sha256 or hashlib.file_digest(file, "sha256").hexdigest()
        entry = FileEntry(path=relative, bytes=path.stat().st_size, sha256=digest)
        self._entries[relative] = entry
        with (self.path / _JOURNAL).open("a", encoding="utf-8") as journal:
            journal.write(entry.model_dump_json() + "\n")
            journal.flush()
            os.fsync(journal.fileno())
        return entry

    def write_text(self, relative: str, text: str) -> FileEntry:
        """Write and record a small UTF-8 file, making its folder."""
        path = self.path / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return self.record(relative)

    def publish(self, inputs: dict[str, str], facts: dict[str, Any]) -> Manifest:
        """Write the manifest last and swap the finished folder into place of any older one."""
        manifest = Manifest(
            kind=self.kind,
            kit_version=__version__,
            key=self.key,
            inputs=inputs,
            facts=facts,
            files=tuple(self._entries[name] for name in sorted(self._entries)),
        )
        (self.path / _JOURNAL).unlink(missing_ok=True)
        _write_synced(self.path / MANIFEST, manifest.model_dump_json(indent=1) + "\n")
        old = _sibling(self.out, "old")
        shutil.rmtree(old, ignore_errors=True)
        if self.out.exists():
            self.out.rename(old)
        self.path.rename(self.out)
        _sync_folder(self.out.parent)
        shutil.rmtree(old, ignore_errors=True)
        return manifest

    def discard(self) -> None:
        """Remove the staging folder."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _open(self) -> None:
        header = json.dumps({"key": self.key})
        journal = self.path / _JOURNAL
        lines = journal.read_text("utf-8").splitlines() if journal.is_file() else []
        if lines[:1] != [header]:
            self.discard()
            self.path.mkdir(parents=True)
            _write_synced(journal, header + "\n")
            return
        for line in lines[1:]:
            self._resume(line)

    def _resume(self, line: str) -> None:
        try:
            entry = FileEntry.model_validate_json(line)
        except ValidationError:
            return  # the run was killed while it wrote this line
        path = self.path / entry.path
        if path.is_file() and path.stat().st_size == entry.bytes:
            self._entries[entry.path] = entry
            self.resumed = True


@contextmanager
def staged(out: Path, kind: Kind, key: str, lock_seconds: float = 10.0) -> Iterator[Stage | None]:
    """Lock ``out`` and yield its stage, or None when a complete artifact with that key is already there.

    An error inside removes the stage; an interrupt (Ctrl-C, SIGTERM) keeps it so that a rerun goes on.
    Raises ``OutputOccupied`` when ``out`` holds something that is not an artifact, ``LockTimeout`` when
    another run holds it, ``StorageError`` for every failure of the file system.
    """
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with _locked(out, lock_seconds):
            _recover(out)
            if _is_current(out, kind, key):
                yield None
                return
            stage = Stage(out, kind, key)
            try:
                yield stage
            except Exception:
                stage.discard()
                raise
    except OSError as error:
        raise storage_error(error, f"writing the {kind}") from error


def append_log(out: Path, record: dict[str, Any]) -> None:
    """Append one line about a run (with clock, host and command, which manifests never hold) to ``<out>.log.jsonl``."""
    line = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "host": socket.gethostname(), "argv": sys.argv}
    with out.with_name(out.name + ".log.jsonl").open("a", encoding="utf-8") as log:
        log.write(json.dumps(line | record, ensure_ascii=False) + "\n")


@contextmanager
def _locked(out: Path, seconds: float) -> Iterator[None]:
    path = _sibling(out, "lock")
    lock = filelock.FileLock(path)
    try:
        lock.acquire(timeout=seconds)
    except filelock.Timeout:
        raise LockTimeout(
            f"another run is working on {out}",
            why=f"its lock {path} was not free after {seconds:.0f} s",
            hint="wait for that run, or choose another --out",
        ) from None
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        lock.release()


def _recover(out: Path) -> None:
    """Finish a swap that was cut between its two renames."""
    old = _sibling(out, "old")
    if old.exists() and not out.exists():
        old.rename(out)


def _is_current(out: Path, kind: Kind, key: str) -> bool:
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    if not (out / MANIFEST).is_file():
        raise OutputOccupied(
            f"{out} exists and was not made by trtkit",
            why=f"it holds no {MANIFEST}, so replacing it could destroy something of yours",
            hint="choose another --out, or move that folder away",
        )
    manifest = read_manifest(out, kind)
    if manifest.key != key:
        return False
    try:
        check_sizes(out, manifest)
    except ManifestError:
        return False
    return True


def _sibling(out: Path, purpose: str) -> Path:
    return out.with_name(f".{out.name}.{purpose}")


def _write_synced(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
