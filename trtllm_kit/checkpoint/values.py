"""The numbers of a matrix of the source, some rows at a time: read, checked for NaN and Inf, in the format wanted."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trtllm_kit.checkpoint.formats.bits import FLOATS, check_finite, converted, largest_magnitude
from trtllm_kit.checkpoint.matrix import Matrix, Slice, tile_ranges
from trtllm_kit.checkpoint.numpy_types import NUMPY_TYPES
from trtllm_kit.checkpoint.reader import WeightFolder
from trtllm_kit.checkpoint.rectangle import Raw

_CODES = "F8_E4M3"
"""Of a source that comes quantised."""


def half_of(weights: WeightFolder, matrix: Matrix, half: str) -> str:
    """Return the 16-bit format a matrix is encoded from: its own, or ``half`` of a float32 one."""
    stored = weights.tensors[matrix.slices[0].tensor].dtype
    return half if stored == "F32" else stored


def rows_in(weights: WeightFolder, matrix: Matrix, begin: int, end: int, dtype: str, *, check: bool = True) -> Raw:
    """Return rows of a matrix as stored elements of ``dtype``, (end - begin, columns).

    Raises ``TensorError`` for NaN or Inf when ``check``, and for what float16 cannot hold; and what reading raises.
    """
    within = _within(matrix, begin, end)
    pieces = [_part(weights, part, first, last, dtype, check=check) for part, first, last in within]
    rows = sum(len(piece) for piece in pieces)
    if rows < end - begin:
        pieces.append(np.zeros((end - begin - rows, matrix.columns), NUMPY_TYPES[dtype]))
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def largest_of(weights: WeightFolder, matrix: Matrix, half: str) -> float:
    """Return max |x| of a matrix in its 16-bit format; raises as ``rows_in`` does."""
    dtype, largest = half_of(weights, matrix, half), 0.0
    for begin, end in tile_ranges(matrix):
        for part, first, last in _within(matrix, begin, end):
            values = _part(weights, part, first, last, dtype, check=False)
            largest = max(largest, largest_magnitude(values, dtype, part.tensor))
    return largest


def _within(matrix: Matrix, begin: int, end: int) -> Iterator[tuple[Slice, int, int]]:
    """Yield the slices that rows of a matrix fall into, and which of the slice's rows they are."""
    top = 0
    for part in matrix.slices:
        first, last = max(begin - top, 0), min(end - top, part.shape[0])
        if first < last:
            yield part, first, last
        top += part.shape[0]


def _part(weights: WeightFolder, part: Slice, first: int, last: int, dtype: str, *, check: bool) -> Raw:
    stored = weights.tensors[part.tensor].dtype
    values = weights.rows(part, first, last)
    if stored in (*FLOATS, _CODES) and (check or stored != dtype):
        check_finite(values, stored, part.tensor)
    return values if stored == dtype else converted(values, stored, dtype, part.tensor)
