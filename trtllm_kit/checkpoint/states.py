"""The states of texts between two layers; what passes some memory lies in a file without a name.

The system takes such a file back when the process ends, however it ends. It lies where ``TMPDIR`` says, or in
``/var/tmp``, since ``/tmp`` is memory on many machines.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import accumulate
from typing import IO

import numpy as np

from trtllm_kit.dtypes import F32
from trtllm_kit.errors import StorageError, storage_error
from trtllm_kit.units import MIB, format_bytes

_HELD_BYTES = 64 * MIB
_LASTING = "/var/tmp"  # noqa: S108  # nobody finds a file there that has no name


@dataclass(frozen=True)
class Stretch:
    """Neighbouring tokens of one piece of text."""

    piece: int
    begin: int
    end: int

    def __len__(self) -> int:
        """Return the number of tokens."""
        return self.end - self.begin


class States:
    """A (tokens, hidden) float32 array for each piece of text; each one must be set before it is read."""

    def __init__(self, lengths: Sequence[int], hidden: int) -> None:
        """Hold nothing yet, for pieces of so many tokens; raises ``StorageError`` when there is no room for them."""
        self._lengths, self._hidden = tuple(lengths), hidden
        self._before = tuple(accumulate(lengths, initial=0))
        self._file = _opened(self._place(Stretch(len(lengths), 0, 0)))

    def __len__(self) -> int:
        """Return the number of pieces."""
        return len(self._lengths)

    def __iter__(self) -> Iterator[F32]:
        """Yield the states in order."""
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, piece: int) -> F32:
        """Return one state, which cannot be written to; raises ``IndexError`` and ``StorageError``."""
        return self.together([Stretch(piece, 0, self._lengths[piece])])

    def together(self, stretches: Sequence[Stretch]) -> F32:
        """Return the states of some tokens, one below the other; raises ``StorageError``."""
        return np.concatenate([self._read(stretch) for stretch in stretches])

    def put(self, stretches: Sequence[Stretch], states: F32) -> None:
        """Keep the states of some tokens, which stand one below the other; raises ``StorageError``."""
        end = 0
        for stretch in stretches:
            begin, end = end, end + len(stretch)
            self._write(stretch, states[begin:end])

    def _read(self, stretch: Stretch) -> F32:
        try:
            self._file.seek(self._place(stretch))
            raw = self._file.read(4 * self._hidden * len(stretch))
        except OSError as error:
            raise storage_error(error, _DOING) from None
        return np.frombuffer(raw, np.float32).reshape(len(stretch), self._hidden)

    def _write(self, stretch: Stretch, states: F32) -> None:
        try:
            self._file.seek(self._place(stretch))
            self._file.write(np.ascontiguousarray(states, dtype=np.float32).data)
        except OSError as error:
            raise storage_error(error, _DOING) from None

    def _place(self, stretch: Stretch) -> int:
        return 4 * self._hidden * (self._before[stretch.piece] + stretch.begin)


_DOING = "keeping the states of the texts (TMPDIR names the folder)"


def _opened(size: int) -> IO[bytes]:
    """Return what holds so many bytes: memory, or a file in a folder that has room for all of them."""
    if size <= _HELD_BYTES:
        return BytesIO()
    try:
        folder = _folder()
        free = shutil.disk_usage(folder).free
        if free < size:
            raise StorageError(
                f"no room for the states of the texts in {folder}",
                why=f"{format_bytes(size)} needed, {format_bytes(free)} free",
                hint="set TMPDIR to a folder on another file system",
            )
        return tempfile.TemporaryFile(dir=folder)
    except OSError as error:
        raise storage_error(error, _DOING) from None


def _folder() -> str:
    if not os.environ.get("TMPDIR") and os.access(_LASTING, os.W_OK | os.X_OK):
        return _LASTING
    return tempfile.gettempdir()
