"""Multi-head latent attention of one layer over one sequence (DeepSeek-V2, arXiv 2405.04434, section 2.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trtllm_kit.dtypes import F32
from trtllm_kit.reference.attention import attend
from trtllm_kit.reference.kv_cache import KvScales, LayerCache
from trtllm_kit.reference.linear import Linear
from trtllm_kit.reference.numeric import Observe, rms_norm
from trtllm_kit.reference.rope import Rotation
from trtllm_kit.spec.model import Attention, Latent

_EPSILON = 1e-6
"""Of the norms of the two latent vectors; no key of ``config.json`` states it."""


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
        queries = self._queries(hidden, rotation, observe)
        entries = self._entries(hidden, rotation, observe)
        cached, _ = cache.append(entries, entries[..., :0])
        keys, values = self._expanded(cached[0], observe)
        return self.out(attend(queries, keys, values, self.shape), observe)

    def new_cache(self, scales: KvScales | None) -> LayerCache:
        """Return an empty cache: one head, which has keys and no values."""
        return LayerCache(1, self.latent.kv_rank + self.latent.rope_dim, scales, value_dim=0)

    def _queries(self, hidden: F32, rotation: Rotation, observe: Observe | None) -> F32:
        """Return the (tokens, heads, head_dim) queries, their second part turned."""
        if self.query_down is not None and self.query_norm is not None:
            hidden = rms_norm(self.query_down(hidden, observe), self.query_norm, _EPSILON)
        queries = self.query(hidden, observe).reshape(len(hidden), self.shape.heads, self.shape.head_dim)
        plain, turned = np.split(queries, [self.latent.nope_dim], axis=-1)
        return np.concatenate([plain, rotation.apply(turned)], axis=-1)

    def _entries(self, hidden: F32, rotation: Rotation, observe: Observe | None) -> F32:
        """Return what the cache takes, (tokens, 1, kv_rank + rope_dim)."""
        latent, key = np.split(self.down(hidden, observe)[:, None, :], [self.latent.kv_rank], axis=-1)
        return np.concatenate([rms_norm(latent, self.latent_norm, _EPSILON), rotation.apply(key)], axis=-1)

    def _expanded(self, cached: F32, observe: Observe | None) -> tuple[F32, F32]:
        """Return keys (heads, length, head_dim) and values (heads, length, value_dim) of (length, ...) entries."""
        latent, key = np.split(cached, [self.latent.kv_rank], axis=-1)
        heads = self.up(latent, observe).reshape(len(cached), self.shape.heads, -1)
        plain, values = np.split(heads, [self.latent.nope_dim], axis=-1)
        shared = np.broadcast_to(key[:, None, :], (*plain.shape[:2], key.shape[-1]))
        return np.concatenate([plain, shared], axis=-1).swapaxes(0, 1), values.swapaxes(0, 1)
