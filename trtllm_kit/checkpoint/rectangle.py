"""Reads a rectangle of one stored tensor with plain reads at given places, so that threads can share a file."""

from __future__ import annotations

import os
from io import FileIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtllm_kit.checkpoint.header import StoredTensor, changed, item_bytes
from trtllm_kit.checkpoint.matrix import matrix_shape
from trtllm_kit.checkpoint.numpy_types import NUMPY_TYPES
from trtllm_kit.units import KIB, MIB

Raw = NDArray[Any]
"""An array of stored elements: bits for formats numpy has no type for (BF16 as uint16, FP8 as uint8)."""

_WORTH_A_CALL = 2 * KIB
"""Bytes of a row's piece from which one read a row costs less than reading what lies between."""
_BLOCK_BYTES = 4 * MIB
"""Whole rows that are read at once to take some of their columns."""


def rectangle(
    file: FileIO, stored: StoredTensor, index: int | None, rows: tuple[int, int], columns: tuple[int, int]
) -> Raw:
    """Return rows and columns of a tensor taken as a matrix, or of one matrix on the first of its three axes.

    Memory holds the rectangle and at most 4 MiB more. Raises ``WeightFileError`` when the file ends early.
    """
    height, width = matrix_shape(stored.shape if index is None else stored.shape[1:])
    begin = stored.begin + (index or 0) * height * width * item_bytes(stored.dtype)
    return _Rows(file, stored, begin, width).read(rows, columns)


class _Rows:
    """The rows of a matrix that lies in a file from ``begin`` on, ``width`` elements each."""

    def __init__(self, file: FileIO, stored: StoredTensor, begin: int, width: int) -> None:
        self._file = file.fileno()
        self._stored = stored
        self._dtype = NUMPY_TYPES[stored.dtype]
        self._begin = begin
        self._width = width

    def read(self, rows: tuple[int, int], columns: tuple[int, int]) -> Raw:
        found = np.empty((rows[1] - rows[0], columns[1] - columns[0]), self._dtype)
        if found.size == 0:
            return found
        piece = found[0].nbytes
        if columns == (0, self._width):
            self._fill(found, rows[0], 0)
        elif piece >= _WORTH_A_CALL or len(found) == 1:
            for at in range(len(found)):
                self._fill(found[at], rows[0] + at, columns[0])
        else:
            self._take_columns(found, rows[0], columns)
        return found

    def _take_columns(self, found: Raw, first: int, columns: tuple[int, int]) -> None:
        step = max(_BLOCK_BYTES // (self._width * self._dtype.itemsize), 1)
        for at in range(0, len(found), step):
            block = np.empty((min(step, len(found) - at), self._width), self._dtype)
            self._fill(block, first + at, 0)
            found[at : at + step] = block[:, columns[0] : columns[1]]

    def _fill(self, target: Raw, row: int, column: int) -> None:
        """Read what fills ``target`` from one place on."""
        left = target.reshape(-1).view(np.uint8).data
        at = self._begin + (row * self._width + column) * self._dtype.itemsize
        while left.nbytes:
            got = os.preadv(self._file, [left], at)
            if not got:
                end = self._stored.begin + self._stored.nbytes
                why = f"it became shorter: tensor {self._stored.name} ends at byte {end}, beyond its end"
                raise changed(self._stored.file, why)
            left, at = left[got:], at + got
