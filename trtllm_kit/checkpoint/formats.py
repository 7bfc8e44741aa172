"""The bytes of each number format: largest magnitudes, scales, and element-wise conversion by tables.

FP8 per tensor as NVIDIA ModelOpt 0.47 exports it: ``weight_scale = amax / 448`` in float32, and each code is
``weight / scale`` rounded to the weight's own 16-bit format and then to e4m3; of Llama 4's fused experts, rounded
to e4m3 alone. A 16-bit format has 65,536 values, so a table with one code for each makes it a single look-up.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from trtllm_kit.checkpoint.reader import Raw
from trtllm_kit.dtypes import E4M3_MAX, F32, U8, U16, decode_bf16, encode_bf16, encode_e4m3
from trtllm_kit.errors import TensorError

_MAGNITUDE = {"BF16": 0x7FFF, "F16": 0x7FFF, "F32": 0x7FFFFFFF}
"""Every bit but the sign."""
_INFINITY = {"BF16": 0x7F80, "F16": 0x7C00, "F32": 0x7F800000}
"""The bits of infinity; NaN lies above."""
_F16_MAX = 65504.0


def largest_magnitude(tiles: Iterable[Raw], dtype: str, name: str) -> float:
    """Return max |x| of a tensor of ``BF16``, ``F16`` or ``F32``; raises ``TensorError`` for NaN or Inf in it.

    Without their sign, bit patterns of floats order as the values do, so the search runs on integers.
    """
    largest = 0
    for tile in tiles:
        largest = max(largest, _largest_bits(tile, dtype))
    _require_finite(largest, dtype, name)
    return float(from_bits(np.array([largest], dtype=np.uint32), dtype)[0])


def check_finite(tile: Raw, dtype: str, name: str) -> Raw:
    """Return the tile; raises ``TensorError`` when it holds NaN or Inf."""
    _require_finite(_largest_bits(tile, dtype), dtype, name)
    return tile


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


def fp8_scale(amax: float) -> np.float32:
    """Return the finite, positive scale that maps ``amax`` to 448; 1 for an amax of zero."""
    if amax == 0.0:
        return np.float32(1.0)
    return np.float32(max(np.float32(amax) / np.float32(E4M3_MAX), np.finfo(np.float32).tiny))


def fp8_table(scale: np.float32, dtype: str, *, twice: bool = True) -> U8:
    """Return the e4m3 code of every ``BF16`` or ``F16`` bit pattern divided by ``scale``, (65536,).

    With ``twice`` the quotient is rounded to ``dtype`` on the way.
    """
    positive = np.arange(_INFINITY[dtype], dtype=np.uint16)
    with np.errstate(over="ignore"):
        quotients = to_float32(positive, dtype) / scale
        if twice:
            bits = encode_bf16(quotients) if dtype == "BF16" else quotients.astype(np.float16)
            quotients = to_float32(bits, dtype)
    table = np.full(1 << 16, 0x7F, dtype=np.uint8)
    table[: len(positive)] = encode_e4m3(quotients)
    table[1 << 15 :] = table[: 1 << 15] | np.uint8(0x80)
    return table


def quantise(tile: U16, table: U8) -> U8:
    """Return the code of each 16-bit element."""
    codes = np.empty(tile.shape, dtype=np.uint8)
    return np.take(table, tile.view(np.uint16), out=codes, mode="wrap")


def _largest_bits(tile: Raw, dtype: str) -> int:
    if tile.size == 0:
        return 0
    bits = tile.view(np.uint32 if dtype == "F32" else np.uint16)
    return int(np.bitwise_and(bits, bits.dtype.type(_MAGNITUDE[dtype])).max())


def _require_finite(largest: int, dtype: str, name: str) -> None:
    if largest < _INFINITY[dtype]:
        return
    found = "infinity" if largest == _INFINITY[dtype] else "NaN"
    raise TensorError(
        f"tensor {name} holds {found}",
        why="one such weight makes every answer NaN, and no scale can represent it",
        hint="download the model again; if it persists the checkpoint itself is broken",
    )
