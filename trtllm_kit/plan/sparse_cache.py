"""What sparse attention caches beside keys and values: an indexer's keys, and vectors that stand for several tokens."""

from __future__ import annotations

from trtllm_kit.spec.mixers import Attention
from trtllm_kit.upstream import memory as upstream


def index_bytes(attention: Attention) -> int:
    """Return the bytes of one token in the cache of an indexer's keys; compressed ones count as vectors instead.

    Every tensor rank has all of them. Layers that take the choice of another have none.
    """
    if attention.indexer is None or attention.compression is not None:
        return 0
    return upstream.indexer_key_bytes(attention.indexer.layout, attention.indexer.head_dim)


def beyond_bytes_per_token(attention: Attention, element_bytes: float) -> float:
    """Return the bytes by which one more token lengthens what stands for the tokens beyond a window."""
    compression = attention.compression
    if compression is None or not compression.ratio:
        return 0.0
    return _vector_bytes(attention, element_bytes) / compression.ratio


def beyond_bytes(attention: Attention, tokens: int, element_bytes: float) -> int:
    """Return the bytes that stand for the tokens beyond the window of a sequence, and what waits to be compressed.

    Every ``ratio`` tokens become one vector (DeepSeek-V4); of those that the next one is made of, a value and a score
    are kept for each element. Every tensor rank has all of it.
    """
    compression = attention.compression
    if compression is None or not compression.ratio:
        return 0
    vectors = tokens // compression.ratio
    width = attention.head_dim + (attention.indexer.head_dim if attention.indexer else 0)
    waiting = compression.overlap * compression.ratio * compression.overlap * width * 2
    held = vectors * _vector_bytes(attention, element_bytes) + waiting * upstream.compressor_element_bytes()
    return round(held)


def _vector_bytes(attention: Attention, element_bytes: float) -> float:
    """Return the bytes of one vector, with its indexer's key."""
    indexer = attention.indexer
    key = upstream.indexer_key_bytes("compressed", indexer.head_dim) if indexer else 0
    return attention.head_dim * element_bytes + key
