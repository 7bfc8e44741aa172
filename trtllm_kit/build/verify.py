"""Reads every byte of an artifact and says which files are not those of its manifest."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from trtllm_kit.artifact import MANIFEST, FileEntry, Manifest, read_manifest
from trtllm_kit.errors import ManifestError, storage_error
from trtllm_kit.files import UnfitFile, open_file
from trtllm_kit.progress import Progress

_PIECE_BYTES = 8 << 20


@dataclass(frozen=True)
class Damage:
    """One file that is not what the manifest says."""

    path: str
    what: str
    """``missing``, ``another size``, ``other bytes``, what stands there instead of a file, or why it is unreadable."""
    bytes: int | None = None
    sha256: str | None = None
    found_bytes: int | None = None
    found_sha256: str | None = None


def verify(folder: Path, progress: Progress) -> tuple[Damage, ...]:
    """Compare an artifact with its manifest; one that cannot be read is damage too. Raises ``StorageError``."""
    try:
        manifest = read_manifest(folder)
    except ManifestError as error:
        return (Damage(MANIFEST, error.why),)
    return damages(folder, manifest, progress)


def damages(folder: Path, manifest: Manifest, progress: Progress) -> tuple[Damage, ...]:
    """Hash every file of an artifact; return those that differ. Raises ``StorageError`` for one that cannot be read."""
    progress.start("verify", sum(entry.bytes for entry in manifest.files), "bytes")
    found = [_damage(folder / entry.path, entry, progress) for entry in manifest.files]
    progress.finish()
    return tuple(one for one in found if one is not None)


def _damage(path: Path, entry: FileEntry, progress: Progress) -> Damage | None:
    try:
        size, digest = _hashed(path, progress)
    except (FileNotFoundError, NotADirectoryError):
        return Damage(entry.path, "missing", entry.bytes, entry.sha256)
    except UnfitFile as error:
        return Damage(entry.path, error.unfit, entry.bytes, entry.sha256)
    except OSError as error:
        raise storage_error(error, "verifying an engine") from None
    if (size, digest) == (entry.bytes, entry.sha256):
        return None
    what = "other bytes" if size == entry.bytes else "another size"
    return Damage(entry.path, what, entry.bytes, entry.sha256, size, digest)


def _hashed(path: Path, progress: Progress) -> tuple[int, str]:
    hasher, size = hashlib.sha256(), 0
    with open_file(path) as file:
        while piece := file.read(_PIECE_BYTES):
            hasher.update(piece)
            size += len(piece)
            progress.advance(len(piece))
    return size, hasher.hexdigest()
