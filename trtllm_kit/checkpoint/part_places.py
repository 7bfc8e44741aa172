"""Where the parts of a quantised weight lie, for a rectangle of its values: codes, scales, and factors of the input.

One rule serves both ways between Hugging Face tensors and rank files, since a part is cut as its weight is: by as
many rows and columns as an entry of it stands for.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from trtllm_kit.checkpoint.formats.searched import PRE_QUANT_SCALE
from trtllm_kit.checkpoint.matrix import matrix_shape

Range = tuple[int, int]


class Place(NamedTuple):
    """Rows and columns of a part taken as a matrix."""

    rows: Range
    columns: Range


def is_one_number(part: str, shape: tuple[int, ...]) -> bool:
    """Whether a part is one number for the whole matrix."""
    return part != PRE_QUANT_SCALE and not shape


def part_place(part: str, shape: tuple[int, ...], values: tuple[int, int], rows: Range, columns: Range) -> Place:
    """Return the place in a part of ``shape`` for rows and columns of a (rows, columns) matrix of ``values``.

    A factor of the input is a vector over the columns, a scale of one axis a vector over the rows.
    """
    if part == PRE_QUANT_SCALE:
        return Place(columns, (0, 1))
    if is_one_number(part, shape):
        return Place((0, 1), (0, 1))
    height, width = matrix_shape(shape)
    across = (0, 1) if len(shape) == 1 else _scaled(columns, values[1], width)
    return Place(_scaled(rows, values[0], height), across)


def _scaled(span: Range, values: int, entries: int) -> Range:
    """Return the entries of a span of values; the last entry may stand for fewer values than the others."""
    step = math.ceil(values / max(entries, 1))
    return span[0] // step, math.ceil(span[1] / step)
