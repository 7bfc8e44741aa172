"""Names a source folder by what is in it, without reading every weight, and sees whether it stays the same.

The identity of a weight file is its size, the hash of its header, and the hash of 64 blocks of 4 KiB spread over
its data: two checkpoints that differ in a layer's training differ in it, and 140 GB cost a quarter of a megabyte
a shard. Configuration and tokenizer files are hashed whole. Paths and times are not part of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from io import FileIO

from trtllm_kit.checkpoint.config_files import read_small_files
from trtllm_kit.checkpoint.header import FileHeader, changed, reopen
from trtllm_kit.checkpoint.reader import WeightFolder
from trtllm_kit.errors import storage_error
from trtllm_kit.plan.plan import digest_of

_BLOCKS = 64
_BLOCK_BYTES = 4096
_LENGTH_BYTES = 8


@dataclass(frozen=True)
class Identity:
    """What names a source, file by file."""

    weights: dict[str, tuple[int, str, str]]
    """Size, hash of the header and hash of the blocks of each weight file."""
    files: dict[str, str]
    """Hash of each small file."""

    @property
    def digest(self) -> str:
        """The identity as 64 hex digits."""
        return digest_of(asdict(self))


def identify(weights: WeightFolder, small: Mapping[str, bytes]) -> Identity:
    """Name a source by its weights and its small files.

    Raises ``StorageError``, and ``WeightFileError`` for a weight file that has changed since it was opened.
    """
    return Identity(
        {header.path.name: _weight_file(header) for header in weights.files},
        {name: hashlib.sha256(data).hexdigest() for name, data in small.items()},
    )


def require_unchanged(weights: WeightFolder, before: Identity) -> None:
    """Raise ``WeightFileError`` when the source is no longer what it was when it was identified.

    What was made in the meantime could hold parts of both, and its manifest would name the earlier one.
    """
    now = identify(weights, read_small_files(weights.folder))
    for was, found in ((before.weights, now.weights), (before.files, now.files)):
        for name in sorted(was.keys() | found.keys()):
            if was.get(name) != found.get(name):
                raise changed(weights.folder / name, "its contents are not those that were checked at the start")


def require_same_files(weights: WeightFolder) -> None:
    """Raise ``WeightFileError`` when a weight file was replaced or written to; asks the file system alone."""
    for header in weights.files:
        _open(header).close()


def _weight_file(header: FileHeader) -> tuple[int, str, str]:
    blocks = hashlib.sha256()
    span = max(header.size - header.data_begin - _BLOCK_BYTES, 0)
    try:
        with _open(header) as file:
            file.seek(_LENGTH_BYTES)
            text = hashlib.sha256(file.read(header.data_begin - _LENGTH_BYTES))
            for block in range(_BLOCKS):
                file.seek(header.data_begin + span * block // (_BLOCKS - 1))
                blocks.update(file.read(_BLOCK_BYTES))
    except OSError as error:
        raise storage_error(error, "reading the source") from None
    return header.size, text.hexdigest(), blocks.hexdigest()


def _open(header: FileHeader) -> FileIO:
    try:
        return reopen(header.path, header.stamp)
    except OSError as error:
        raise storage_error(error, "reading the source") from None
