"""Multi-head latent attention of one layer over one sequence (DeepSeek-V2, arXiv 2405.04434, section 2.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trtllm_kit.dtypes import F32
from trtllm_kit.reference.attention import Run, attend, places
from trtllm_kit.reference.kv_cache import KvScales, LayerCache
from trtllm_kit.reference.linear import Linear
from trtllm_kit.reference.numeric import Observe, rms_norm
from trtllm_kit.reference.rope import Rotation
from trtllm_kit.spec.model import Attention, Latent

_EPSILON = 1e-6
"""Of the norms of the two latent vectors; no key of ``config.json`` states it."""
_EXPANDED = 1 << 22
"""Elements of keys and values that are expanded at once, 16 MiB in float32."""


@dataclass(frozen=True)
class LatentBlock:
    """Keys and values are expanded, for every step anew, from the latent vectors that the cache holds.

    What is cached is what TensorRT-LLM caches: the normed latent vector and, behind it, the turned key that all heads
    share. TensorRT-LLM moves the expansion to the queries and the output, which is the same product.
    """

    name: str
    """Module name, ``model.layers.3.self_attn``."""
    shape: Attention
    latent: Latent
    query: Linear
    """From the query's latent vector, or from the hidden state when there is none."""
    down: Linear
    latent_norm: F32
    up: Linear
    out: Linear
    query_down: Linear | None = None
    query_norm: F32 | None = None

    def __call__(self, hidden: F32, rotation: Rotation, cache: LayerCache, observe: Observe | None = None) -> F32:
        """Attend from (tokens, hidden) to all that ``cache`` holds, the tokens included; return (tokens, hidden)."""
        return self.together(hidden, [Run(rotation, cache, len(hidden))], observe)

    def together(self, hidden: F32, runs: Sequence[Run], observe: Observe | None = None) -> F32:
        """Do the same for several sequences, whose tokens stand one behind the other."""
        queries, entries = self._projected_queries(hidden, observe), self.down(hidden, observe)
        mixed = []
        for run, at in zip(runs, places(runs), strict=True):
            entry = self._entries(entries[at], run.rotation)
            cached, _ = run.cache.append(entry, entry[..., :0])
            mixed.append(self._attended(self._turned(queries[at], run.rotation), cached[0], observe))
        return self.out(np.concatenate(mixed), observe)

    def new_cache(self, scales: KvScales | None) -> LayerCache:
        """Return an empty cache: one head, which has keys and no values."""
        return LayerCache(1, self.latent.kv_rank + self.latent.rope_dim, scales, value_dim=0)

    def _projected_queries(self, hidden: F32, observe: Observe | None) -> F32:
        """Return the (tokens, heads x head_dim) queries."""
        if self.query_down is not None and self.query_norm is not None:
            hidden = rms_norm(self.query_down(hidden, observe), self.query_norm, _EPSILON)
        return self.query(hidden, observe)

    def _turned(self, projected: F32, rotation: Rotation) -> F32:
        """Return the (tokens, heads, head_dim) queries, their second part turned."""
        queries = projected.reshape(len(projected), self.shape.heads, self.shape.head_dim)
        plain, turned = np.split(queries, [self.latent.nope_dim], axis=-1)
        return np.concatenate([plain, rotation.apply(turned)], axis=-1)

    def _entries(self, down: F32, rotation: Rotation) -> F32:
        """Return what the cache takes, (tokens, 1, kv_rank + rope_dim)."""
        latent, key = np.split(down[:, None, :], [self.latent.kv_rank], axis=-1)
        return np.concatenate([rms_norm(latent, self.latent_norm, _EPSILON), rotation.apply(key)], axis=-1)

    def _attended(self, queries: F32, cached: F32, observe: Observe | None) -> F32:
        """Return the (tokens, heads x value_dim) attention to (length, ...) entries, some heads at a time."""
        heads = self.shape.heads
        step = max(_EXPANDED // (len(cached) * (self.latent.nope_dim + self.latent.value_dim)), 1)
        parts = [
            attend(queries[:, one.start : one.stop], *self._expanded(cached, one, observe), self.shape)
            for one in (range(at, min(at + step, heads)) for at in range(0, heads, step))
        ]
        return np.concatenate(parts, axis=-1)

    def _expanded(self, cached: F32, group: range, observe: Observe | None) -> tuple[F32, F32]:
        """Return keys (heads, length, head_dim) and values (heads, length, value_dim) of (length, ...) entries."""
        latent, key = np.split(cached, [self.latent.kv_rank], axis=-1)
        rows = self.latent.nope_dim + self.latent.value_dim
        heads = self.up.rows(group.start * rows, group.stop * rows)(latent, observe)
        heads = heads.reshape(len(cached), len(group), rows)
        plain, values = np.split(heads, [self.latent.nope_dim], axis=-1)
        shared = np.broadcast_to(key[:, None, :], (*plain.shape[:2], key.shape[-1]))
        return np.concatenate([plain, shared], axis=-1).swapaxes(0, 1), values.swapaxes(0, 1)
