"""Folders of ready files that people may edit: only what differs is written, and nothing of a person's is lost.

A manifest beside the files holds the hash of each as it was made. A file with another hash was changed by a person:
it is written again only when that is asked for. What a run was killed at, the next run ends.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trtllm_kit import __version__
from trtllm_kit.artifact import MANIFEST, FileEntry, Kind, Manifest, read_manifest
from trtllm_kit.errors import EditedFiles, ManifestError, storage_error
from trtllm_kit.files import UnfitFile, drop_partials, read_file, replace_text
from trtllm_kit.plan.plan import digest_of
from trtllm_kit.staging import LOCK_SECONDS, locked
from trtllm_kit.units import counted

State = Literal["new", "same", "changed", "gone", "edited"]
"""``gone`` is made no longer; ``edited`` differs from what was made, and would be written or removed."""
_SCRIPTS = (".sh", ".sbatch")


@dataclass(frozen=True, slots=True)
class Change:
    """What a run means for one file."""

    path: str
    state: State
    diff: tuple[str, ...] = ()
    """Lines of a unified diff, from what stands there to what is made now; empty when nothing changes."""


@dataclass(frozen=True, slots=True)
class Made:
    """What a folder holds after a run."""

    folder: Path
    changes: tuple[Change, ...]
    manifest: Manifest

    @property
    def up_to_date(self) -> bool:
        """Whether there was nothing to do."""
        return all(change.state == "same" for change in self.changes)


def compare(folder: Path, files: Mapping[str, str], kind: Kind = "target") -> tuple[Change, ...]:
    """Say what writing the files would mean for each, and for those that are made no longer; nothing is written.

    ``kind`` is that of the folder's manifest. Raises ``StorageError``.
    """
    before = _hashes(folder, kind)
    try:
        changes = [_change(folder, path, text, before.get(path)) for path, text in files.items()]
        left = [_left(folder, path, before[path]) for path in before if path not in files]
    except UnfitFile as error:
        raise storage_error(error, "comparing files") from None
    except OSError as error:
        raise storage_error(error, "comparing files") from error
    return (*changes, *(change for change in left if change is not None))


def write(
    folder: Path,
    files: Mapping[str, str],
    facts: Mapping[str, Any],
    *,
    force: bool = False,
    lock_seconds: float = LOCK_SECONDS,
) -> Made:
    """Write what differs, the manifest last; ``facts`` go into it.

    Raises ``EditedFiles`` before the first byte when a person's changes would be lost and ``force`` is not given,
    ``LockTimeout`` and ``StorageError``.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder, lock_seconds):
            changes = compare(folder, files)
            require_unedited(folder, changes, force=force)
            drop_partials(folder / path for path in (*files, MANIFEST))
            manifest = _manifest(files, facts)
            _apply(folder, files, changes, manifest)
    except OSError as error:
        error.filename = error.filename or str(folder)
        raise storage_error(error, f"writing {folder.name}") from error
    return Made(folder, changes, manifest)


def require_unedited(folder: Path, changes: Sequence[Change], *, force: bool) -> None:
    """Raise ``EditedFiles`` with every file of a person that would be lost, unless that is asked for."""
    edited = [change for change in changes if change.state == "edited"]
    if edited and not force:
        count = f"{len(edited)} file{'s' if len(edited) > 1 else ''}"
        raise EditedFiles(
            f"{folder} holds changes that trtkit did not make",
            why=f"{count} would be written again or removed, and {'their' if len(edited) > 1 else 'its'} SHA-256 is "
            "not the one in the manifest",
            hint="--dry-run shows the differences; --force gives yours up, or move them into the profile",
            problems=tuple(f"{change.path}: {_size(change)}" for change in edited),
        )


def _size(change: Change) -> str:
    plus = sum(line.startswith("+") for line in change.diff[2:])
    minus = sum(line.startswith("-") for line in change.diff[2:])
    return f"{counted(minus, 'line')} of it would go, {plus} would come"


def _hashes(folder: Path, kind: Kind) -> dict[str, str]:
    """Return the hashes of what was made, by path; none without a manifest: then every file is a person's."""
    try:
        return {entry.path: entry.sha256 for entry in read_manifest(folder, kind).files}
    except ManifestError:
        return {}


def _change(folder: Path, path: str, text: str, before: str | None) -> Change:
    there = _read(folder / path)
    if there is None:
        return Change(path, "new", tuple(_diff(path, b"", text.encode())))
    if there == text.encode():
        return Change(path, "same")
    return Change(path, "changed" if _sha256(there) == before else "edited", tuple(_diff(path, there, text.encode())))


def _left(folder: Path, path: str, before: str) -> Change | None:
    there = _read(folder / path)
    if there is None:
        return None
    return Change(path, "gone" if _sha256(there) == before else "edited", tuple(_diff(path, there, b"")))


def _read(path: Path) -> bytes | None:
    try:
        return read_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _diff(path: str, old: bytes, new: bytes) -> Iterator[str]:
    before, after = (data.decode("utf-8", "backslashreplace").splitlines() for data in (old, new))
    yield from difflib.unified_diff(before, after, f"{path} (there)", f"{path} (made)", lineterm="")


def _manifest(files: Mapping[str, str], facts: Mapping[str, Any]) -> Manifest:
    entries = tuple(
        FileEntry(path=path, bytes=len(files[path].encode()), sha256=_sha256(files[path].encode()))
        for path in sorted(files)
    )
    key = digest_of({"files": {entry.path: entry.sha256 for entry in entries}})
    return Manifest(kind="target", kit_version=__version__, key=key, inputs={}, facts=dict(facts), files=entries)


def _apply(folder: Path, files: Mapping[str, str], changes: Sequence[Change], manifest: Manifest) -> None:
    folder.mkdir(exist_ok=True)
    for change in changes:
        path = folder / change.path
        if change.path not in files:
            path.unlink(missing_ok=True)
        elif change.state != "same":
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_text(path, files[change.path])
            if change.path.endswith(_SCRIPTS):
                path.chmod(path.stat().st_mode | 0o111)
    text = manifest.model_dump_json(indent=1) + "\n"
    if _read(folder / MANIFEST) != text.encode():
        replace_text(folder / MANIFEST, text)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
