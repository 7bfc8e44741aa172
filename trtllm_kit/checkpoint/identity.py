"""Names a source folder by what is in it, without reading every weight.

The identity of a weight file is its size, the hash of its header, and the hash of 64 blocks of 4 KiB spread over
its data: two checkpoints that differ in a layer's training differ in it, and 140 GB cost a quarter of a megabyte
a shard. Configuration and tokenizer files are hashed whole. Paths and times are not part of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from trtllm_kit.checkpoint.header import FileHeader
from trtllm_kit.checkpoint.reader import WeightFolder
from trtllm_kit.errors import storage_error
from trtllm_kit.plan.plan import digest_of

_BLOCKS = 64
_BLOCK_BYTES = 4096


def source_digest(weights: WeightFolder, small_files: Iterable[Path]) -> str:
    """Return the identity as 64 hex digits; raises ``StorageError`` when a file cannot be read."""
    try:
        documents = {
            "weights": {header.path.name: _weight_file(header) for header in weights.files},
            "files": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in small_files},
        }
    except OSError as error:
        raise storage_error(error, "reading the source") from None
    return digest_of(documents)


def _weight_file(header: FileHeader) -> list[str | int]:
    digest = hashlib.sha256()
    span = max(header.size - header.data_begin - _BLOCK_BYTES, 0)
    with header.path.open("rb", buffering=0) as file:
        for block in range(_BLOCKS):
            file.seek(header.data_begin + span * block // (_BLOCKS - 1))
            digest.update(file.read(_BLOCK_BYTES))
    return [header.size, header.sha256, digest.hexdigest()]
