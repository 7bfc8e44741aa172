"""The engine store: a folder of engines by what they are made of, handed out as links and never on a mismatch.

A store holds ``trtkit-store.json``, which marks it; one engine folder for each key, made as every artifact is
(``staging``); and ``uses/<key>/``, links to the engines and repositories that were made from it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from trtllm_kit import __version__
from trtllm_kit.artifact import MANIFEST, Manifest, read_manifest
from trtllm_kit.errors import LockTimeout, ManifestError, OutputOccupied, storage_error
from trtllm_kit.files import replace_text
from trtllm_kit.plan.plan import digest_of
from trtllm_kit.staging import Stage, locked, staged

MARK = "trtkit-store.json"
USES = "uses"
STORE_VARIABLE = "TRTKIT_ENGINE_STORE"
_KEY = re.compile(r"[0-9a-f]{64}")
_LOCK = re.compile(r"\.([0-9a-f]{64})\.lock")
_HIDDEN = re.compile(r"\.([0-9a-f]{64})\.partial")
_UNLINKABLE = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES)
"""Why a second name for a file is refused where a copy is not: another disk, no such thing there, too many names."""
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)


@dataclass(frozen=True)
class Entry:
    """One engine of a store."""

    key: str
    folder: Path
    manifest: Manifest
    used_ns: int
    """When it was made or last handed out, nanoseconds since 1970."""

    @property
    def bytes(self) -> int:
        """Size of its files."""
        return sum(entry.bytes for entry in self.manifest.files)


@dataclass(frozen=True)
class Held:
    """An engine of a store that cannot be removed while it is held."""

    folder: Path
    manifest: Manifest
    found: bool
    """It was there already."""


class Store:
    """A store on disk; ``make_store`` and ``open_store`` are the ways in."""

    def __init__(self, folder: Path) -> None:
        """Take a folder for a store."""
        self.folder = folder

    def place(self, key: str) -> Path:
        """Return where the engine of a key stands, or would."""
        return self.folder / key

    def uses_of(self, key: str) -> Path:
        """Return the folder of the links to what was made from an engine."""
        return self.folder / USES / key

    def finished(self) -> list[str]:
        """Return the keys of all engines, sorted."""
        return sorted(path.name for path in self._names() if _KEY.fullmatch(path.name) and (path / MANIFEST).is_file())

    def unfinished(self) -> list[str]:
        """Return the keys whose making was cut, or goes on; sorted."""
        return sorted(match[1] for path in self._names() if (match := _HIDDEN.fullmatch(path.name)))

    def entries(self) -> Iterator[Entry]:
        """Yield every engine, the latest used first; one that is removed meanwhile, or cannot be read, is left out."""
        found = []
        for key in self.finished():
            try:
                found.append(self.entry(key))
            except ManifestError:
                continue
        yield from sorted(found, key=lambda one: (-one.used_ns, one.key))

    def unreadable(self) -> dict[str, str]:
        """Return why an engine that is there cannot be read, by its key; one removed meanwhile is none."""
        found = {}
        for key in self.finished():
            try:
                self.entry(key)
            except ManifestError as error:
                if self.place(key).is_dir():
                    found[key] = error.why
        return found

    def entry(self, key: str) -> Entry:
        """Return one engine; raises ``ManifestError``."""
        folder = self.place(key)
        manifest = read_manifest(folder, "engine")
        return Entry(key, folder, manifest, max(_time_ns(folder / MANIFEST), _time_ns(self.uses_of(key))))

    @contextmanager
    def holding(self, key: str, made_key: str, make: Callable[[Stage], Manifest], seconds: float) -> Iterator[Held]:
        """Hold the engine of a key, made by ``make`` where there is none; nobody else makes or removes it meanwhile.

        ``made_key`` is the key its manifest bears. Raises what ``make`` and ``staging.staged`` raise.
        """
        folder = self.place(key)
        with staged(folder, "engine", made_key, seconds) as stage:
            manifest = read_manifest(folder, "engine") if stage is None else make(stage)
            yield Held(folder, manifest, found=stage is None)

    def tidy(self) -> None:
        """Remove the lock files of runs that were killed; one that is held stays. Raises ``OSError``."""
        for path in self._names():
            if match := _LOCK.fullmatch(path.name):
                with suppress(LockTimeout), locked(self.place(match[1]), 0.0):
                    pass  # the lock of a run that ends takes its file along

    def note_use(self, key: str, user: Path) -> None:
        """Note that an engine or a repository was made from an engine of the store; a read-only store notes nothing.

        Raises ``StorageError``.
        """
        place = os.path.realpath(user)
        link = self.uses_of(key) / hashlib.sha256(os.fsencode(place)).hexdigest()[:16]
        try:
            link.parent.mkdir(parents=True, exist_ok=True)
            if link.is_symlink():
                os.utime(link.parent)
            else:
                link.symlink_to(place)
        except OSError as error:
            if error.errno not in _READ_ONLY:
                raise storage_error(error, "noting the use of an engine") from None

    def _names(self) -> list[Path]:
        try:
            return list(self.folder.iterdir())
        except OSError as error:
            raise storage_error(error, "reading the engine store") from None


def store_key(key: str, driver: str | None) -> str:
    """Return the name of an engine in a store: of all its bytes depend on, of the driver and of this trtkit."""
    return digest_of({"engine": key, "driver": driver, "kit_version": __version__})


def is_store(folder: Path) -> bool:
    """Whether a folder is a store."""
    return (folder / MARK).is_file()


def open_store(folder: Path) -> Store:
    """Open a store that is there; raises ``ManifestError`` for any other folder."""
    if not is_store(folder):
        raise ManifestError(
            f"{folder} is no engine store",
            why=f"it holds no {MARK}, which trtkit build --store writes",
            hint=f"trtkit build CHECKPOINT --profile NAME --out FOLDER --store {folder}",
        )
    return Store(folder)


def make_store(folder: Path) -> Store:
    """Open a store, or make one of a folder that is empty or absent; raises ``OutputOccupied`` and ``StorageError``."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if is_store(folder):
            return Store(folder)
        yours = sorted(path.name for path in folder.iterdir() if not path.name.startswith(f".{MARK}."))
        if yours:
            raise OutputOccupied(
                f"{folder} is no engine store and not empty",
                why=f"it holds {yours[0]} and no {MARK}; what stands in a store may be removed by trtkit engines prune",
                hint=f"--store {folder / 'engines'}, or an empty folder",
            )
        for left in folder.iterdir():  # of a run that was killed here
            left.unlink(missing_ok=True)
        replace_text(folder / MARK, json.dumps({"schema_version": 1}) + "\n")
    except OSError as error:
        raise storage_error(error, "making the engine store") from None
    return Store(folder)


def note_use_of(engine: Path, user: Path) -> None:
    """Note a use where ``engine`` is one of a store; nothing for any other engine. Raises ``StorageError``."""
    place = engine.resolve()
    if _KEY.fullmatch(place.name) and is_store(place.parent):
        Store(place.parent).note_use(place.name, user)


def take_over(held: Held, stage: Stage) -> None:
    """Give a stage every file of an engine of the store: as a second name of it, or as a copy that was compared."""
    for entry in held.manifest.files:
        if stage.has(entry.path) and stage.entry(entry.path).sha256 == entry.sha256:
            continue
        source, target = held.folder / entry.path, stage.path / entry.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        linked = _link(source, target)
        found = stage.record(entry.path, entry.sha256 if linked else None)
        if found.sha256 != entry.sha256:
            raise ManifestError(
                f"{source} does not match its manifest",
                why=f"SHA-256 begins with {found.sha256[:12]}, in the manifest {entry.sha256[:12]}",
                hint=f"trtkit engines verify {held.folder.parent}, and remove what it names",
            )


def _link(source: Path, target: Path) -> bool:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _UNLINKABLE:
            raise
        shutil.copyfile(source, target)
        return False
    return True


def _time_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
