"""Codes of 16-bit floats divided by scales that change from row to row, or from block to block.

A table with a code for each of the 65,536 bit patterns serves one scale. Many scales have few fractions, though: the
largest magnitude of a row of BF16 has one of 128, and a power of two moves bit patterns by a whole number of steps
and changes no digit of a quotient. So there is one table a fraction, and each row or block reads it at its own offset:
the codes are those of the division in float32, at the rate of a look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trtllm_kit.checkpoint.formats.bits import to_float32
from trtllm_kit.dtypes import E4M3_MAX, F32, U8, U16, decode_bf16, encode_e4m3

I64 = NDArray[np.int64]

_SIGN = 1 << 15
_MAGNITUDE = _SIGN - 1
_STEPS = 128
"""BF16 patterns of one exponent."""
_ONE = 127
"""The exponent field of 1.0."""
_BELOW = 24
"""Exponents under the scale's that a table tells apart; no format has a code but zero for what is smaller."""
_SPAN = 254 * _STEPS
_WIDTH = _SPAN + (1 << 16)
_SMALLEST_EXPONENT = 32
"""The field of the smallest amax that tables serve: everything they tell apart is then no subnormal."""
_CHUNK = 1 << 15
"""Elements that are worked on at once, so that what lies between two steps stays in the cache."""


class Grid(NamedTuple):
    """The codes of a number format that is scaled."""

    largest: float
    """The value that the largest magnitude of a row or block is mapped to."""
    codes: Callable[[F32], U8]
    """Rounds quotients to codes, to nearest with ties to even, saturating."""


def _int8_codes(quotients: F32) -> U8:
    return np.clip(np.rint(quotients), -128, 127).astype(np.int8).view(np.uint8)


def _int4_codes(quotients: F32) -> U8:
    return np.clip(np.rint(quotients), -8, 7).astype(np.int8).view(np.uint8) & np.uint8(0xF)


E4M3 = Grid(E4M3_MAX, encode_e4m3)
INT8 = Grid(127.0, _int8_codes)
INT4 = Grid(7.0, _int4_codes)
"""In the lower half of a byte, two's complement."""


def row_largest(tile: U16) -> U16:
    """Return the bits of the largest magnitude of each row, (rows,).

    Bit patterns order as magnitudes do, those with a sign behind all others.
    """
    positive = tile.view(np.int16).max(axis=1, initial=0).astype(np.uint16)
    largest: U16 = np.maximum(positive, tile.max(axis=1, initial=0) & np.uint16(_MAGNITUDE))
    return largest


def block_largest(tile: U16, width: int) -> U16:
    """Return the bits of the largest magnitude of each ``width`` columns (a power of two), (rows, blocks)."""
    largest = (tile & np.uint16(_MAGNITUDE)).reshape(-1)
    while width > 1:
        largest = np.maximum(largest[0::2], largest[1::2])
        width //= 2
    return largest.reshape(len(tile), -1)


def scales_of(largest: U16, dtype: str, grid: Grid) -> F32:
    """Return the finite, positive scales that map largest magnitudes (bits) to the grid's; 1 for a zero."""
    amax = to_float32(largest, dtype)
    scales = np.maximum(amax / np.float32(grid.largest), np.finfo(np.float32).tiny)
    return np.where(amax == 0, np.float32(1.0), scales)


def quantise_blocks(blocks: U16, largest: U16, dtype: str, grid: Grid) -> U8:
    """Return the code of every element over the scale of its block.

    ``blocks`` is (rows, blocks, width), ``largest`` the bits of each block's largest magnitude, (rows, blocks).
    """
    smallest = _SMALLEST_EXPONENT * _STEPS
    if dtype != "BF16" or bool(np.any((largest < smallest) & (largest > 0))):
        return divide(blocks, scales_of(largest, dtype, grid), dtype, grid.codes)
    exponents = np.where(largest == 0, _ONE, largest // _STEPS).astype(np.int64)
    return _of_amax(grid).take(blocks, (largest % _STEPS).astype(np.int64), exponents)


def divide(blocks: U16, scales: F32, dtype: str, codes: Callable[[F32], U8]) -> U8:
    """Return the codes of ``blocks`` (rows, blocks, width) over ``scales`` (rows, blocks) by arithmetic, any dtype."""
    result = np.empty(blocks.shape, dtype=np.uint8)
    with np.errstate(over="ignore", under="ignore"):
        for rows in _chunks(blocks):
            result[rows] = codes(to_float32(blocks[rows], dtype) / scales[rows, :, None])
    return result


class Fractions:
    """Tables of the codes of BF16 patterns over a few scales of exponent zero, and over these times powers of two."""

    def __init__(self, scales: F32, codes: Callable[[F32], U8], above: int) -> None:
        """Take the scales, (n,), and how many exponents the largest element may lie above a scale's power of two."""
        steps = np.arange(-_BELOW * _STEPS, above * _STEPS)
        quotients = decode_bf16((_ONE * _STEPS + steps).astype(np.uint16)) / scales[:, None]
        first, last = _SPAN + int(steps[0]), _SPAN + int(steps[-1]) + 1
        self._table = np.zeros((len(scales), _WIDTH), dtype=np.uint8)
        self._table[:, first:last] = codes(quotients)
        self._table[:, last : _SIGN + first] = codes(np.array([-np.finfo(np.float32).tiny], dtype=np.float32))
        self._table[:, _SIGN + first : _SIGN + last] = codes(-quotients)

    def take(self, blocks: U16, which: I64, exponents: I64) -> U8:
        """Return the codes of (rows, blocks, width) over scale ``which`` times 2 ** (exponent - 127) of each block.

        ``which`` and ``exponents`` are (rows, blocks).
        """
        offsets = (which * _WIDTH + _SPAN - exponents * _STEPS)[:, :, None]
        table = self._table.reshape(-1)
        codes = np.empty(blocks.shape, dtype=np.uint8)
        places = np.empty((_chunk_rows(blocks), *blocks.shape[1:]), dtype=np.int64)
        for rows in _chunks(blocks):
            of_chunk = np.add(blocks[rows], offsets[rows], out=places[: len(blocks[rows])])
            np.take(table, of_chunk, out=codes[rows], mode="wrap")
        return codes


@lru_cache(maxsize=8)
def _of_amax(grid: Grid) -> Fractions:
    """Return the tables of the 128 fractions that the largest magnitude of a block of BF16 can have."""
    amax = np.float32(1.0) + np.arange(_STEPS, dtype=np.float32) / np.float32(_STEPS)
    return Fractions(amax / np.float32(grid.largest), grid.codes, above=1)


def _chunk_rows(blocks: U16) -> int:
    return min(max(_CHUNK * len(blocks) // max(blocks.size, 1), 1), len(blocks))


def _chunks(blocks: U16) -> Iterator[slice]:
    step = max(_chunk_rows(blocks), 1)
    return (slice(at, at + step) for at in range(0, len(blocks), step))
