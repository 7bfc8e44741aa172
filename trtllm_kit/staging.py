"""Folders that are complete or absent: work in a hidden sibling, a journal, a lock, and one rename at the end.

Beside an output ``out`` stand, while it is made::

    .out.partial    the folder under construction
    .out.journal    one line for each file, or beginning of a file, that is finished and on disk; its first line is
                    the key of the work
    .out.lock       held by the run that works on it, whose process number and start it tells
    .out.old        the older artifact, between the two renames of the swap

An interrupted run goes on where it stopped when its key (plan and inputs) is still the same. After a run that ended,
well or with an error, nothing of these is left.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from trtllm_kit import __version__
from trtllm_kit.artifact import MANIFEST, FileEntry, Kind, Manifest, foreign_files, read_manifest, require_intact
from trtllm_kit.errors import LockTimeout, ManifestError, OutputOccupied, UsageError, storage_error

LOCK_SECONDS = 10.0
"""How long a run waits for another one that works on the same output, unless it is told otherwise."""

_SHOWN = 3
"""Files of yours that an error names."""

Fits = Callable[[Manifest], bool]
"""Whether an artifact of the key wanted will do: what it depends on besides may not be part of its key."""


class Prefix(BaseModel):
    """The beginning of an unfinished file that is on disk."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    begun: str
    """The file, relative to the folder."""
    bytes: int
    sha256: str


class Stage:
    """A folder under construction. Write files into ``path``, call ``record`` for each, then ``publish``."""

    def __init__(self, out: Path, kind: Kind, key: str) -> None:
        """Open (or go on in) the staging folder of ``out``; ``staged`` is the way in."""
        self.out = out
        self.kind: Kind = kind
        self.key = key
        self.path = _sibling(out, "partial")
        self.resumed = False
        self.complete = False
        self._journal = _sibling(out, "journal")
        self._entries: dict[str, FileEntry] = {}
        self._prefixes: dict[str, Prefix] = {}
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
        self._note(entry)
        return entry

    def prefix(self, relative: str) -> Prefix | None:
        """Return the beginning of a file that an earlier, interrupted run made sure of."""
        return self._prefixes.get(relative)

    def record_prefix(self, relative: str, size: int, sha256: str) -> None:
        """Note that the first ``size`` bytes of an unfinished file are on disk, and their hash."""
        self._note(Prefix(begun=relative, bytes=size, sha256=sha256))

    def _note(self, line: BaseModel) -> None:
        with self._journal.open("a", encoding="utf-8") as journal:
            journal.write(line.model_dump_json() + "\n")
            journal.flush()
            os.fsync(journal.fileno())

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
        _write_synced(self.path / MANIFEST, manifest.model_dump_json(indent=1) + "\n")
        self.complete = True
        for folder, _, _ in os.walk(self.path):
            _sync_folder(Path(folder))
        if self.out.exists():
            self.out.rename(_sibling(self.out, "old"))
        self.path.rename(self.out)
        _sync_folder(self.out.parent)
        _clear(self.out)
        return manifest

    def discard(self) -> None:
        """Remove everything of the unfinished work."""
        _remove_work(self.out)

    def _open(self) -> None:
        header = json.dumps({"key": self.key, "kit_version": __version__})
        journal = self._journal.read_text("utf-8", errors="replace") if self._journal.is_file() else ""
        lines = journal.splitlines()
        if lines[:1] != [header] or not self.path.is_dir():
            self.discard()
            self.path.mkdir(parents=True)
            _write_synced(self._journal, header + "\n")
            return
        for line in lines[1:]:
            self._resume(line)
        _prune(self.path, self._entries.keys() | self._prefixes.keys())

    def _resume(self, line: str) -> None:
        try:
            entry = _LINE.validate_json(line)
        except ValidationError:
            return  # the run was killed while it wrote this line
        path = self.path / (entry.begun if isinstance(entry, Prefix) else entry.path)
        size = path.stat().st_size if path.is_file() else -1
        if isinstance(entry, Prefix) and size >= entry.bytes:
            self._prefixes[entry.begun] = entry
        elif isinstance(entry, FileEntry) and size == entry.bytes:
            self._entries[entry.path] = entry
        else:
            return
        self.resumed = True


_LINE: TypeAdapter[FileEntry | Prefix] = TypeAdapter(FileEntry | Prefix)


@contextmanager
def staged(
    out: Path, kind: Kind, key: str, lock_seconds: float = LOCK_SECONDS, fits: Fits = lambda _: True
) -> Iterator[Stage | None]:
    """Lock ``out`` and yield its stage, or None when a complete artifact with that key, which ``fits``, is there.

    An error inside removes the stage; an interrupt (Ctrl-C, SIGTERM) keeps it so that a rerun goes on.
    A symbolic link is followed: the artifact is made where it leads. Raises ``OutputOccupied`` when ``out`` holds
    something that is not an artifact, ``LockTimeout`` when another run holds it, ``UsageError`` for the root
    folder, ``StorageError`` for every failure of the file system.
    """
    try:
        place = _place(out)
        if not os.access(place.parent, os.W_OK) and _is_current(place, kind, key, fits):
            yield None  # there is nothing to do, so nothing that a read-only place would not allow
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        with locked(place, lock_seconds):
            _recover(place)
            if _is_current(place, kind, key, fits):
                _clear(place)
                yield None
                return
            yield from _work(place, kind, key)
    except OSError as error:
        error.filename = error.filename or str(out)  # a write to a full disk names no file
        raise storage_error(error, f"writing the {kind}") from error


def _work(out: Path, kind: Kind, key: str) -> Iterator[Stage]:
    """Yield the stage; what fails removes it, except the swap itself, which has nothing left to write."""
    _require_replaceable(out)
    stage = None
    try:
        stage = Stage(out, kind, key)
        yield stage
    except Exception:
        if stage is None or not stage.complete:
            _remove_work(out)
        raise


def _require_replaceable(out: Path) -> None:
    """Refuse, before the first byte, an output that no rename could put in place, or whose loss would be yours."""
    if out.is_mount():
        raise OutputOccupied(
            f"{out} is a mount point",
            why="the finished folder is renamed into place, and a mount point cannot be renamed over",
            hint=f"make {out / 'NAME'}, a folder below it",
        )
    for folder in (out, _sibling(out, "old")):
        if folder.exists() and not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    foreign = foreign_files(out, read_manifest(out)) if (out / MANIFEST).is_file() else []
    if foreign:
        more = f" and {len(foreign) - _SHOWN} more" if len(foreign) > _SHOWN else ""
        raise _occupied(
            out, "is to be replaced", f"its manifest does not name {', '.join(foreign[:_SHOWN])}{more}, found in it"
        )


def require_apart(out: Path, source: Path, option: str = "--out ") -> None:
    """Refuse an output that is its source, lies in it or holds it: ``UsageError``.

    The one would be replaced while it is read, and what is made in a source is part of it the next time. ``option``
    is what a command line says before the output; empty where the output is a word by itself.
    """
    place, origin = _place(out, option), source.resolve()
    if place == origin:
        relation = "is the source itself"
    elif origin in place.parents:
        relation = f"lies in the source {source}"
    elif place in origin.parents:
        relation = f"holds the source {source}"
    else:
        return
    outer = min(place, origin, key=lambda path: len(path.parts))
    raise UsageError(
        f"{option}{out} {relation}",
        why="the output is swapped into its place whole, and the source must stay as it is",
        hint=f"{option}{outer.with_name(f'{outer.name}-made')}, a folder beside it",
    )


def _place(out: Path, option: str = "--out ") -> Path:
    try:
        place = out.resolve()
    except RuntimeError as error:  # Python 3.11 and 3.12 say so of a loop of links
        raise UsageError(f"{out} leads nowhere", why=str(error), hint="name another folder to make") from None
    if not place.name:
        raise UsageError(
            f"{out} cannot be an output", why="it is the root of the file system", hint=f"{option}/FOLDER, below it"
        )
    return place


@contextmanager
def locked(out: Path, seconds: float, purpose: str = "lock") -> Iterator[None]:
    """Hold ``.<out>.<purpose>`` beside ``out``, waiting up to ``seconds`` for another run; the file says who holds it.

    Raises ``LockTimeout``, and ``OSError`` where no file can be made.
    """
    path = _sibling(out, purpose)
    path.touch()  # says why when the folder cannot be written; the lock itself would wait for ever
    lock = filelock.FileLock(path)
    try:
        lock.acquire(timeout=seconds)
    except filelock.Timeout:
        raise LockTimeout(
            f"another run is working on {out}",
            why=f"{_holder(path)} holds its lock {path}, which was not free after {seconds:g} s",
            hint="let that run end, or wait longer with --lock-wait",
        ) from None
    try:
        path.write_text(json.dumps({"pid": os.getpid(), "since": _utc()}), encoding="utf-8")
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is held: who waits for it sees that it is gone and makes a new one
        lock.release()


def _holder(lock: Path) -> str:
    """Say who holds a lock, as its file tells; it may be empty for a moment, or have another trtkit's form."""
    try:
        told = json.loads(lock.read_text("utf-8"))
        return f"process {told['pid']} (since {told['since']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "a process that has not told its number"


def _utc() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _recover(out: Path) -> None:
    """Finish a swap that was cut: before its second rename the older artifact goes back, after it it goes."""
    old = _sibling(out, "old")
    if not old.exists():
        return
    if out.exists():
        shutil.rmtree(old)
    else:
        old.rename(out)


def _clear(out: Path) -> None:
    """Remove what a finished work leaves beside its output."""
    shutil.rmtree(_sibling(out, "old"), ignore_errors=True)
    _remove_work(out)


def _remove_work(out: Path) -> None:
    shutil.rmtree(_sibling(out, "partial"), ignore_errors=True)
    _sibling(out, "journal").unlink(missing_ok=True)


def _is_current(out: Path, kind: Kind, key: str, fits: Fits) -> bool:
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    if not (out / MANIFEST).is_file():
        raise _occupied(out, "was not made by trtkit", f"it holds no {MANIFEST}")
    try:
        manifest = read_manifest(out)
    except ManifestError as error:
        raise _occupied(out, f"holds a {MANIFEST} that this trtkit cannot read", error.why) from None
    if manifest.kind != kind:
        raise _occupied(
            out,
            f"is the {manifest.kind} of an earlier run, not a place for the {kind}",
            f"its manifest says kind {manifest.kind!r}",
        )
    if (manifest.key, manifest.kit_version) != (key, __version__) or not fits(manifest):
        return False
    try:
        require_intact(out, manifest)
    except ManifestError:
        return False
    return True


def _occupied(out: Path, what: str, why: str) -> OutputOccupied:
    return OutputOccupied(
        f"{out} exists and {what}",
        why=f"{why}, so replacing it could destroy something of yours",
        hint="make another folder, or move that one away",
    )


def _prune(folder: Path, kept: Collection[str]) -> None:
    """Remove what a killed run had not finished, so that nothing of it is taken for part of the work."""
    for place, folders, names in os.walk(folder, topdown=False):
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        for path in (Path(place) / name for name in (*names, *links)):
            if path.relative_to(folder).as_posix() not in kept:
                path.unlink()


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
