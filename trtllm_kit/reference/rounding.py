"""What a quantised linear layer does to its input before it multiplies.

Formats with a static scale take it from the checkpoint; the others find scales in the input itself, as the kernels do:
``fp8_rowwise`` one a token, ``fp8_block`` one for 128 features of a token, ``mxfp8`` a power of two for 32, and
``nvfp4`` an e4m3 scale for 16 on top of its static one. Weight-only formats leave the input alone. Values make a round
trip through the codes, which gives the same products as multiplying codes and then scales.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from trtllm_kit.dtypes import (
    E2M1_MAX,
    E4M3_MAX,
    F32,
    decode_e2m1,
    decode_e8m0,
    e8m0_at_least,
    encode_e2m1,
    round_e4m3,
)
from trtllm_kit.plan.formats import number_format as cost_of
from trtllm_kit.reference.numeric import fake_e4m3

_TINY = np.finfo(np.float32).tiny


def rounded_input(values: F32, number_format: str, input_scale: float | None) -> F32:
    """Return what is left of (tokens, features) in front of a weight of ``number_format``."""
    if number_format in _DYNAMIC:
        return _DYNAMIC[number_format](values)
    if input_scale is None:
        return values
    return _STATIC.get(number_format, fake_e4m3)(values, input_scale)


def rounded_entry(values: F32, number_format: str, scale: float) -> F32:
    """Return what is left of keys or values, (..., head dim), in a KV cache with a static scale.

    In NVFP4 blocks of 16 have an e4m3 scale of their own on top, as a linear layer's input has.
    """
    if number_format == "nvfp4" and values.size:  # a latent cache has no values
        entries = values.reshape(-1, values.shape[-1])
        return _nvfp4(entries, cost_of("nvfp4").block, np.float32(scale)).reshape(values.shape)
    return _int8(values, np.float32(scale)) if number_format == "int8" else fake_e4m3(values, scale)


def _int8(values: F32, scale: np.float32) -> F32:
    codes = np.clip(np.rint(values / scale), -128, 127).astype(np.float32)
    rounded: F32 = codes * scale
    return rounded


def _e4m3_by_block(values: F32, width: int) -> F32:
    blocks = _blocks(values, width)
    largest = np.abs(blocks).max(axis=-1, keepdims=True, initial=0.0)
    scale = np.where(largest == 0, np.float32(1.0), np.maximum(largest / np.float32(E4M3_MAX), _TINY))
    return _joined(round_e4m3(blocks / scale) * scale, values)


def _mxfp8(values: F32, width: int) -> F32:
    blocks = _blocks(values, width)
    largest = np.abs(blocks).max(axis=-1, keepdims=True, initial=0.0)
    scale = decode_e8m0(e8m0_at_least(largest / np.float32(E4M3_MAX)))
    return _joined(round_e4m3(blocks / scale) * scale, values)


def _nvfp4(values: F32, width: int, whole: np.float32) -> F32:
    blocks = _blocks(values, width)
    largest = np.abs(blocks).max(axis=-1, keepdims=True, initial=0.0)
    scale = round_e4m3(largest / (np.float32(E2M1_MAX) * whole)) * whole
    codes = encode_e2m1(np.divide(blocks, scale, out=np.zeros_like(blocks), where=scale > 0))
    return _joined(decode_e2m1(codes) * scale, values)


def _blocks(values: F32, width: int) -> F32:
    """Return (tokens, blocks, width), the last block filled up with zeros."""
    missing = -values.shape[-1] % width
    filled = np.pad(values, ((0, 0), (0, missing))) if missing else values
    return filled.reshape(len(values), -1, width)


def _joined(blocks: F32, values: F32) -> F32:
    joined: F32 = blocks.reshape(len(values), -1)[:, : values.shape[-1]]
    return joined


_DYNAMIC: dict[str, Callable[[F32], F32]] = {
    "fp8_rowwise": lambda values: _e4m3_by_block(values, values.shape[-1]),
    "fp8_block": lambda values: _e4m3_by_block(values, cost_of("fp8_block").block),
    "mxfp8": lambda values: _mxfp8(values, cost_of("mxfp8").block),
}
_STATIC: dict[str, Callable[[F32, float], F32]] = {
    "nvfp4": lambda values, scale: _nvfp4(values, cost_of("nvfp4").block, np.float32(scale)),
    "int8_sq": lambda values, scale: _int8(values, np.float32(scale)),
}
"""FP8 is what other formats with a static scale do."""
