"""Which engines of a store may go, and their removal: never one that is locked, linked from elsewhere or served."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trtllm_kit.artifact import MANIFEST, Manifest, read_manifest
from trtllm_kit.build.store import Entry, Store
from trtllm_kit.errors import LockTimeout, ManifestError, StorageError, storage_error
from trtllm_kit.staging import locked

Served = Callable[[Path], str]
"""Says which process serves a model repository, or that it cannot be known; empty when none does."""
_REMOVED = "removed"


@dataclass(frozen=True)
class Policy:
    """What prune is to remove; with none of these, whatever is not in use."""

    keep: int | None = None
    """How many of the engines used last stay."""
    older_seconds: float | None = None
    """How long ago an engine must have been used last."""


@dataclass(frozen=True)
class Verdict:
    """What becomes of one engine, or of the beginning of one."""

    key: str
    bytes: int
    """What its removal frees."""
    used_ns: int
    unfinished: bool = False
    stays: str = ""
    """Why it stays; empty for one that goes."""


def users(store: Store, entry: Entry, served: Served) -> tuple[str, ...]:
    """Return who needs an engine of the store, in words: engines and repositories made from it, other names of it."""
    found = [words for place in _noted(store, entry.key) if (words := _use(place, entry.manifest, served))]
    if not found and any(_names_of(entry.folder / one.path) > 1 for one in entry.manifest.files):
        found = ["its files have other names elsewhere"]
    return tuple(found)


def judged(store: Store, policy: Policy, now_ns: int, served: Served) -> tuple[Verdict, ...]:
    """Return what becomes of every engine, the latest used first, then of what is broken or unfinished."""
    return (
        *_of_entries(store, policy, now_ns, served),
        *_of_broken(store, policy, now_ns),
        *_of_unfinished(store, policy, now_ns),
    )


def remove(store: Store, verdict: Verdict, served: Served) -> Verdict:
    """Remove an engine, or say why it stays after all; it is gone from its place at once or not at all.

    Raises ``StorageError``.
    """
    place = store.place(verdict.key)
    try:
        with locked(place, 0.0):
            entry = _entry(store, verdict.key)
            found = users(store, entry, served) if entry is not None else ()
            if found:
                return replace(verdict, stays=found[0])
            if place.exists():
                place.rename(_gone(store, verdict.key))
            _clear(store, verdict.key)
            shutil.rmtree(store.uses_of(verdict.key), ignore_errors=True)
    except LockTimeout as error:
        return replace(verdict, stays=error.why)
    except OSError as error:
        raise storage_error(error, "removing an engine from the store") from None
    return verdict


def clear_removed(store: Store) -> None:
    """Remove what a removal that was cut has left; raises ``StorageError``."""
    for path in list(store.folder.glob(f".*.{_REMOVED}")):
        shutil.rmtree(path, ignore_errors=True)
    try:
        store.tidy()
    except OSError as error:
        raise storage_error(error, "tidying the engine store") from None


def _of_entries(store: Store, policy: Policy, now_ns: int, served: Served) -> Iterator[Verdict]:
    for number, entry in enumerate(store.entries()):
        verdict = Verdict(entry.key, entry.bytes, entry.used_ns)
        found = users(store, entry, served)
        yield replace(verdict, stays=found[0] if found else _spared(policy, number, now_ns - entry.used_ns))


def _of_broken(store: Store, policy: Policy, now_ns: int) -> Iterator[Verdict]:
    """Judge engines whose manifest cannot be read: none of them can be handed out, so none counts as kept."""
    for key in store.finished():
        if _entry(store, key) is None:
            used_ns, size = _newest(store.place(key))
            yield Verdict(key, size, used_ns, stays=_spared(policy, 0, now_ns - used_ns, keep=0))


def _of_unfinished(store: Store, policy: Policy, now_ns: int) -> Iterator[Verdict]:
    finished = set(store.finished())
    for key in store.unfinished():
        stage = store.folder / f".{key}.partial"
        used_ns, size = _newest(stage)
        spared = "it can be gone on with" if policy.keep is not None and policy.older_seconds is None else ""
        spared = spared or ("its engine is there" if key in finished else _spared(policy, 0, now_ns - used_ns, keep=0))
        yield Verdict(key, size, used_ns, unfinished=True, stays=spared)


def _spared(policy: Policy, number: int, age_ns: int, keep: int | None = None) -> str:
    """Say why the policy lets an engine be; empty when it does not."""
    kept = policy.keep if keep is None else keep
    if kept is not None and number < kept:
        return f"number {number + 1} of the {kept} used last"
    if policy.older_seconds is not None and age_ns < policy.older_seconds * 1e9:
        return "used too short a time ago"
    return ""


def _noted(store: Store, key: str) -> Sequence[Path]:
    place = store.uses_of(key)
    return [path.readlink() for path in sorted(place.iterdir()) if path.is_symlink()] if place.is_dir() else []


def _use(place: Path, manifest: Manifest, served: Served) -> str:
    """Say how an engine or a repository uses an engine of the store; empty when it does so no more."""
    if words := served(place):
        return words
    try:
        found = read_manifest(place)
    except ManifestError:
        return ""
    except StorageError as error:  # somebody else's: unknown is not unused
        return f"whether {place} was made from it cannot be known: {error.why}"
    if found.digest == manifest.digest or found.inputs.get("engine") == manifest.digest:
        return f"{place} was made from it"
    return ""


def _entry(store: Store, key: str) -> Entry | None:
    if not (store.place(key) / MANIFEST).is_file():
        return None
    try:
        return store.entry(key)
    except ManifestError:
        return None


def _gone(store: Store, key: str) -> Path:
    path = store.folder / f".{key}.{_REMOVED}"
    shutil.rmtree(path, ignore_errors=True)
    return path


def _clear(store: Store, key: str) -> None:
    """Remove what is hidden beside an engine's place; nothing reads it there."""
    for purpose in (_REMOVED, "partial", "old"):
        shutil.rmtree(store.folder / f".{key}.{purpose}", ignore_errors=True)
    (store.folder / f".{key}.journal").unlink(missing_ok=True)


def _names_of(path: Path) -> int:
    try:
        return path.stat().st_nlink
    except OSError:
        return 0


def _newest(folder: Path) -> tuple[int, int]:
    """Return when anything below a folder was changed last, nanoseconds since 1970, and the bytes of its files."""
    newest, size = 0, 0
    for place, _, names in os.walk(folder):
        for path in (Path(place), *(Path(place) / name for name in names)):
            try:
                found = path.lstat()
            except OSError:
                continue  # a build goes on there
            newest = max(newest, found.st_mtime_ns)
            size += 0 if path.is_dir() else found.st_size
    return newest, size
