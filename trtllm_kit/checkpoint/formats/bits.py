"""Stored floats as bits: largest magnitudes, what is not finite, and rounding to 16 bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtllm_kit.checkpoint.rectangle import Raw
from trtllm_kit.dtypes import F32, decode_bf16, encode_bf16
from trtllm_kit.errors import TensorError

FLOATS = ("BF16", "F16", "F32")
INFINITY = {"BF16": 0x7F80, "F16": 0x7C00, "F32": 0x7F800000, "F8_E4M3": 0x7F}
"""The bits of infinity, and above them of NaN; e4m3 has no infinity, and one NaN."""
_F16_MAX = 65504.0


def largest_magnitude(tile: Raw, dtype: str, name: str) -> float:
    """Return max |x| of elements of ``BF16``, ``F16`` or ``F32``; raises ``TensorError`` for NaN or Inf in them.

    Without their sign, bit patterns of floats order as the values do, so the search runs on integers.
    """
    largest = _largest_bits(tile, dtype)
    _require_finite(largest, dtype, name)
    return float(from_bits(np.array([largest], dtype=np.uint32), dtype)[0])


def check_finite(tile: Raw, dtype: str, name: str) -> None:
    """Raise ``TensorError`` when elements of ``BF16``, ``F16``, ``F32`` or ``F8_E4M3`` hold NaN or Inf."""
    _require_finite(_largest_bits(tile, dtype), dtype, name)


def from_bits(bits: NDArray[np.uint32], dtype: str) -> F32:
    """Return the float32 values of bit patterns held in wider integers."""
    if dtype == "F32":
        return bits.view(np.float32)
    return to_float32(bits.astype(np.uint16), dtype)


def to_float32(raw: Raw, dtype: str) -> F32:
    """Return stored 16- or 32-bit elements as float32 (exact)."""
    if dtype == "BF16":
        return decode_bf16(raw)
    return raw.view(np.float16 if dtype == "F16" else np.float32).astype(np.float32)


def round_to(values: F32, dtype: str, name: str) -> Raw:
    """Round float32 to ``BF16`` or ``F16``; raises ``TensorError`` for what float16 cannot hold."""
    if dtype == "BF16":
        return encode_bf16(values)
    if values.size and float(np.abs(values).max()) > _F16_MAX:
        raise TensorError(
            f"tensor {name} does not fit float16",
            why=f"its largest magnitude is {float(np.abs(values).max()):.6g}, float16 ends at {_F16_MAX:.0f}",
            hint="set torch_dtype in config.json to bfloat16",
        )
    return values.astype(np.float16)


def converted(raw: Raw, stored: str, wanted: str, name: str) -> Raw:
    """Return float elements in another float format; exact upwards, rounded to nearest even downwards."""
    values = to_float32(raw, stored)
    return values if wanted == "F32" else round_to(values, wanted, name)


def ones(shape: tuple[int, ...], dtype: str) -> Raw:
    """Return stored elements of ``BF16``, ``F16`` or ``F32`` that are all 1."""
    return converted(np.ones(shape, dtype=np.float32), "F32", dtype, "of ones")


def _largest_bits(tile: Raw, dtype: str) -> int:
    """Return the largest bit pattern without its sign, by two searches that need no copy.

    As signed numbers the patterns of positive floats come out on top, as unsigned ones those of negative floats.
    """
    if tile.size == 0:
        return 0
    unsigned, signed, sign = _INTEGERS.get(dtype, (np.uint16, np.int16, 15))
    positive, negative = int(tile.view(signed).max()), int(tile.view(unsigned).max()) - (1 << sign)
    return max(positive, negative, 0)


_INTEGERS: Mapping[str, tuple[Any, Any, int]] = {
    "F32": (np.uint32, np.int32, 31), "F8_E4M3": (np.uint8, np.int8, 7),
}  # fmt: skip
"""Integers as wide as an element, and the place of its sign; of the others 16 bit."""


def _require_finite(largest: int, dtype: str, name: str) -> None:
    if largest < INFINITY[dtype]:
        return
    found = "infinity" if largest == INFINITY[dtype] and dtype in FLOATS else "NaN"
    raise TensorError(
        f"tensor {name} holds {found}",
        why="one such weight makes every answer NaN, and no scale can represent it",
        hint="download the model again; if it persists the checkpoint itself is broken",
    )
