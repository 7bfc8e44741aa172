"""A file that is hashed and flushed by other threads while it is written, and that tells which part of it is safe.

A part is safe when it is on the disk and its hash is known: a run that is killed later goes on behind it.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from trtllm_kit.checkpoint.rectangle import Raw
from trtllm_kit.staging import Prefix
from trtllm_kit.units import MIB

_FLUSH_BYTES = 32 * MIB
"""What is written before the disk is asked to take it; the last flush then finds little left."""
_PIECES_BEHIND = 8
"""Pieces that the hash may lag behind the writing."""
_READ_BYTES = 4 * MIB

Mark = Callable[[int, str], None]
"""Takes the length of a safe part and its SHA-256."""


class Begun(NamedTuple):
    """What an earlier run left of a file."""

    bytes: int
    sha256: hashlib._Hash
    """Fed with these bytes."""


NOTHING = Begun(0, hashlib.sha256())


def begun(path: Path, prefix: Prefix) -> Begun:
    """Return the part of a file that was recorded, or nothing when it is not as it was then."""
    found, left = hashlib.sha256(), prefix.bytes
    with path.open("rb", buffering=0) as file:
        while left and (piece := file.read(min(left, _READ_BYTES))):
            found.update(piece)
            left -= len(piece)
    return Begun(prefix.bytes, found) if found.hexdigest() == prefix.sha256 else NOTHING


def _flush(file: int, end: int) -> None:
    """Wait until the disk has what was written, then give its cache back.

    A conversion would otherwise fill the cache with what nobody reads yet, and push out the source that it still has
    to read. Where memory is limited or lent, the next pages come the faster: 3.5 s in place of 4.3-5.9 s for 4 GB.
    """
    os.fdatasync(file)
    os.posix_fadvise(file, 0, end, os.POSIX_FADV_DONTNEED)


class HashedFile:
    """Appends to what an earlier run left, or begins anew; a context, behind which ``hexdigest`` is the whole's."""

    def __init__(self, path: Path, earlier: Begun, mark: Mark | None, mark_bytes: int) -> None:
        """Open the file; ``mark`` is told of safe parts, each at least ``mark_bytes`` behind the one before."""
        self.hexdigest = ""
        self._sha256 = earlier.sha256.copy()
        self._mark, self._mark_bytes = mark, mark_bytes
        if earlier.bytes:
            os.truncate(path, earlier.bytes)
        self._file = path.open("ab" if earlier.bytes else "wb", buffering=0)
        self._hashing, self._flushing = ThreadPoolExecutor(1, "hash"), ThreadPoolExecutor(1, "flush")
        self._behind: deque[Future[None]] = deque()
        self._flush: Future[None] | None = None
        self._written = self._marked = self._flushed = earlier.bytes
        self._unsafe: tuple[int, Future[str], Future[None]] | None = None

    def write(self, piece: bytes | Raw) -> None:
        """Append one piece, which must not change afterwards."""
        data = memoryview(piece) if isinstance(piece, bytes) else piece.reshape(-1).view("u1").data
        self._behind.append(self._hashing.submit(self._sha256.update, data))
        if len(self._behind) > _PIECES_BEHIND:
            self._behind.popleft().result()
        self._written += data.nbytes
        while data.nbytes:
            data = data[self._file.write(data) :]
        if self._written - self._flushed >= _FLUSH_BYTES and (self._flush is None or self._flush.done()):
            self._start_flush()

    def border(self) -> None:
        """Say that a tensor ends here, so that a later run could go on."""
        if self._mark is None or self._written - self._marked < self._mark_bytes:
            return
        self._tell()
        self._marked = self._written
        self._unsafe = self._written, self._hashing.submit(self._digest), self._start_flush()

    def _tell(self) -> None:
        """Tell of the part that was to be flushed since the last border, waiting for it."""
        if self._unsafe is None or self._mark is None:
            return
        size, digest, flush = self._unsafe
        flush.result()
        self._mark(size, digest.result())
        self._unsafe = None

    def _digest(self) -> str:
        return self._sha256.copy().hexdigest()

    def _start_flush(self) -> Future[None]:
        self._flushed = self._written
        self._flush = self._flushing.submit(_flush, self._file.fileno(), self._written)
        return self._flush

    def __enter__(self) -> HashedFile:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the threads and close the file."""
        self._hashing.shutdown(wait=True)
        self._flushing.shutdown(wait=True)
        self._file.close()
        if kind is None:
            for left in (*self._behind, self._flush):
                if left is not None:
                    left.result()  # an error of a thread is an error
            self.hexdigest = self._sha256.hexdigest()
