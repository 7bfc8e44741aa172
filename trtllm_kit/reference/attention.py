"""Grouped-query attention of one layer over one sequence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trtllm_kit.dtypes import F32
from trtllm_kit.reference.kv_cache import KvScales, LayerCache
from trtllm_kit.reference.linear import Linear
from trtllm_kit.reference.numeric import Observe, rms_norm, softcap, softmax
from trtllm_kit.reference.rope import Rotation
from trtllm_kit.spec.model import Attention, QueryTemperature


class Run(NamedTuple):
    """Tokens of one sequence, and what they need of it."""

    rotation: Rotation
    cache: LayerCache
    tokens: int


def places(runs: Sequence[Run]) -> Iterator[slice]:
    """Yield where the tokens of each run are when they stand one behind the other."""
    end = 0
    for run in runs:
        end += run.tokens
        yield slice(end - run.tokens, end)


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
        return self.together(hidden, [Run(rotation, cache, len(hidden))], observe)

    def together(self, hidden: F32, runs: Sequence[Run], observe: Observe | None = None) -> F32:
        """Do the same for several sequences, whose tokens stand one behind the other, with one pass of the weights."""
        queries, keys, values = (linear(hidden, observe) for linear in (self.query, self.key, self.value))
        mixed = np.empty_like(queries, shape=(len(hidden), self.shape.heads * self.shape.head_dim))
        for run, at in zip(runs, places(runs), strict=True):
            mixed[at] = self._mixed(queries[at], keys[at], values[at], run, observe)
        return self.out(mixed, observe)

    def _mixed(self, queried: F32, keyed: F32, valued: F32, run: Run, observe: Observe | None) -> F32:
        queries = self._heads(queried, self.query_norm, run.rotation)
        if self.shape.temperature is not None:
            queries = queries * temperature(self.shape.temperature, run.cache.length, run.tokens)[:, None, None]
        keys = self._heads(keyed, self.key_norm, run.rotation)
        values = valued.reshape(keys.shape)
        if observe is not None:
            observe(f"{self.name}.k_cache", keys)
            observe(f"{self.name}.v_cache", values)
        return attend(queries, *run.cache.append(keys, values), self.shape, self.sinks)

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
    score more for each query, which has no value. Memory holds the scores of a few queries at a time.
    """
    tokens, length = len(queries), keys.shape[1]
    step = max(_SCORES // (queries.shape[1] * length), 1)
    seen = [(begin, min(begin + step, tokens)) for begin in range(0, tokens, step)]
    parts = [
        _attend(queries[begin:end], keys[:, : length - tokens + end], values[:, : length - tokens + end], shape, sinks)
        for begin, end in seen
    ]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


_SCORES = 1 << 22
"""Scores that are held at once, 16 MiB in float32."""


def _attend(queries: F32, keys: F32, values: F32, shape: Attention, sinks: F32 | None) -> F32:
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
