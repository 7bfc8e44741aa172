"""Number formats as arithmetic: BF16, FP8 (e4m3fn), FP4 (e2m1) and E8M0 scales, encoded and decoded in numpy.

e4m3fn: 1 sign, 4 exponent (bias 7), 3 mantissa bits, largest finite 448, no infinity, NaN = 0x7f/0xff.
e2m1: 1 sign, 2 exponent (bias 1), 1 mantissa bit: 0, 0.5, 1, 1.5, 2, 3, 4, 6; no infinity, no NaN.
E8M0: an exponent and nothing else; code c is 2^(c - 127), and 0xff is NaN.
All rounding is to nearest, ties to even. Sources: the OCP 8-bit floating point specification, revision 1.0, and the
OCP Microscaling formats specification, version 1.0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
U16 = NDArray[np.uint16]
U8 = NDArray[np.uint8]

E4M3_MAX = 448.0
E2M1_MAX = 6.0
_E8M0_BIAS = 127
_E8M0_LARGEST = 254
_BF16_INFINITY = 0x7F80
_E4M3_MIN_EXPONENT = -6
_E4M3_MANTISSA_BITS = 3


def decode_bf16(bits: U16) -> F32:
    """Return the float32 values of BF16 bit patterns (exact)."""
    wide = np.array(bits, dtype=np.uint32)
    np.left_shift(wide, 16, out=wide)  # in place: a second array would cost more than the shift
    return wide.view(np.float32)


def encode_bf16(values: F32) -> U16:
    """Round float32 values to BF16 bit patterns; NaN stays NaN."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(values), np.uint32(0x7FC0), rounded).astype(np.uint16)


def round_e4m3(values: F32) -> F32:
    """Round float32 values to the nearest e4m3 value, saturating at ±448; NaN stays NaN."""
    return decode_e4m3(encode_e4m3(values))


def decode_e4m3(codes: U8) -> F32:
    """Return the float32 values of e4m3 codes (exact)."""
    if codes.ndim and codes.shape[-1] % 2 == 0 and codes.flags.c_contiguous:
        return _E4M3_PAIRS.take(codes.view(np.uint16)).view(np.float32)
    return _E4M3_VALUES[codes]


def encode_e4m3(values: F32) -> U8:
    """Round float32 values to e4m3 codes, saturating at ±448; NaN becomes 0x7f with the sign kept."""
    return _E4M3_CODES.take(_top_bits(values))


def decode_e2m1(codes: U8) -> F32:
    """Return the float32 values of e2m1 codes, one in each byte (exact)."""
    return _E2M1_VALUES[codes]


def encode_e2m1(values: F32) -> U8:
    """Round float32 values to e2m1 codes, one a byte, saturating at ±6; -0 becomes 0, and NaN has no code."""
    return _E2M1_CODES.take(_top_bits(values))


def decode_e8m0(codes: U8) -> F32:
    """Return the powers of two of E8M0 codes 0 to 254."""
    return np.ldexp(np.float32(1.0), codes.astype(np.int32) - _E8M0_BIAS).astype(np.float32)


def e8m0_at_least(values: F32) -> U8:
    """Return the E8M0 codes of the smallest powers of two that are not below ``values``; 0 for zero."""
    fraction, exponent = np.frexp(values)
    exponent = exponent - (fraction == np.float32(0.5))
    codes = np.where(values > 0, np.clip(exponent + _E8M0_BIAS, 0, _E8M0_LARGEST), 0)
    return codes.astype(np.uint8)


def _top_bits(values: F32) -> NDArray[np.uint32]:
    """Return the upper 16 bits of float32 values, the lowest of them set when anything was cut off.

    Enough to round to any format of at most four significant bits: a tie is told from what lies beside it.
    """
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    cut_off: NDArray[np.uint32] = ((bits & np.uint32(0xFFFF)) + np.uint32(0xFFFF)) | bits
    return cut_off >> np.uint32(16)


def _round_e4m3(values: F32) -> F32:
    clipped = np.clip(values, -E4M3_MAX, E4M3_MAX).astype(np.float32)
    _, exponent = np.frexp(clipped)
    exponent = np.maximum(exponent - 1, _E4M3_MIN_EXPONENT) - _E4M3_MANTISSA_BITS
    return np.ldexp(np.rint(np.ldexp(clipped, -exponent)), exponent).astype(np.float32)


def _e4m3_values() -> F32:
    codes = np.arange(256, dtype=np.int32)
    exponent, mantissa = (codes >> 3) & 15, codes & 7
    normal = np.ldexp(1.0 + mantissa / 8.0, exponent - 7)
    subnormal = np.ldexp(mantissa / 8.0, _E4M3_MIN_EXPONENT)
    values = np.where(exponent == 0, subnormal, normal)
    values = np.where((codes & 0x7F) == 0x7F, np.nan, values)
    return np.where(codes & 0x80, -values, values).astype(np.float32)


def _e4m3_pairs() -> NDArray[np.uint64]:
    """Return two float32 values side by side for every two codes side by side."""
    codes = np.arange(1 << 16, dtype=np.uint16).view(np.uint8)
    return _E4M3_VALUES[codes].view(np.uint64)


def _e4m3_codes() -> U8:
    """Return the code of every float32 whose lower 16 bits are zero, by its upper 16."""
    magnitudes = np.full(1 << 15, 0x7F, dtype=np.uint8)  # NaN
    tops = np.arange(_BF16_INFINITY + 1, dtype=np.uint16)
    magnitudes[: len(tops)] = np.searchsorted(_E4M3_VALUES[:0x7F], _round_e4m3(decode_bf16(tops)))
    return np.concatenate([magnitudes, magnitudes | np.uint8(0x80)])


def _e2m1_codes() -> U8:
    """Return the code of every float32 whose lower 16 bits are zero, by its upper 16."""
    tops = decode_bf16(np.arange(1 << 15, dtype=np.uint16))
    middles = (_E2M1_VALUES[:7] + _E2M1_VALUES[1:8]) / np.float32(2.0)
    magnitudes = np.searchsorted(middles, tops).astype(np.uint8)
    magnitudes += np.isin(tops, middles[1::2])  # of these ties the upper neighbour is the even code
    negative = magnitudes | np.uint8(8)
    negative[0] = 0
    return np.concatenate([magnitudes, negative])


_E4M3_VALUES = _e4m3_values()
_E4M3_PAIRS = _e4m3_pairs()
"""The values of two codes at a time, which takes half as long."""
_E4M3_CODES = _e4m3_codes()
_E2M1_VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=np.float32)
_E2M1_CODES = _e2m1_codes()
