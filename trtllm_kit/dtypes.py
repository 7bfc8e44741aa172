"""Number formats as arithmetic: BF16 and FP8 (e4m3fn) rounding, encoding and decoding in numpy.

e4m3fn: 1 sign, 4 exponent (bias 7), 3 mantissa bits, largest finite 448, no infinity, NaN = 0x7f/0xff.
All rounding is to nearest, ties to even. Source: the OCP 8-bit floating point specification, revision 1.0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
U16 = NDArray[np.uint16]
U8 = NDArray[np.uint8]

E4M3_MAX = 448.0
_E4M3_MIN_EXPONENT = -6
_E4M3_MANTISSA_BITS = 3


def decode_bf16(bits: U16) -> F32:
    """Return the float32 values of BF16 bit patterns (exact)."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def encode_bf16(values: F32) -> U16:
    """Round float32 values to BF16 bit patterns; NaN stays NaN."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(values), np.uint32(0x7FC0), rounded).astype(np.uint16)


def round_e4m3(values: F32) -> F32:
    """Round float32 values to the nearest e4m3 value, saturating at ±448; NaN stays NaN."""
    clipped = np.clip(values, -E4M3_MAX, E4M3_MAX).astype(np.float32)
    _, exponent = np.frexp(clipped)
    exponent = np.maximum(exponent - 1, _E4M3_MIN_EXPONENT) - _E4M3_MANTISSA_BITS
    return np.ldexp(np.rint(np.ldexp(clipped, -exponent)), exponent).astype(np.float32)


def decode_e4m3(codes: U8) -> F32:
    """Return the float32 values of e4m3 codes (exact)."""
    return _E4M3_VALUES[codes]


def encode_e4m3(values: F32) -> U8:
    """Round float32 values to e4m3 codes, saturating at ±448; NaN becomes 0x7f with the sign kept."""
    rounded = round_e4m3(values)
    magnitude = np.searchsorted(_E4M3_VALUES[:0x7F], np.abs(rounded)).astype(np.uint8)
    magnitude = np.where(np.isnan(rounded), np.uint8(0x7F), magnitude)
    return np.where(np.signbit(rounded), magnitude | np.uint8(0x80), magnitude).astype(np.uint8)


def _e4m3_values() -> F32:
    codes = np.arange(256, dtype=np.int32)
    exponent, mantissa = (codes >> 3) & 15, codes & 7
    normal = np.ldexp(1.0 + mantissa / 8.0, exponent - 7)
    subnormal = np.ldexp(mantissa / 8.0, _E4M3_MIN_EXPONENT)
    values = np.where(exponent == 0, subnormal, normal)
    values = np.where((codes & 0x7F) == 0x7F, np.nan, values)
    return np.where(codes & 0x80, -values, values).astype(np.float32)


_E4M3_VALUES = _e4m3_values()
