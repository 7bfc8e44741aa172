"""Keys and values of the tokens a sequence has seen, in float32 or rounded to FP8, INT8 or NVFP4."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trtllm_kit.dtypes import F32
from trtllm_kit.reference.rounding import rounded_entry
from trtllm_kit.spec.profile_formats import KvFormat

_FIRST_CAPACITY = 128


@dataclass(frozen=True)
class KvScales:
    """Static scales of one layer's keys and values, and the format they are for."""

    key: float
    value: float
    number_format: KvFormat = "fp8"


class LayerCache:
    """Keys and values of one layer and one sequence, grown by doubling.

    With scales, entries make a round trip through the format's codes as they enter, so that attention reads what such
    a cache would give it. They are kept as float32 all the same: this cache shows the numbers, not the size.
    """

    def __init__(
        self, kv_heads: int, head_dim: int, scales: KvScales | None = None, value_dim: int | None = None
    ) -> None:
        """Start empty; ``value_dim`` is the width of a value where it is not that of a key."""
        self._scales = scales
        self._keys = np.empty((kv_heads, _FIRST_CAPACITY, head_dim), dtype=np.float32)
        width = head_dim if value_dim is None else value_dim
        self._values = np.empty((kv_heads, _FIRST_CAPACITY, width), dtype=np.float32)
        self.length = 0

    def append(self, keys: F32, values: F32) -> tuple[F32, F32]:
        """Add (tokens, kv_heads, width), keys rotated; return all keys and values, (kv_heads, length, width)."""
        if self._scales is not None:
            keys = rounded_entry(keys, self._scales.number_format, self._scales.key)
            values = rounded_entry(values, self._scales.number_format, self._scales.value)
        end = self.length + len(keys)
        self._reserve(end)
        self._keys[:, self.length : end] = keys.swapaxes(0, 1)
        self._values[:, self.length : end] = values.swapaxes(0, 1)
        self.length = end
        return self._keys[:, :end], self._values[:, :end]

    def _reserve(self, tokens: int) -> None:
        capacity = self._keys.shape[1]
        if tokens <= capacity:
            return
        extra = ((0, 0), (0, max(tokens, 2 * capacity) - capacity), (0, 0))
        self._keys, self._values = np.pad(self._keys, extra), np.pad(self._values, extra)


class KvCache:
    """The caches of all layers of one sequence."""

    def __init__(self, layers: Sequence[LayerCache]) -> None:
        """Hold one cache a layer, in layer order."""
        self.layers = tuple(layers)

    @property
    def length(self) -> int:
        """Tokens seen so far."""
        return self.layers[0].length if self.layers else 0
