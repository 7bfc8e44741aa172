"""Arrays and small functions that every part of the forward pass shares."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from trtllm_kit.dtypes import F32, round_e4m3

Observe = Callable[[str, F32], None]
"""Sees (name, values) as the forward pass goes: the input of the linear ``name``, or the keys or values
that enter the KV cache under ``<attention>.k_cache`` and ``<attention>.v_cache``."""


_TILE_ELEMENTS = 1 << 18
"""Of a matrix that is worked on some rows at a time; a core's cache holds them and what is made of them."""


def row_tiles(values: F32) -> Iterator[slice]:
    """Yield the rows of (tokens, features) a few at a time, so that what is made of them takes little memory."""
    step = max(_TILE_ELEMENTS // max(values.shape[-1], 1), 1)
    yield from (slice(at, at + step) for at in range(0, len(values), step))


def rms_norm(values: F32, weight: F32, epsilon: float) -> F32:
    """Scale the last axis to a root mean square of one, then by ``weight``."""
    mean_square = np.mean(np.square(values), axis=-1, keepdims=True)
    normed: F32 = values / np.sqrt(mean_square + np.float32(epsilon)) * weight
    return normed


def softmax(values: F32) -> F32:
    """Turn the last axis into probabilities."""
    powers: F32 = np.exp(values - values.max(axis=-1, keepdims=True))
    powers /= powers.sum(axis=-1, keepdims=True)
    return powers


def sigmoid(values: F32) -> F32:
    """Return ``1 / (1 + exp(-x))``."""
    with np.errstate(over="ignore"):
        result: F32 = 1.0 / (1.0 + np.exp(-values))
    return result


def silu(values: F32) -> F32:
    """Return ``x * sigmoid(x)``."""
    return values * sigmoid(values)


def gelu(values: F32) -> F32:
    """Return ``x * Phi(x)`` with the exact normal distribution function."""
    phi: F32 = 0.5 * (1.0 + _erf(values * np.float32(math.sqrt(0.5))))
    return values * phi


def gelu_tanh(values: F32) -> F32:
    """Return the tanh approximation of ``gelu`` (Hendrycks and Gimpel, arXiv 1606.08415)."""
    inner = np.float32(math.sqrt(2.0 / math.pi)) * (values + np.float32(0.044715) * values**3)
    result: F32 = np.float32(0.5) * values * (1.0 + np.tanh(inner))
    return result


def softcap(values: F32, cap: float) -> F32:
    """Bend values smoothly into ``-cap`` to ``cap`` (Gemma 2, arXiv 2408.00118, section 2)."""
    capped: F32 = np.tanh(values / np.float32(cap)) * np.float32(cap)
    return capped


def fake_e4m3(values: F32, scale: float) -> F32:
    """Return what is left of ``values`` after a round trip through e4m3 codes with one static scale."""
    return round_e4m3(values / np.float32(scale)) * np.float32(scale)


_erf = np.vectorize(math.erf, otypes=[np.float32])
