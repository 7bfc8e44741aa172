"""FP8 e4m3 with one scale a tensor, as NVIDIA ModelOpt 0.47 exports it.

``weight_scale = amax / 448`` in float32, and each code is ``weight / scale`` rounded to the weight's own 16-bit
format and then to e4m3; of Llama 4's fused experts, rounded to e4m3 alone. A 16-bit format has 65,536 values, so a
table with one code for each makes it a single look-up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from trtllm_kit.checkpoint.formats.base import Part, known
from trtllm_kit.checkpoint.formats.bits import INFINITY, to_float32
from trtllm_kit.checkpoint.rectangle import Raw
from trtllm_kit.dtypes import E4M3_MAX, F32, U8, U16, decode_e4m3, encode_bf16, encode_e4m3


@dataclass(frozen=True)
class PerTensor:
    """Parts: ``weight`` e4m3 (rows, columns), ``weight_scale`` float32 ()."""

    twice: bool = True
    """Round the quotient to the weight's own 16-bit format on the way."""
    row_step: int = 1
    needs_amax: bool = True

    def parts(self, rows: int, columns: int) -> tuple[Part, ...]:
        """Return the weight and its scale."""
        return Part("weight", "F8_E4M3", (rows, columns)), Part("weight_scale", "F32", ())

    def encode(self, tile: U16, dtype: str, amax: float | None) -> tuple[Raw, ...]:
        """Return the codes of a tile."""
        return (quantise(tile, _table(fp8_scale(known(amax)), dtype, self.twice)),)

    def constants(self, amax: float | None) -> Mapping[str, Raw]:
        """Return the scale."""
        return {"weight_scale": np.array([fp8_scale(known(amax))])}


def decode(parts: Mapping[str, Raw], dtype: str) -> F32:  # noqa: ARG001  # the codes alone say what they are
    """Return the values of e4m3 codes: code times ``weight_scale``, 1 without one."""
    scale = parts.get("weight_scale")
    return decode_e4m3(parts["weight"]) * np.float32(1.0 if scale is None else scale.ravel()[0])


def fp8_scale(amax: float) -> np.float32:
    """Return the finite, positive scale that maps ``amax`` to 448; 1 for an amax of zero."""
    if amax == 0.0:
        return np.float32(1.0)
    return np.float32(max(np.float32(amax) / np.float32(E4M3_MAX), np.finfo(np.float32).tiny))


def cache_scale(amax: float) -> np.float32:
    """Return the scale of an FP8 KV cache in an engine's checkpoint: never below 1, as every ModelOpt writes it there.

    Keys and values up to 448 are then stored as they are, with the precision of e4m3.
    """
    return max(fp8_scale(amax), np.float32(1.0))


def fp8_table(scale: np.float32, dtype: str, *, twice: bool = True) -> U8:
    """Return the e4m3 code of every ``BF16`` or ``F16`` bit pattern divided by ``scale``, (65536,).

    With ``twice`` the quotient is rounded to ``dtype`` on the way.
    """
    positive = np.arange(INFINITY[dtype], dtype=np.uint16)
    with np.errstate(over="ignore"):
        quotients = to_float32(positive, dtype) / scale
        if twice:
            bits = encode_bf16(quotients) if dtype == "BF16" else quotients.astype(np.float16)
            quotients = to_float32(bits, dtype)
    table = np.full(1 << 16, 0x7F, dtype=np.uint8)
    table[: len(positive)] = encode_e4m3(quotients)
    table[1 << 15 :] = table[: 1 << 15] | np.uint8(0x80)
    return table


@lru_cache(maxsize=8)
def _table(scale: np.float32, dtype: str, twice: bool) -> U8:  # a key of the cache
    return fp8_table(scale, dtype, twice=twice)


def quantise(tile: U16, table: U8) -> U8:
    """Return the code of each 16-bit element."""
    codes = np.empty(tile.shape, dtype=np.uint8)
    return np.take(table, tile.view(np.uint16), out=codes, mode="wrap")
