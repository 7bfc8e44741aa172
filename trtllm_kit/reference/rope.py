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
from trtllm_kit.spec.model import Attention, ModelSpec, Rope


@dataclass(frozen=True)
class Rotation:
    """Cosines and sines of a run of positions, (tokens, turned elements / 2) each."""

    cosine: F32
    sine: F32
    neighbours: bool
    """Whether pairs are neighbours rather than a head's two halves."""

    def apply(self, heads: F32) -> F32:
        """Rotate (tokens, heads, head_dim): the leading elements of each head, as many as there are angles for."""
        half = self.cosine.shape[-1]
        halves = np.s_[..., :half], np.s_[..., half : 2 * half]
        pairs = np.s_[..., : 2 * half : 2], np.s_[..., 1 : 2 * half : 2]
        one, other = pairs if self.neighbours else halves
        cosine, sine = self.cosine[:, None, :], self.sine[:, None, :]
        turned = heads.copy()
        turned[one] = heads[one] * cosine - heads[other] * sine
        turned[other] = heads[other] * cosine + heads[one] * sine
        return turned


class RotaryTable:
    """The frequencies of one kind of layer; makes the rotation of any run of positions."""

    def __init__(self, rope: Rope, width: int, longest: int | None = None) -> None:
        """Compute the frequencies of the ``width`` elements of a head that are turned.

        ``longest`` is the longest sequence that will be run, tokens (``longrope`` chooses its factors by it). Raises
        ``UnknownArchitecture`` for a kind that depends on the length of each prompt.
        """
        self._neighbours = rope.interleaved
        self._frequencies = frequencies(rope, width, longest)
        self._magnitude = np.float32(magnitude(rope))

    def at(self, start: int, count: int) -> Rotation:
        """Return the rotation of positions ``start`` to ``start + count - 1``."""
        angles = np.outer(np.arange(start, start + count, dtype=np.float32), self._frequencies)
        return Rotation(np.cos(angles) * self._magnitude, np.sin(angles) * self._magnitude, self._neighbours)


def rotary_tables(model: ModelSpec, longest: int | None = None) -> tuple[RotaryTable, ...]:
    """Return the table of each layer, one object for all that turn alike; raises what ``RotaryTable`` raises."""
    kinds = [(layer.attention.rope or model.rope, _turned(layer.attention)) for layer in model.layers]
    tables = {kind: RotaryTable(*kind, longest) for kind in dict.fromkeys(kinds)}
    return tuple(tables[kind] for kind in kinds)


def _turned(attention: Attention) -> int:
    """Return how many elements of a head have a position."""
    if attention.latent is not None:
        return attention.latent.rope_dim
    return attention.rotary_dim or attention.head_dim


def magnitude(rope: Rope) -> float:
    """Return the factor on cosines and sines: stated, or the rule of the kind.

    Sources: YaRN, arXiv 2309.00071, section 3.4; LongRoPE, arXiv 2402.13753, and the configuration of Phi-3.
    """
    if rope.magnitude is not None:
        return rope.magnitude
    if rope.factor <= 1.0 or rope.kind not in ("yarn", "longrope"):
        return 1.0
    if rope.kind == "yarn":
        return 0.1 * math.log(rope.factor) + 1.0
    return math.sqrt(1.0 + math.log(rope.factor) / math.log(rope.original_max_position or 4096))


def frequencies(rope: Rope, head_dim: int, longest: int | None = None) -> F32:
    """Return the (head_dim / 2,) angles a position adds, radians, stretched as ``rope`` says.

    ``longest`` is the longest sequence that will be run, None when it is not known.
    """
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
        case "longrope":
            return base / np.array(_long_factors(rope, longest), dtype=np.float32)
        case "dynamic":
            raise UnknownArchitecture(
                "the reference forward pass cannot run rope kind 'dynamic'",
                why="its frequencies change with the length of each prompt; those of the other kinds are fixed",
                hint="convert with quantization.weights: bf16 and kv_cache: bf16, which needs no forward pass",
            )
        case "proportional":
            raise UnknownArchitecture(
                "the reference forward pass cannot run rope kind 'proportional'",
                why="only Gemma 4 has it, which is planned and not converted",
                hint="serve the checkpoint as it is",
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

    low, high = dimension(rope.beta_fast), dimension(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    ramp = (np.arange(head_dim // 2, dtype=np.float32) - low) / max(high - low, 1e-3)
    stretched = np.clip(ramp, 0.0, 1.0)
    return ((1.0 - stretched) * base + stretched * base / rope.factor).astype(np.float32)


def _long_factors(rope: Rope, longest: int | None) -> tuple[float, ...]:
    """Return the divisors of the frequencies: the long ones as soon as one sequence may pass the trained length.

    TensorRT-LLM chooses once, by ``max_seq_len``; a choice for each sequence would turn the keys of one cache in two
    ways.
    """
    trained = rope.original_max_position or 4096
    return rope.short_factors if longest is not None and longest <= trained else rope.long_factors
