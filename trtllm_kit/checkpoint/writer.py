"""Writes one safetensors file as a stream: header first, then tile after tile, hashed while it is written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from trtllm_kit.checkpoint.layout import TensorStep
from trtllm_kit.checkpoint.reader import Raw
from trtllm_kit.errors import InternalError

_ALIGNMENT = 8
"""The data begins on a multiple of this."""


def write_safetensors(path: Path, steps: Sequence[TensorStep], tiles: Callable[[TensorStep], Iterable[Raw]]) -> str:
    """Write ``steps`` in order, asking ``tiles`` for the data of each; returns the file's SHA-256 as hex.

    The size of every tensor is known before its data, so nothing is held but the tile in hand.
    """
    with _HashedFile(path) as file:
        file.write(header_bytes(steps))
        for step in steps:
            written = 0
            for tile in tiles(step):
                file.write(tile.data)
                written += tile.nbytes
            if written != step.nbytes:
                raise InternalError(
                    f"tensor {step.name} came out as {written} bytes",
                    why=f"its header says {step.nbytes}",
                    hint="report this with the model's config.json",
                )
    return file.hexdigest


def header_bytes(steps: Sequence[TensorStep]) -> bytes:
    """Return the length and header of a file that holds ``steps`` in order."""
    document: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for step in steps:
        entry = {"dtype": step.dtype, "shape": list(step.shape), "data_offsets": [at, at + step.nbytes]}
        document[step.name] = entry
        at += step.nbytes
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


class _HashedFile:
    """A file whose hash is computed by a second thread, one piece behind the writing."""

    def __init__(self, path: Path) -> None:
        self.hexdigest = ""
        self._file = path.open("wb", buffering=0)
        self._sha256 = hashlib.sha256()
        self._hasher = ThreadPoolExecutor(max_workers=1)
        self._pending: Future[None] | None = None

    def write(self, piece: bytes | memoryview) -> None:
        """Append one piece; it must not change afterwards."""
        if self._pending is not None:
            self._pending.result()
        self._pending = self._hasher.submit(self._sha256.update, piece)
        left = memoryview(piece).cast("B") if memoryview(piece).nbytes else memoryview(b"")
        while left.nbytes:
            left = left[self._file.write(left) :]

    def __enter__(self) -> _HashedFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hasher.shutdown(wait=True)
        self._file.close()
        if kind is None:
            self.hexdigest = self._sha256.hexdigest()
