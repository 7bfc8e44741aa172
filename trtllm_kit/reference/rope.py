"""Rotary position embedding: the angles of each position, and the rotation of queries and keys.

A rotation turns pairs of elements. Hugging Face's Llama layout pairs the first half of a head with the second;
Llama 4 pairs neighbours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from trtllm_kit.dtypes import F32
from trtllm_kit.errors import UnknownArchitecture
from trtllm_kit.spec.model import ModelSpec, Rope

_YARN_FAST, _YARN_SLOW = 32.0, 1.0
"""Rotations over the original context above which a frequency is kept, and below which it is fully stretched."""


@dataclass(frozen=True)
class Rotation:
    """Cosines and sines of a run of positions, (tokens, head_dim / 2) each."""

    cosine: F32
    sine: F32
    neighbours: bool
    """Whether pairs are neighbours rather than a head's two halves."""

    def apply(self, heads: F32) -> F32:
        """Rotate (tokens, heads, head_dim)."""
        half = heads.shape[-1] // 2
        one, other = (np.s_[..., ::2], np.s_[..., 1::2]) if self.neighbours else (np.s_[..., :half], np.s_[..., half:])
        cosine, sine = self.cosine[:, None, :], self.sine[:, None, :]
        turned = np.empty_like(heads)
        turned[one] = heads[one] * cosine - heads[other] * sine
        turned[other] = heads[other] * cosine + heads[one] * sine
        return turned


class RotaryTable:
    """The frequencies of one model; makes the rotation of any run of positions."""

    def __init__(self, model: ModelSpec) -> None:
        """Compute the frequencies; raises ``UnknownArchitecture`` for a kind that depends on the prompt's length."""
        rope = model.rope
        self._neighbours = model.family == "llama4"
        self._frequencies = frequencies(rope, model.layers[0].attention.head_dim)
        self._magnitude = 0.1 * math.log(rope.factor) + 1.0 if rope.kind == "yarn" and rope.factor > 1.0 else 1.0

    def at(self, start: int, count: int) -> Rotation:
        """Return the rotation of positions ``start`` to ``start + count - 1``."""
        angles = np.outer(np.arange(start, start + count, dtype=np.float32), self._frequencies)
        scale = np.float32(self._magnitude)
        return Rotation(np.cos(angles) * scale, np.sin(angles) * scale, self._neighbours)


def frequencies(rope: Rope, head_dim: int) -> F32:
    """Return the (head_dim / 2,) angles a position adds, radians, stretched as ``rope`` says."""
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    base = (1.0 / np.float32(rope.theta) ** exponents).astype(np.float32)
    match rope.kind:
        case "default":
            return base
        case "linear":
            return base / np.float32(rope.factor)
        case "llama3":
            return _llama3(base, rope)
        case "yarn":
            return _yarn(base, rope, head_dim)
        case "dynamic":
            raise UnknownArchitecture(
                "the reference forward pass cannot run rope kind 'dynamic'",
                why="its frequencies change with the length of each prompt; default, linear, llama3 and yarn are fixed",
                hint="convert with quantization.weights: bf16 and kv_cache: bf16, which needs no forward pass",
            )


def _llama3(base: F32, rope: Rope) -> F32:
    """Stretch waves longer than the trained context by ``factor``, keep short ones, blend between.

    Source: the Llama 3.1 release notes' rope scaling; ``low_freq_factor`` and ``high_freq_factor`` bound the blend.
    """
    original = float(rope.original_max_position or 8192)
    low, high = rope.low_freq_factor or 1.0, rope.high_freq_factor or 4.0
    rotations = original * base / (2.0 * math.pi)
    kept = np.clip((rotations - low) / (high - low), 0.0, 1.0)
    return ((1.0 - kept) * base / rope.factor + kept * base).astype(np.float32)


def _yarn(base: F32, rope: Rope, head_dim: int) -> F32:
    """Stretch slow dimensions by ``factor``, keep fast ones, ramp between (YaRN, arXiv 2309.00071, section 3.2)."""
    original = float(rope.original_max_position or 4096)

    def dimension(rotations: float) -> float:
        return head_dim * math.log(original / (rotations * 2.0 * math.pi)) / (2.0 * math.log(rope.theta))

    low = max(math.floor(dimension(_YARN_FAST)), 0)
    high = min(math.ceil(dimension(_YARN_SLOW)), head_dim - 1)
    ramp = (np.arange(head_dim // 2, dtype=np.float32) - low) / max(high - low, 1e-3)
    stretched = np.clip(ramp, 0.0, 1.0)
    return ((1.0 - stretched) * base + stretched * base / rope.factor).astype(np.float32)
