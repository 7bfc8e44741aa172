"""Which numbers of the source a tensor is made of: rectangles of stored tensors, one below the other."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from trtllm_kit.checkpoint.header import StoredTensor
from trtllm_kit.units import MIB

_TILE_BYTES = MIB
"""Of 16-bit elements: stays in a core's cache between reading, checking and encoding."""
_TURNED_BYTES = 16 * MIB
"""Of a transposed matrix, whose rows are columns on disk: wide enough that a read is worth its call."""


@dataclass(frozen=True)
class Slice:
    """A rectangle of one stored tensor.

    The tensor is taken as a matrix: all its axes but the last are rows, and a vector is one column.
    """

    tensor: str
    rows: tuple[int, int]
    """First row, and the first that is no longer part of it."""
    columns: tuple[int, int]
    index: int | None = None
    """On the first axis of a tensor with three axes (fused experts); its matrix is what rows and columns count in."""
    transposed: bool = False
    """Rows and columns count in the matrix turned over."""
    whole: bool = False
    """It is all of the tensor; says so in a listing, and nothing else."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the rectangle."""
        return self.rows[1] - self.rows[0], self.columns[1] - self.columns[0]

    def lies_in(self, other: Slice) -> bool:
        """Whether another slice has all of this one's numbers."""
        if (self.tensor, self.index, self.transposed) != (other.tensor, other.index, other.transposed):
            return False
        rows = other.rows[0] <= self.rows[0] and self.rows[1] <= other.rows[1]
        return rows and other.columns[0] <= self.columns[0] and self.columns[1] <= other.columns[1]

    def __str__(self) -> str:
        """Return ``name``, or ``name[index][rows, columns]``, with ``turned`` when it is transposed."""
        if self.whole:
            return self.tensor
        index = "" if self.index is None else f"[{self.index}]"
        place = f"[{self.rows[0]}:{self.rows[1]}, {self.columns[0]}:{self.columns[1]}]"
        return f"{self.tensor}{index}{' turned' if self.transposed else ''}{place}"


@dataclass(frozen=True)
class Matrix:
    """Slices one below the other, all of one width, then rows of zeros (the padding of a vocabulary)."""

    slices: tuple[Slice, ...]
    zero_rows: int = 0

    @property
    def rows(self) -> int:
        """Rows, those of zeros included."""
        return sum(part.shape[0] for part in self.slices) + self.zero_rows

    @property
    def columns(self) -> int:
        """Width."""
        return self.slices[0].shape[1]

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the stored tensors, each once, in order."""
        return tuple(dict.fromkeys(part.tensor for part in self.slices))

    def holds(self, other: Matrix) -> bool:
        """Whether every number of another matrix but its zeros is one of this one's."""
        return all(any(part.lies_in(mine) for mine in self.slices) for part in other.slices)

    def block(self, number: int, count: int) -> Matrix:
        """Return one of ``count`` blocks of as many slices each; a matrix of blocks has no rows of zeros."""
        each = len(self.slices) // count
        return Matrix(self.slices[number * each : (number + 1) * each])

    def __str__(self) -> str:
        """Return the slices as a sum, e.g. ``q.weight[0:64, 0:128] + 32 rows of zeros``."""
        zeros = [f"{self.zero_rows} rows of zeros"] if self.zero_rows else []
        return " + ".join([*map(str, self.slices), *zeros])


def matrix_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return rows and columns of a tensor taken as a matrix; a vector is one column, a scalar one number."""
    if len(shape) < 2:
        return math.prod(shape), 1
    return math.prod(shape[:-1]), shape[-1]


def whole(stored: StoredTensor) -> Matrix:
    """Return all of a stored tensor."""
    rows, columns = matrix_shape(stored.shape)
    return Matrix((Slice(stored.name, (0, rows), (0, columns), whole=True),))


def tile_ranges(matrix: Matrix, row_step: int = 1, tile_bytes: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield begin and end of the rows of each tile; all but the last are a multiple of ``row_step`` long."""
    if tile_bytes is None:
        tile_bytes = _TURNED_BYTES if any(part.transposed for part in matrix.slices) else _TILE_BYTES
    row_bytes = 2 * matrix.columns * row_step
    rows = max(tile_bytes // max(row_bytes, 1), 1) * row_step
    if matrix.columns:
        yield from ((begin, min(begin + rows, matrix.rows)) for begin in range(0, matrix.rows, rows))
