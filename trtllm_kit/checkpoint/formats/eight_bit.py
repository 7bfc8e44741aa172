"""Eight bits a weight and a scale for each row or block: FP8 by row, FP8 by block, INT8 by row, and MXFP8.

Of a row or block with largest magnitude ``amax`` (all zero: scale 1; no scale is below the smallest normal float32):

* ``fp8_rowwise``: scale ``amax / 448``, code e4m3 of ``weight / scale``. ModelOpt 0.47, FP8_PER_CHANNEL_PER_TOKEN.
* ``fp8_block``: the same for blocks of 128 x 128, the last of a row or column as large as is left. DeepSeek-V3's
  published layout, whose scale is called ``weight_scale_inv``; ModelOpt 0.47's FP8_2D_BLOCKWISE_WEIGHT_ONLY has the
  same bytes under the name ``weight_scale``.
* ``int8_wo``: scale ``amax / 127``, code ``weight / scale`` as a whole number. ModelOpt 0.47, INT8_WEIGHT_ONLY.
* ``mxfp8``: of 32 columns the smallest power of two that is not below ``amax / 448`` (all zero: 2^-127), code e4m3 of
  ``weight / scale``, saturating. ModelOpt 0.47, MXFP8_DEFAULT.

Every division and quotient is rounded to float32 and then once to the code, to nearest, ties to even.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from trtllm_kit.checkpoint.formats.base import Part
from trtllm_kit.checkpoint.formats.bits import to_float32
from trtllm_kit.checkpoint.formats.quotients import (
    E4M3,
    INT8,
    Fractions,
    Grid,
    block_largest,
    divide,
    quantise_blocks,
    row_largest,
    scales_of,
)
from trtllm_kit.checkpoint.rectangle import Raw
from trtllm_kit.dtypes import E4M3_MAX, F32, U16, decode_e4m3, decode_e8m0, e8m0_at_least, encode_e4m3
from trtllm_kit.plan.formats import number_format

BLOCK = number_format("fp8_block").block
"""Rows and columns that share a scale of ``fp8_block``."""
MX_BLOCK = number_format("mxfp8").block
"""Columns that share a scale of ``mxfp8``."""
_MX_ABOVE = 9
"""e4m3 goes up to 448, less than 2^9."""
_MX_SMALLEST, _MX_LARGEST = 48, 240
"""Scale codes that a table serves: what it tells apart is no subnormal and has no neighbour in the other sign."""


@dataclass(frozen=True)
class RowWise:
    """Parts: ``weight`` of one byte, (rows, columns); ``weight_scale`` float32 (rows,)."""

    grid: Grid
    dtype: str
    """As safetensors spells the codes."""
    row_step: int = 1
    needs_amax: bool = False

    def parts(self, rows: int, columns: int) -> tuple[Part, ...]:
        """Return the weight and its scales."""
        return Part("weight", self.dtype, (rows, columns)), Part("weight_scale", "F32", (rows,))

    def encode(self, tile: U16, dtype: str, amax: float | None) -> tuple[Raw, ...]:  # noqa: ARG002
        """Return codes and scales of the tile's rows."""
        largest = row_largest(tile)
        codes = quantise_blocks(tile[:, None, :], largest[:, None], dtype, self.grid)
        return codes.reshape(tile.shape), scales_of(largest, dtype, self.grid)

    def constants(self, amax: float | None) -> Mapping[str, Raw]:  # noqa: ARG002
        """Return nothing: every part grows with the rows."""
        return {}


@dataclass(frozen=True)
class BlockWise:
    """Parts: ``weight`` e4m3 (rows, columns); ``weight_scale_inv`` float32, one for each begun 128 rows and columns."""

    row_step: int = BLOCK
    needs_amax: bool = False

    def parts(self, rows: int, columns: int) -> tuple[Part, ...]:
        """Return the weight and its scales."""
        scales = (-(-rows // BLOCK), -(-columns // BLOCK))
        return Part("weight", "F8_E4M3", (rows, columns)), Part("weight_scale_inv", "F32", scales)

    def encode(self, tile: U16, dtype: str, amax: float | None) -> tuple[Raw, ...]:  # noqa: ARG002
        """Return codes and scales of the tile's rows."""
        rows, columns = tile.shape
        padded = np.pad(tile, ((0, 0), (0, -columns % BLOCK))) if columns % BLOCK else tile
        of_rows = np.pad(block_largest(padded, BLOCK), ((0, -rows % BLOCK), (0, 0)))
        largest = of_rows.reshape(-1, BLOCK, of_rows.shape[1]).max(axis=1)
        each = np.repeat(largest, BLOCK, axis=0)[:rows]
        codes = quantise_blocks(padded.reshape(rows, -1, BLOCK), each, dtype, E4M3).reshape(rows, -1)
        return np.ascontiguousarray(codes[:, :columns]), scales_of(largest, dtype, E4M3)

    def constants(self, amax: float | None) -> Mapping[str, Raw]:  # noqa: ARG002
        """Return nothing: every part grows with the rows."""
        return {}


@dataclass(frozen=True)
class Mx:
    """Parts: ``weight`` e4m3 (rows, columns); ``weight_scale`` E8M0 as U8 (rows, columns / 32).

    Columns are a multiple of 32, which the checks of a plan see to.
    """

    row_step: int = 1
    needs_amax: bool = False

    def parts(self, rows: int, columns: int) -> tuple[Part, ...]:
        """Return the weight and its scales."""
        return Part("weight", "F8_E4M3", (rows, columns)), Part("weight_scale", "U8", (rows, columns // MX_BLOCK))

    def encode(self, tile: U16, dtype: str, amax: float | None) -> tuple[Raw, ...]:  # noqa: ARG002
        """Return codes and scales of the tile's rows."""
        blocks = tile.reshape(len(tile), -1, MX_BLOCK)
        largest = block_largest(tile, MX_BLOCK)
        scales = e8m0_at_least(to_float32(largest, dtype) / np.float32(E4M3_MAX))
        used = scales[largest > 0]
        if dtype != "BF16" or (used.size and not _MX_SMALLEST <= used.min() <= used.max() <= _MX_LARGEST):
            codes = divide(blocks, decode_e8m0(scales), dtype, encode_e4m3)
        else:  # zeros have the same code under any scale
            exponents = np.where(largest == 0, _MX_LARGEST, scales).astype(np.int64)
            codes = _powers_of_two().take(blocks, np.zeros_like(exponents), exponents)
        return codes.reshape(tile.shape), scales

    def constants(self, amax: float | None) -> Mapping[str, Raw]:  # noqa: ARG002
        """Return nothing: every part grows with the rows."""
        return {}


@lru_cache(maxsize=1)
def _powers_of_two() -> Fractions:
    return Fractions(np.ones(1, dtype=np.float32), encode_e4m3, _MX_ABOVE)


FP8_ROWWISE = RowWise(E4M3, "F8_E4M3")
FP8_BLOCK = BlockWise()
INT8_WO = RowWise(INT8, "I8")
MXFP8 = Mx()


def decode_fp8_rowwise(parts: Mapping[str, Raw], dtype: str) -> F32:  # noqa: ARG001
    """Return code times the scale of its row, (rows, columns) from ``weight`` and ``weight_scale`` (rows,)."""
    values: F32 = decode_e4m3(parts["weight"]) * parts["weight_scale"][..., None]
    return values


def int8_cache_scale(amax: float) -> np.float32:
    """Return the scale of an INT8 KV cache in an engine's checkpoint: amax / 127 as ModelOpt has it, 1 for zeros."""
    return np.float32(amax) / np.float32(127.0) if amax > 0 else np.float32(1.0)


def decode_int8_wo(parts: Mapping[str, Raw], dtype: str) -> F32:  # noqa: ARG001
    """Return code times the scale of its row, (rows, columns) from ``weight`` and ``weight_scale`` (rows,)."""
    values: F32 = parts["weight"].view(np.int8).astype(np.float32) * parts["weight_scale"][..., None]
    return values


def decode_fp8_block(parts: Mapping[str, Raw], dtype: str) -> F32:  # noqa: ARG001
    """Return code times the scale of its block of 128 x 128, from ``weight`` and ``weight_scale_inv``."""
    rows, columns = parts["weight"].shape[-2:]
    scales = parts["weight_scale_inv"]
    if scales.ndim == 4:  # (rows, 1, columns, 1), as ModelOpt stores them
        scales = scales.squeeze((1, 3))
    scales = scales.repeat(BLOCK, axis=-2).repeat(BLOCK, axis=-1)
    values: F32 = decode_e4m3(parts["weight"]) * scales[..., :rows, :columns]
    return values


def decode_mxfp8(parts: Mapping[str, Raw], dtype: str) -> F32:  # noqa: ARG001
    """Return code times the power of two of its 32 columns, from ``weight`` and ``weight_scale`` (E8M0)."""
    return decode_e4m3(parts["weight"]) * decode_e8m0(parts["weight_scale"]).repeat(MX_BLOCK, axis=-1)
