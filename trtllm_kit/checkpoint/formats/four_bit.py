"""Four bits a weight: INT4 by groups of columns, and NVFP4 by blocks of 16.

* ``int4_wo``: scale ``amax / 7`` of each group of columns (all zero: 1), code ``weight / scale`` as a whole number from
  -8 to 7. A byte holds the codes of one column in two rows, the even row in its lower half. ModelOpt 0.47,
  INT4_BLOCKWISE_WEIGHT_ONLY.
* ``nvfp4``: ``weight_scale_2 = amax / (6 * 448)`` of the matrix and those that share it (all zero: 1). A block's scale
  is e4m3 of ``amax / (6 * weight_scale_2)``, at least 2^-9 and at most 448 (all zero: 1). A code is e2m1 of
  ``weight / (scale * weight_scale_2)``, saturating at 6. A byte holds two columns, the even one in its lower half.
  ModelOpt 0.47, NVFP4_DEFAULT.
* ``nvfp4_turned``: the same of a stack of matrices that are stored (input, output), as the fused experts of Llama 4 and
  gpt-oss are: blocks and bytes run down the rows, and the stack has one ``weight_scale_2``.

Every product and quotient is rounded to float32 and then once to the code, to nearest, ties to even.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from trtllm_kit.checkpoint.formats.base import Part, known
from trtllm_kit.checkpoint.formats.bits import to_float32
from trtllm_kit.checkpoint.formats.quotients import (
    I64,
    INT4,
    Fractions,
    block_largest,
    divide,
    quantise_blocks,
    scales_of,
)
from trtllm_kit.checkpoint.rectangle import Raw
from trtllm_kit.dtypes import (
    E2M1_MAX,
    E4M3_MAX,
    F32,
    U8,
    U16,
    decode_e2m1,
    decode_e4m3,
    decode_e8m0,
    encode_e2m1,
    encode_e4m3,
)
from trtllm_kit.plan.formats import GROUP_SIZE, number_format

NVFP4_BLOCK = number_format("nvfp4").block
"""Columns that share a scale of ``nvfp4``."""
_SMALLEST_SCALE = 2.0**-9
"""The smallest e4m3 value above zero."""
_NEGATIVE_ZERO = 0x8000
_NVFP4_ABOVE = 5
"""A saturated element lies at most this many exponents above its scale: a scale rounds down by less than a third."""
_TABLES_FROM, _TABLES_TO = 2.0**-80, 2.0**16
"""Largest magnitudes of a matrix that tables serve: nothing they tell apart is subnormal, no quotient becomes zero."""


@dataclass(frozen=True)
class Int4:
    """Parts: ``weight`` U8 (rows / 2, columns); ``weight_scale`` float32 (rows, columns / group).

    Rows are even and columns a multiple of the group, which the checks of a plan see to.
    """

    group: int = GROUP_SIZE
    """Columns that share a scale, a power of two."""
    row_step: int = 2
    needs_amax: bool = False

    def parts(self, rows: int, columns: int) -> tuple[Part, ...]:
        """Return the packed weight and its scales."""
        return Part("weight", "U8", (rows // 2, columns)), Part("weight_scale", "F32", (rows, columns // self.group))

    def encode(self, tile: U16, dtype: str, amax: float | None) -> tuple[Raw, ...]:  # noqa: ARG002
        """Return packed codes and scales of the tile's rows."""
        largest = block_largest(tile, self.group)
        codes = quantise_blocks(tile.reshape(len(tile), -1, self.group), largest, dtype, INT4).reshape(tile.shape)
        return codes[0::2] | codes[1::2] << np.uint8(4), scales_of(largest, dtype, INT4)

    def constants(self, amax: float | None) -> Mapping[str, Raw]:  # noqa: ARG002
        """Return nothing: every part grows with the rows."""
        return {}


@dataclass(frozen=True)
class Nvfp4:
    """Parts: ``weight`` U8 (rows, columns / 2); ``weight_scale`` e4m3 (rows, columns / 16); ``weight_scale_2`` F32 ().

    Columns are a multiple of 16, which the checks of a plan see to.
    """

    row_step: int = 1
    needs_amax: bool = True

    def parts(self, rows: int, columns: int) -> tuple[Part, ...]:
        """Return the packed weight, the scales of its blocks and that of the whole."""
        scales = Part("weight_scale", "F8_E4M3", (rows, columns // NVFP4_BLOCK))
        return Part("weight", "U8", (rows, columns // 2)), scales, Part("weight_scale_2", "F32", ())

    def encode(self, tile: U16, dtype: str, amax: float | None) -> tuple[Raw, ...]:
        """Return packed codes and block scales of the tile's rows; ``amax`` is that of the matrix and its sharers."""
        whole = nvfp4_scale(known(amax))
        scales = _block_scales(to_float32(block_largest(tile, NVFP4_BLOCK), dtype), whole)
        blocks = tile.reshape(len(tile), -1, NVFP4_BLOCK)
        if dtype == "BF16" and _TABLES_FROM <= known(amax) <= _TABLES_TO:
            tables = _nvfp4_tables(whole)
            plain = np.where(blocks == _NEGATIVE_ZERO, np.uint16(0), blocks)  # ModelOpt gives -0 the code of 0
            codes = tables.fractions.take(plain, tables.which[scales], tables.exponents[scales])
        else:
            codes = divide(blocks, decode_e4m3(scales) * whole, dtype, encode_e2m1)
        pairs = codes.reshape(-1).view("<u2")
        packed = (pairs | pairs >> np.uint16(4)).astype(np.uint8)
        return packed.reshape(len(tile), -1), scales

    def constants(self, amax: float | None) -> Mapping[str, Raw]:
        """Return the scale of the whole."""
        return {"weight_scale_2": np.array([nvfp4_scale(known(amax))])}


@dataclass(frozen=True)
class Nvfp4Turned:
    """Parts: ``weight`` U8 (rows / 2, columns); ``weight_scale`` e4m3 (rows / 16, columns); ``weight_scale_2`` F32 ().

    Rows are a multiple of 16 in each matrix of the stack, which the checks of a plan see to.
    """

    row_step: int = NVFP4_BLOCK
    needs_amax: bool = True

    def parts(self, rows: int, columns: int) -> tuple[Part, ...]:
        """Return the packed weight, the scales of its blocks and that of the whole."""
        weight, scales, whole = NVFP4.parts(columns, rows)
        return weight._replace(shape=weight.shape[::-1]), scales._replace(shape=scales.shape[::-1]), whole

    def encode(self, tile: U16, dtype: str, amax: float | None) -> tuple[Raw, ...]:
        """Return packed codes and block scales of the tile's rows."""
        turned = NVFP4.encode(np.ascontiguousarray(tile.T), dtype, amax)
        return tuple(np.ascontiguousarray(part.T) for part in turned)

    def constants(self, amax: float | None) -> Mapping[str, Raw]:
        """Return the scale of the whole."""
        return NVFP4.constants(amax)


def nvfp4_scale(amax: float) -> np.float32:
    """Return the finite, positive scale of a whole tensor, ``amax / (6 * 448)``; 1 for an amax of zero.

    ``weight_scale_2`` is made so, and ``input_scale``.
    """
    if amax == 0.0:
        return np.float32(1.0)
    return np.float32(max(np.float32(amax) / np.float32(E2M1_MAX * E4M3_MAX), np.finfo(np.float32).tiny))


def _block_scales(largest: F32, whole: np.float32) -> U8:
    """Return the e4m3 scale of each block of a tensor with scale ``whole``."""
    ratio = largest / (np.float32(E2M1_MAX) * whole)
    ratio[ratio == 0] = 1.0
    return encode_e4m3(np.maximum(ratio, np.float32(_SMALLEST_SCALE)))


class _Nvfp4Tables(NamedTuple):
    """The tables of one ``weight_scale_2``: block scales have eight fractions, and so has their product with it."""

    fractions: Fractions
    which: I64
    """Index of the fraction by e4m3 code, (128,)."""
    exponents: I64
    """Exponent field of the product by e4m3 code, (128,)."""


@lru_cache(maxsize=8)
def _nvfp4_tables(whole: np.float32) -> _Nvfp4Tables:
    products = (decode_e4m3(np.arange(0x7F, dtype=np.uint8)) * whole).view(np.uint32)
    fractions, which = np.unique(products & np.uint32(0x7FFFFF), return_inverse=True)
    scales = (fractions | np.float32(1.0).view(np.uint32)).view(np.float32)
    exponents = (products >> np.uint32(23)).astype(np.int64)
    return _Nvfp4Tables(Fractions(scales, encode_e2m1, _NVFP4_ABOVE), which.astype(np.int64), exponents)


INT4_WO = Int4()
NVFP4 = Nvfp4()
NVFP4_TURNED = Nvfp4Turned()


def decode_int4_wo(parts: Mapping[str, Raw], dtype: str) -> F32:  # noqa: ARG001
    """Return code times the scale of its group, (rows, columns), from ``weight`` (rows / 2, columns)."""
    packed = parts["weight"]
    codes = np.empty((2 * packed.shape[0], packed.shape[1]), dtype=np.int8)
    codes[0::2] = (packed << np.uint8(4)).view(np.int8) >> 4
    codes[1::2] = packed.view(np.int8) >> 4
    group = packed.shape[1] // parts["weight_scale"].shape[1]
    values: F32 = codes.astype(np.float32) * parts["weight_scale"].repeat(group, axis=1)
    return values


def decode_nvfp4(parts: Mapping[str, Raw], dtype: str) -> F32:  # noqa: ARG001
    """Return code times scale of its block times ``weight_scale_2``, (rows, columns)."""
    packed = parts["weight"]
    codes = np.stack([packed & np.uint8(0xF), packed >> np.uint8(4)], axis=-1).reshape(*packed.shape[:-1], -1)
    scales = decode_e4m3(parts["weight_scale"]) * np.float32(parts["weight_scale_2"].ravel()[0])
    return decode_e2m1(codes) * scales.repeat(NVFP4_BLOCK, axis=-1)


def decode_nvfp4_turned(parts: Mapping[str, Raw], dtype: str) -> F32:
    """Return the values of a stack, (experts, rows, columns), or of one matrix of it."""
    turned = {name: part.swapaxes(-1, -2) if part.ndim > 1 else part for name, part in parts.items()}
    return decode_nvfp4(turned, dtype).swapaxes(-1, -2)


def decode_mxfp4(parts: Mapping[str, Raw], dtype: str) -> F32:  # noqa: ARG001
    """Return code times scale of its block, (experts, inputs, outputs), as gpt-oss stores them.

    ``weight`` is U8 (experts, outputs, blocks, 16) with the first of two inputs in the low half of a byte, and
    ``weight_scale`` E8M0 (experts, outputs, blocks).
    """
    packed, scales = parts["weight"], decode_e8m0(parts["weight_scale"])
    codes = np.stack([packed & np.uint8(0xF), packed >> np.uint8(4)], axis=-1).reshape(*packed.shape[:-1], -1)
    values = decode_e2m1(codes) * scales[..., np.newaxis]
    return values.reshape(*packed.shape[:2], -1).swapaxes(1, 2)
