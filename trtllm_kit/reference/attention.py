"""Grouped-query attention of one layer over one sequence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trtllm_kit.dtypes import F32
from trtllm_kit.reference.kv_cache import KvScales, LayerCache
from trtllm_kit.reference.linear import Linear
from trtllm_kit.reference.numeric import Observe, rms_norm, softcap, softmax
from trtllm_kit.reference.rope import Rotation
from trtllm_kit.spec.model import Attention, QueryTemperature


@dataclass(frozen=True)
class AttentionBlock:
    """Projections, optional query and key norms, rotation, cache and attention."""

    name: str
    """Module name, ``model.layers.3.self_attn``."""
    shape: Attention
    epsilon: float
    query: Linear
    key: Linear
    value: Linear
    out: Linear
    query_norm: F32 | None = None
    key_norm: F32 | None = None
    sinks: F32 | None = None
    """(heads,) scores that no token has."""

    def __call__(self, hidden: F32, rotation: Rotation, cache: LayerCache, observe: Observe | None = None) -> F32:
        """Attend from (tokens, hidden) to all that ``cache`` holds, the tokens included; return (tokens, hidden)."""
        queries = self._heads(self.query(hidden, observe), self.query_norm, rotation)
        if self.shape.temperature is not None:
            queries = queries * temperature(self.shape.temperature, cache.length, len(hidden))[:, None, None]
        keys = self._heads(self.key(hidden, observe), self.key_norm, rotation)
        values = self.value(hidden, observe).reshape(keys.shape)
        if observe is not None:
            observe(f"{self.name}.k_cache", keys)
            observe(f"{self.name}.v_cache", values)
        all_keys, all_values = cache.append(keys, values)
        return self.out(attend(queries, all_keys, all_values, self.shape, self.sinks), observe)

    def new_cache(self, scales: KvScales | None) -> LayerCache:
        """Return an empty cache of this shape."""
        return LayerCache(self.shape.kv_heads, self.shape.head_dim, scales)

    def _heads(self, projected: F32, norm: F32 | None, rotation: Rotation) -> F32:
        """Split (tokens, heads x head_dim) into heads, norm them when the family does, and rotate."""
        heads = projected.reshape(len(projected), -1, self.shape.head_dim)
        if norm is not None:
            heads = rms_norm(heads, norm, self.epsilon)
        if self.shape.rotary:
            heads = rotation.apply(heads)
        return rms_norm(heads, _ONES, self.epsilon) if self.shape.qk_norm == "l2" else heads


_ONES = np.ones(1, dtype=np.float32)


def temperature(shape: QueryTemperature, start: int, count: int) -> F32:
    """Return the (count,) factors of queries at positions from ``start`` on."""
    steps = np.floor(np.arange(start + 1, start + count + 1, dtype=np.float32) / np.float32(shape.floor))
    factors: F32 = np.log1p(steps) * np.float32(shape.scale) + np.float32(1.0)
    return factors


def attend(queries: F32, keys: F32, values: F32, shape: Attention, sinks: F32 | None = None) -> F32:
    """Return the (tokens, heads x value width) attention of the newest tokens over a whole sequence.

    ``queries`` is (tokens, heads, head_dim); ``keys`` is (kv_heads, length, head_dim), ``values`` (kv_heads, length,
    value width), and their last ``tokens`` entries belong to the queries. Each KV head serves ``heads / kv_heads``
    query heads. A query sees itself and what came before it in its window or chunk. ``sinks``, (heads,), are one
    score more for each query, which has no value.
    """
    tokens, heads, head_dim = queries.shape
    kv_heads, length, _ = keys.shape
    grouped = queries.reshape(tokens, kv_heads, heads // kv_heads, head_dim).transpose(1, 2, 0, 3)
    stacked = grouped.reshape(kv_heads, -1, head_dim) * np.float32(shape.scale or head_dim**-0.5)
    scores = (stacked @ keys.transpose(0, 2, 1)).reshape(kv_heads, -1, tokens, length)
    if shape.softcap is not None:
        scores = softcap(scores, shape.softcap)
    if tokens > 1 or shape.kind != "full":
        scores = np.where(_visible(tokens, length, shape), scores, np.float32(-np.inf))
    mixed = _odds(scores, sinks).reshape(kv_heads, -1, length) @ values
    return mixed.reshape(kv_heads, -1, tokens, values.shape[-1]).transpose(2, 0, 1, 3).reshape(tokens, -1)


def _odds(scores: F32, sinks: F32 | None) -> F32:
    """Return the probabilities of (kv_heads, heads of each, tokens, length) scores; with sinks they stay below one."""
    if sinks is None:
        return softmax(scores)
    column = np.broadcast_to(sinks.reshape(*scores.shape[:2], 1, 1), (*scores.shape[:3], 1))
    return softmax(np.concatenate([scores, column], axis=-1))[..., :-1]


def _visible(tokens: int, length: int, shape: Attention) -> NDArray[np.bool_]:
    """Return the (tokens, length) mask of what each of the last ``tokens`` positions may look at."""
    position = np.arange(length - tokens, length)[:, None]
    other = np.arange(length)[None, :]
    seen = other <= position
    if shape.kind == "full" or shape.window is None:
        return seen
    first = position - shape.window + 1 if shape.kind == "sliding" else position - position % shape.window
    return seen & (other >= first)
